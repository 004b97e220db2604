"""recompute/recompute: y = s(s(s(x))) and dx = dy * dy/dx in float32, s(t) = 1 / (1 + exp(-t)); nothing stored.

Against store: forward writes y only. Backward starts from x and computes the activations again, in registers.
Watch: global load and store requests; instructions.
"""

import math

from numba import cuda, float32

ONE = float32(1)


@cuda.jit(device=True)
def sigmoid(t):
    return ONE / (ONE + math.exp(-t))


@cuda.jit
def recompute_forward(y, x):
    i = cuda.grid(1)
    if i < y.shape[0]:
        y[i] = sigmoid(sigmoid(sigmoid(x[i])))


@cuda.jit
def recompute_backward(dx, dy, x):
    i = cuda.grid(1)
    ### BEGIN SOLUTION
    if i < dx.shape[0]:
        a = sigmoid(x[i])
        b = sigmoid(a)
        c = sigmoid(b)
        dx[i] = dy[i] * c * (ONE - c) * b * (ONE - b) * a * (ONE - a)
    ### END SOLUTION


def launch(out, x, dy):
    y, dx = out
    grid, block = (y.shape[0] + 255) // 256, 256
    recompute_forward[grid, block](y, x)
    recompute_backward[grid, block](dx, dy, x)
