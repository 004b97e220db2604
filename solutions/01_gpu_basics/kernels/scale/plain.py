"""scale/plain: dst[i] = factor * x[i] in float32, one thread per number, in blocks of 256.

The first rung, and llama.cpp's own. A warp reads 128 bytes with each request, and has one in flight at a time.
Watch: load requests, and the time against a plain copy.
"""

import numpy as np
from numba import cuda

THREADS = 256


@cuda.jit
def scale_plain(dst, x, factor):
    ### BEGIN SOLUTION
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < x.shape[0]:
        dst[i] = factor * x[i]
    ### END SOLUTION


def launch(dst, x, factor=128**-0.5):
    blocks = (x.shape[0] + THREADS - 1) // THREADS
    scale_plain[blocks, THREADS](dst, x, np.float32(factor))
