"""softmax/long_rows: y[r, c] = exp(x[r, c] - max) / sum in float32, several blocks per row.

Against vectorized: a few long rows would keep only a few multiprocessors busy. Here a row is cut into chunks of 4096
numbers, one block each. Each leaves the pair (largest, sum relative to it) of its chunk; a second kernel merges the
pairs of the row, each block for itself, and writes its chunk.
Watch: multiprocessors in use; the row is read twice again, and a long one is not in the L2 any more by then.
"""

import math

import numpy as np
from numba import cuda, float32

import labkit as lk

THREADS = 256
WARPS = THREADS // 32
PIECES = 4  # of 4 numbers per thread
CHUNK = THREADS * 4 * PIECES
LOWEST = np.float32(-3.4028234663852886e38)  # and not -inf: exp(-inf - -inf) is NaN


@cuda.jit(device=True)
def merge(m, s, other_m, other_s):
    """The pair (largest, sum relative to it) of two sets of numbers, of the pairs of each."""
    largest = max(m, other_m)
    return largest, s * math.exp(m - largest) + other_s * math.exp(other_m - largest)


@cuda.jit(device=True)
def block_pair(m, s, of_m, of_s):
    """The pair of all threads of the block, in every one of them. `of_m`, `of_s`: shared, one for each warp."""
    t = cuda.threadIdx.x
    for d in (16, 8, 4, 2, 1):
        m, s = merge(m, s, cuda.shfl_xor_sync(0xFFFFFFFF, m, d), cuda.shfl_xor_sync(0xFFFFFFFF, s, d))
    if t % 32 == 0:
        of_m[t // 32] = m
        of_s[t // 32] = s
    cuda.syncthreads()  # all warps' pairs are there
    m = of_m[t % WARPS]
    s = of_s[t % WARPS]
    for d in (4, 2, 1):
        m, s = merge(m, s, cuda.shfl_xor_sync(0xFFFFFFFF, m, d), cuda.shfl_xor_sync(0xFFFFFFFF, s, d))
    return m, s


@cuda.jit
def softmax_long_rows_pairs(pairs, x, cols, chunks, aligned):
    of_m = cuda.shared.array(WARPS, float32)
    of_s = cuda.shared.array(WARPS, float32)
    t = cuda.threadIdx.x
    row = cuda.blockIdx.x // chunks
    begin = row * cols + cuda.blockIdx.x % chunks * CHUNK
    end = min(begin + CHUNK, (row + 1) * cols)
    m = LOWEST
    s = float32(0)
    ### BEGIN SOLUTION
    if aligned:
        for i in range(begin + 4 * t, end, 4 * THREADS):
            p = lk.cuda.load4(x, i)
            before = m
            m = max(m, max(max(p[0], p[1]), max(p[2], p[3])))
            s *= math.exp(before - m)
            s += math.exp(p[0] - m) + math.exp(p[1] - m) + math.exp(p[2] - m) + math.exp(p[3] - m)
    else:
        for i in range(begin + t, end, THREADS):
            m, s = merge(m, s, x[i], float32(1))
    m, s = block_pair(m, s, of_m, of_s)
    ### END SOLUTION
    if t == 0:
        pairs[cuda.blockIdx.x, 0] = m
        pairs[cuda.blockIdx.x, 1] = s


@cuda.jit
def softmax_long_rows(y, x, pairs, cols, chunks, aligned):
    of_m = cuda.shared.array(WARPS, float32)
    of_s = cuda.shared.array(WARPS, float32)
    t = cuda.threadIdx.x
    row = cuda.blockIdx.x // chunks
    begin = row * cols + cuda.blockIdx.x % chunks * CHUNK
    end = min(begin + CHUNK, (row + 1) * cols)
    m = LOWEST
    s = float32(0)
    ### BEGIN SOLUTION
    for k in range(row * chunks + t, (row + 1) * chunks, THREADS):
        m, s = merge(m, s, pairs[k, 0], pairs[k, 1])
    m, s = block_pair(m, s, of_m, of_s)
    ### END SOLUTION
    f = float32(1) / s
    if aligned:
        for i in range(begin + 4 * t, end, 4 * THREADS):
            p = lk.cuda.load4(x, i)
            piece = (math.exp(p[0] - m) * f, math.exp(p[1] - m) * f, math.exp(p[2] - m) * f, math.exp(p[3] - m) * f)
            lk.cuda.store4(y, i, piece)
    else:
        for i in range(begin + t, end, THREADS):
            y[i] = math.exp(x[i] - m) * f


def launch(y, x):
    rows, cols = x.shape
    chunks = (cols + CHUNK - 1) // CHUNK
    aligned = cols % 4 == 0 and x.data_ptr() % 16 == 0 and y.data_ptr() % 16 == 0
    pairs = y.new_empty((rows * chunks, 2))
    softmax_long_rows_pairs[rows * chunks, THREADS](pairs, x.reshape(-1), cols, chunks, aligned)
    softmax_long_rows[rows * chunks, THREADS](y.reshape(-1), x.reshape(-1), pairs, cols, chunks, aligned)
