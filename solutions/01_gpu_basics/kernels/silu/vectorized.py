"""silu/vectorized: dst[i] = x[i] / (1 + exp(-x[i])) in float32, 4 numbers per thread.

Against plain: 16 bytes per access, so that each request brings more, and more is in flight at a time. Small blocks make
room for the next sooner. What is left at the end, and tensors that do not start on 16 bytes, go one number at a time.
Watch: load requests fall; bytes in flight per thread rise.
"""

import math

from numba import cuda, float32

import labkit as lk

THREADS = 128


@cuda.jit(device=True)
def silu(x):
    return x / (float32(1) + math.exp(-x))


@cuda.jit
def silu_vectorized(dst, x, aligned):
    N = x.shape[0]
    i = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) * 4
    if aligned and i + 4 <= N:
        ### BEGIN SOLUTION
        a, b, c, d = lk.cuda.load4(x, i)
        lk.cuda.store4(dst, i, (silu(a), silu(b), silu(c), silu(d)))
        ### END SOLUTION
    else:
        for j in range(i, min(N, i + 4)):
            dst[j] = silu(x[j])


def launch(dst, x):
    aligned = (x.data_ptr() | dst.data_ptr()) % 16 == 0
    blocks = (x.shape[0] + THREADS * 4 - 1) // (THREADS * 4)
    silu_vectorized[blocks, THREADS](dst, x, aligned)
