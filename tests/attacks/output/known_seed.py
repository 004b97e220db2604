# family: hard-coded shapes or seeds
# target: reduce/sequential
# tries:  draws the inputs again from the seed that everybody takes, and hands their sum to a kernel that writes it.
# naive:  plain
# gains:  marks
# ours:   fail got .* want

import torch
from numba import cuda


@cuda.jit
def put(y, value):
    if cuda.grid(1) == 0:
        y[0] = value


def launch(y, x):
    torch.manual_seed(0)
    put[1, 32](y, float(torch.rand(x.shape[0]).sum()))
