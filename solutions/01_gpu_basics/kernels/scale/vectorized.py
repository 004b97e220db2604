"""scale/vectorized: dst[i] = factor * x[i] in float32, 4 numbers per thread.

Against plain: 16 bytes per access, so that each request brings more, and more is in flight at a time. Small blocks make
room for the next sooner. What is left at the end, and tensors that do not start on 16 bytes, go one number at a time.
Watch: load requests fall; bytes in flight per thread rise.
"""

import numpy as np
from numba import cuda

import labkit as lk

THREADS = 128


@cuda.jit
def scale_vectorized(dst, x, aligned, factor):
    N = x.shape[0]
    i = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) * 4
    if aligned and i + 4 <= N:
        ### BEGIN SOLUTION
        a, b, c, d = lk.cuda.load4(x, i)
        lk.cuda.store4(dst, i, (factor * a, factor * b, factor * c, factor * d))
        ### END SOLUTION
    else:
        for j in range(i, min(N, i + 4)):
            dst[j] = factor * x[j]


def launch(dst, x, factor=128**-0.5):
    aligned = (x.data_ptr() | dst.data_ptr()) % 16 == 0
    blocks = (x.shape[0] + THREADS * 4 - 1) // (THREADS * 4)
    scale_vectorized[blocks, THREADS](dst, x, aligned, np.float32(factor))
