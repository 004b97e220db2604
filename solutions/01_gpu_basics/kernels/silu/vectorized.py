"""silu/vectorized: dst[i] = x[i] / (1 + exp(-x[i])) in float32, 16 numbers per thread.

Against plain: 16 bytes per access, and four of them on the way at once before the first is used. A block owns 4096
numbers in a row; its threads read neighbouring pieces of 16 bytes. What is left at the end, and tensors that do not
start on 16 bytes, go one number at a time.
Watch: load requests, a quarter; bytes on the way per thread, 64 against 4.
"""

import math

from numba import cuda, float32

import labkit as lk

THREADS = 256
PIECES = 4  # of 16 bytes, per thread
CHUNK = THREADS * PIECES * 4


@cuda.jit(device=True)
def silu(x):
    return x / (float32(1) + math.exp(-x))


@cuda.jit
def silu_vectorized(dst, x, aligned):
    N = x.shape[0]
    begin = cuda.blockIdx.x * CHUNK
    t = cuda.threadIdx.x
    if aligned and begin + CHUNK <= N:
        ### BEGIN SOLUTION
        v = cuda.local.array((PIECES, 4), float32)
        for p in range(PIECES):  # all loads first: none waits for another
            piece = lk.cuda.load4(x, begin + (p * THREADS + t) * 4)
            for i in range(4):
                v[p, i] = piece[i]
        for p in range(PIECES):
            at = begin + (p * THREADS + t) * 4
            lk.cuda.store4(dst, at, (silu(v[p, 0]), silu(v[p, 1]), silu(v[p, 2]), silu(v[p, 3])))
        ### END SOLUTION
    else:
        for i in range(begin + t, min(N, begin + CHUNK), THREADS):
            dst[i] = silu(x[i])


def launch(dst, x):
    aligned = (x.data_ptr() | dst.data_ptr()) % 16 == 0
    blocks = (x.shape[0] + CHUNK - 1) // CHUNK
    silu_vectorized[blocks, THREADS](dst, x, aligned)
