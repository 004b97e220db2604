# family: unsynchronized side stream
# target: vector_add/grid
# part:   time
# tries:  works on a stream of its own, which events on the default stream do not wait for: one of PyTorch's, for numba
#         makes streams that the default stream does wait for.
# naive:  events
# gains:  gpu time
# by:     2
# shape:  N=268435456
# ours:   pending GPU

import torch
from numba import cuda

if torch.cuda.is_available():
    stream = cuda.external_stream(torch.cuda.Stream().cuda_stream)
else:
    stream = cuda.stream()


@cuda.jit
def add(C, A, B):
    i = cuda.grid(1)
    if i < C.shape[0]:
        C[i] = A[i] + B[i]


def launch(C, A, B):
    add[(C.shape[0] + 255) // 256, 256, stream](C, A, B)
