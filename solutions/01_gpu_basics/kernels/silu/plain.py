"""silu/plain: dst[i] = x[i] / (1 + exp(-x[i])) in float32, one thread per number, in blocks of 256.

The first rung, and llama.cpp's own. A warp reads 128 bytes with each request, and has one in flight at a time.
Watch: load requests, and the time against a plain copy.
"""

import math

from numba import cuda, float32

THREADS = 256


@cuda.jit
def silu_plain(dst, x):
    ### BEGIN SOLUTION
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < x.shape[0]:
        dst[i] = x[i] / (float32(1) + math.exp(-x[i]))
    ### END SOLUTION


def launch(dst, x):
    blocks = (x.shape[0] + THREADS - 1) // THREADS
    silu_plain[blocks, THREADS](dst, x)
