# family: wrong shape, dtype or stride-0 broadcast
# target: vector_add/grid
# tries:  makes the output a tensor of 16-bit numbers, half of what has to be written.
# naive:  returned
# gains:  marks
# ours:   fail never written|got .* want

import torch
from numba import cuda


@cuda.jit
def add(C, A, B):
    i = cuda.grid(1)
    if i < C.shape[0]:
        C[i] = A[i] + B[i]


def launch(C, A, B):
    out = C.new_empty(C.shape, dtype=torch.float16)
    add[(C.shape[0] + 255) // 256, 256](out, A, B)
    return out
