"""recompute/vectorized: y = s(s(s(x))) and dx = dy * dy/dx in float32, s(t) = 1 / (1 + exp(-t)); four per thread.

Against recompute: 16-byte accesses, and a division and an exponential that round a little worse and take far fewer
instructions. Three sigmoids per number are affordable only if they are cheap.
Watch: instructions per number; requests.
"""

from numba import cuda, float32

import labkit as lk

ONE = float32(1)


@cuda.jit(device=True)
def sigmoid(t):
    return cuda.libdevice.fast_fdividef(ONE, ONE + cuda.libdevice.fast_expf(-t))


@cuda.jit(device=True)
def chain(x):
    return sigmoid(sigmoid(sigmoid(x)))


@cuda.jit(device=True)
def slope(dy, x):
    a = sigmoid(x)
    b = sigmoid(a)
    c = sigmoid(b)
    return dy * c * (ONE - c) * b * (ONE - b) * a * (ONE - a)


@cuda.jit
def recompute_forward4(y, x):
    N = y.shape[0]
    i = 4 * cuda.grid(1)
    if i + 3 < N:
        a, b, c, d = lk.cuda.load4(x, i)
        lk.cuda.store4(y, i, (chain(a), chain(b), chain(c), chain(d)))
    else:
        for j in range(i, N):  # the last thread's numbers, fewer than four
            y[j] = chain(x[j])


@cuda.jit
def recompute_backward4(dx, dy, x):
    N = dx.shape[0]
    i = 4 * cuda.grid(1)
    ### BEGIN SOLUTION
    if i + 3 < N:
        g = lk.cuda.load4(dy, i)
        a = lk.cuda.load4(x, i)
        lk.cuda.store4(dx, i, (slope(g[0], a[0]), slope(g[1], a[1]), slope(g[2], a[2]), slope(g[3], a[3])))
    else:
        for j in range(i, N):
            dx[j] = slope(dy[j], x[j])
    ### END SOLUTION


def launch(out, x, dy):
    y, dx = out
    grid, block = (y.shape[0] + 1023) // 1024, 256
    recompute_forward4[grid, block](y, x)
    recompute_backward4[grid, block](dx, dy, x)
