"""rope/plain: every pair (x[t, h, p, 0], x[t, h, p, 1]) turned by (n_past + t) * base^(-p / P); float32, one thread per
pair.

The first rung, and llama.cpp's own: a block of 512 threads for each row of P pairs, a head of a token. Heads have 64
pairs, so that most of the threads return at once; and every head computes the angles of its token anew.
Watch: instructions per pair; lanes at work.
"""

import math

import numpy as np
from numba import cuda, float32

THREADS = 512


@cuda.jit
def rope_plain(dst, x, H, n_past, base):
    P = x.shape[1]
    ### BEGIN SOLUTION
    row = cuda.blockIdx.x  # t * H + h
    p = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
    if p < P:
        theta = float32(n_past + row // H) * base ** (-float32(p) / float32(P))
        sine = math.sin(theta)
        cosine = math.cos(theta)
        a = x[row, p, 0]
        b = x[row, p, 1]
        dst[row, p, 0] = a * cosine - b * sine
        dst[row, p, 1] = a * sine + b * cosine
    ### END SOLUTION


def launch(dst, x, n_past=0, base=10000.0):
    T, H, P, _ = x.shape
    rows = (T * H, P, 2)
    grid = (T * H, (P + THREADS - 1) // THREADS)
    rope_plain[grid, THREADS](dst.reshape(rows), x.reshape(rows), H, n_past, np.float32(base))
