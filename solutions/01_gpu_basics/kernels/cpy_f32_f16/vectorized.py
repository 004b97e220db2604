"""cpy_f32_f16/vectorized: dst[h, t, d] = half(x[t, h, d]), a thread for 8 neighbors of 4 tokens.

Against plain: 8 numbers are read in two pieces of 16 bytes and written in one; those of 4 tokens are in flight at
once; and the divisions serve 32 numbers.
Watch: load and store requests.
"""

from numba import cuda, float32

import labkit as lk

THREADS = 256
TOKENS = 4


@cuda.jit
def cpy_vectorized(dst, x, T, H, D, aligned):
    eights = (D + 7) // 8
    i = cuda.blockIdx.x * THREADS + cuda.threadIdx.x  # counts eights along a row, then heads, then groups of tokens
    d = i % eights * 8
    h = i // eights % H
    t = i // eights // H * TOKENS
    if t >= T:
        return
    tokens = min(TOKENS, T - t)
    if aligned:
        ### BEGIN SOLUTION
        v = cuda.local.array((TOKENS, 8), float32)
        for k in range(TOKENS):  # all loads first: none waits for another
            if k < tokens:
                at = ((t + k) * H + h) * D + d
                a = lk.cuda.load4(x, at)
                b = lk.cuda.load4(x, at + 4)
                for j in range(4):
                    v[k, j] = a[j]
                    v[k, 4 + j] = b[j]
        for k in range(TOKENS):
            if k < tokens:
                eight = (v[k, 0], v[k, 1], v[k, 2], v[k, 3], v[k, 4], v[k, 5], v[k, 6], v[k, 7])
                lk.cuda.store8(dst, (h * T + t + k) * D + d, eight)
        ### END SOLUTION
    else:
        for k in range(tokens):
            for j in range(d, min(D, d + 8)):
                dst[(h * T + t + k) * D + j] = x[((t + k) * H + h) * D + j]


def launch(dst, x):
    T, H, D = x.shape
    aligned = D % 8 == 0 and (x.data_ptr() | dst.data_ptr()) % 16 == 0  # so does every eight then
    work = (T + TOKENS - 1) // TOKENS * H * ((D + 7) // 8)
    cpy_vectorized[(work + THREADS - 1) // THREADS, THREADS](dst.reshape(-1), x.reshape(-1), T, H, D, aligned)
