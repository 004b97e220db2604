"""rmsnorm/two_kernels: y[r, c] = x[r, c] / sqrt(mean of x[r]^2 + eps) * w[c] in float32, as llama.cpp does it.

The first rung, two operators of a graph, two kernels: a warp per row normalizes, into a tensor between; a thread per
number multiplies by the weight of its column.
Watch: global load and store sectors, and what moves through DRAM; the intermediate result is written and read.
"""

import math

from numba import cuda, float32

THREADS = 256  # of a block of the second kernel


@cuda.jit
def rmsnorm_two_kernels_norm(norm, x, eps):
    cols = x.shape[1]
    row = cuda.blockIdx.x
    lane = cuda.threadIdx.x
    ### BEGIN SOLUTION
    # The warp owns a row, lane n its columns n, n + 32 ...
    squares = float32(0)
    for c in range(lane, cols, 32):
        squares += x[row, c] * x[row, c]
    for d in (16, 8, 4, 2, 1):
        squares += cuda.shfl_xor_sync(0xFFFFFFFF, squares, d)  # the sum, in every lane
    scale = float32(1) / math.sqrt(squares / float32(cols) + float32(eps))
    for c in range(lane, cols, 32):
        norm[row, c] = x[row, c] * scale
    ### END SOLUTION


@cuda.jit
def rmsnorm_two_kernels_mul(y, norm, w):
    i = cuda.grid(1)
    if i < y.shape[0]:
        y[i] = norm[i] * w[i % w.shape[0]]


def launch(y, x, w, eps=1e-5):
    rows, cols = x.shape
    norm = y.new_empty((rows, cols))
    rmsnorm_two_kernels_norm[rows, 32](norm, x, eps)
    rmsnorm_two_kernels_mul[(rows * cols + THREADS - 1) // THREADS, THREADS](y.reshape(-1), norm.reshape(-1), w)
