"""rope/vectorized: every pair (x[t, h, p, 0], x[t, h, p, 1]) turned by (n_past + t) * base^(-p / P); float32, a thread
for 2 pairs of 4 heads.

Against plain: 16 bytes per access, 4 heads in flight at once, and blocks full of threads with work. The angle is the
same for all heads of a token: one sine and one cosine serve 4 of them.
Watch: instructions per pair; load requests.
"""

import math

import numpy as np
from numba import cuda, float32

import labkit as lk

THREADS = 256
HEADS = 4


@cuda.jit
def rope_vectorized(dst, x, T, H, P, n_past, base, aligned):
    twos = (P + 1) // 2
    groups = (H + HEADS - 1) // HEADS
    i = cuda.blockIdx.x * THREADS + cuda.threadIdx.x  # counts twos of pairs, then groups of heads, then tokens
    p = i % twos * 2
    h = i // twos % groups * HEADS
    t = i // twos // groups
    if t >= T:
        return
    two = p + 1 < P
    heads = min(HEADS, H - h)
    begin = 2 * ((t * H + h) * P + p)
    ### BEGIN SOLUTION
    first = float32(n_past + t) * base ** (-float32(p) / float32(P))
    second = float32(n_past + t) * base ** (-float32(p + 1) / float32(P))
    c0, s0, c1, s1 = math.cos(first), math.sin(first), math.cos(second), math.sin(second)
    v = cuda.local.array((HEADS, 4), float32)
    for k in range(HEADS):
        at = begin + k * P * 2
        if k < heads and aligned:
            piece = lk.cuda.load4(x, at)
            for j in range(4):
                v[k, j] = piece[j]
        elif k < heads:
            for j in range(4):
                v[k, j] = x[at + j] if j < 2 or two else float32(0)
    for k in range(HEADS):
        if k < heads:
            at = begin + k * P * 2
            a = v[k, 0] * c0 - v[k, 1] * s0
            b = v[k, 0] * s0 + v[k, 1] * c0
            c = v[k, 2] * c1 - v[k, 3] * s1
            d = v[k, 2] * s1 + v[k, 3] * c1
            if aligned:
                lk.cuda.store4(dst, at, (a, b, c, d))
            else:
                dst[at] = a
                dst[at + 1] = b
                if two:
                    dst[at + 2] = c
                    dst[at + 3] = d
    ### END SOLUTION


def launch(dst, x, n_past=0, base=10000.0):
    T, H, P, _ = x.shape
    aligned = P % 2 == 0 and (x.data_ptr() | dst.data_ptr()) % 16 == 0  # so does every two of pairs then
    work = T * ((H + HEADS - 1) // HEADS) * ((P + 1) // 2)
    args = (dst.reshape(-1), x.reshape(-1), T, H, P, n_past, np.float32(base), aligned)
    rope_vectorized[(work + THREADS - 1) // THREADS, THREADS](*args)
