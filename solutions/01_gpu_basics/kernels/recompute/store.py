"""recompute/store: y = s(s(s(x))) and dx = dy * dy/dx in float32, s(t) = 1 / (1 + exp(-t)); one kernel each way.

Against operators: each way is fused. Forward stores the activations s1 and s2, backward loads them. It needs y too, and
computes it from s2, which is cheaper than a fourth load.
Watch: global load and store requests.
"""

import math

from numba import cuda, float32

ONE = float32(1)


@cuda.jit(device=True)
def sigmoid(t):
    return ONE / (ONE + math.exp(-t))


@cuda.jit
def recompute_store_forward(y, s1, s2, x):
    i = cuda.grid(1)
    if i < y.shape[0]:
        a = sigmoid(x[i])
        b = sigmoid(a)
        s1[i] = a
        s2[i] = b
        y[i] = sigmoid(b)


@cuda.jit
def recompute_store_backward(dx, dy, s1, s2):
    i = cuda.grid(1)
    ### BEGIN SOLUTION
    if i < dx.shape[0]:
        a = s1[i]
        b = s2[i]
        c = sigmoid(b)
        dx[i] = dy[i] * c * (ONE - c) * b * (ONE - b) * a * (ONE - a)
    ### END SOLUTION


def launch(out, x, dy):
    y, dx = out
    grid, block = (y.shape[0] + 255) // 256, 256
    s1, s2 = y.new_empty(y.shape), y.new_empty(y.shape)
    recompute_store_forward[grid, block](y, s1, s2, x)
    recompute_store_backward[grid, block](dx, dy, s1, s2)
