"""fusion/vectorized: y[i] = sin(x[i])^2 + cos(x[i])^2 in float32, four numbers per thread.

Against fused: one 16-byte load and store for four numbers, and sine and cosine together by one function, so that the
reduction of the angle, most of the work, is done once.
Watch: requests, a quarter as many; instructions per number.
"""

from numba import cuda

import labkit as lk


@cuda.jit(device=True)
def circle(angle):
    s, c = cuda.libdevice.sincosf(angle)
    return s * s + c * c


@cuda.jit
def fusion_vectorized(y, x):
    N = y.shape[0]
    i = 4 * cuda.grid(1)
    ### BEGIN SOLUTION
    if i + 3 < N:
        a, b, c, d = lk.cuda.load4(x, i)
        lk.cuda.store4(y, i, (circle(a), circle(b), circle(c), circle(d)))
    else:
        for j in range(i, N):  # the last thread's numbers, fewer than four
            y[j] = circle(x[j])
    ### END SOLUTION


def launch(y, x):
    fusion_vectorized[(y.shape[0] + 1023) // 1024, 256](y, x)
