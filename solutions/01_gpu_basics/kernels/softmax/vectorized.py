"""softmax/vectorized: y[r, c] = exp(x[r, c] - max) / sum in float32, each row read once.

Against online: a thread keeps its numbers of the row in registers, 4 pieces of 4, from the first use to the last.
The block grows with the row, to 1024 threads; of short rows it takes several, a group of warps for each.
A row that is too long for the registers takes several turns, and all but the last are read twice.
Watch: global load sectors and requests fall.

x and y come as flat arrays, for numba has no 16-byte access: lk.cuda.load4 and store4 are one each.
"""

import math

import numpy as np
from numba import cuda, float32

import labkit as lk

PIECES = 4  # of 4 numbers, kept by a thread
KEPT = 4 * PIECES
LOWEST = np.float32(-3.4028234663852886e38)  # and not -inf: exp(-inf - -inf) is NaN
NONE = np.float32(-np.inf)  # in place of numbers past the end of a row: its exponential adds nothing


@cuda.jit(device=True)
def load_row4(array, at, left, aligned):
    """4 numbers from `at` on, of which the first `left` exist; in one piece where `at` is aligned."""
    if aligned and left >= 4:
        return lk.cuda.load4(array, at)
    return (
        array[at] if left > 0 else NONE,
        array[at + 1] if left > 1 else NONE,
        array[at + 2] if left > 2 else NONE,
        array[at + 3] if left > 3 else NONE,
    )


@cuda.jit(device=True)
def store_row4(array, at, values, left, aligned):
    if aligned and left >= 4:
        lk.cuda.store4(array, at, values)
    else:
        if left > 0:
            array[at] = values[0]
        if left > 1:
            array[at + 1] = values[1]
        if left > 2:
            array[at + 2] = values[2]
        if left > 3:
            array[at + 3] = values[3]


@cuda.jit(device=True)
def row_max(value, slots):
    """The largest value of a row's threads (threadIdx.y is the row), in each of them. `slots`: shared, one per warp."""
    lane = cuda.threadIdx.x % 32
    warps = cuda.blockDim.x // 32
    for d in (16, 8, 4, 2, 1):
        value = max(value, cuda.shfl_xor_sync(0xFFFFFFFF, value, d))
    if lane == 0:
        slots[cuda.threadIdx.y * warps + cuda.threadIdx.x // 32] = value
    cuda.syncthreads()  # all warps' results are there
    value = slots[cuda.threadIdx.y * warps + lane] if lane < warps else LOWEST
    for d in (16, 8, 4, 2, 1):
        value = max(value, cuda.shfl_xor_sync(0xFFFFFFFF, value, d))
    return value


@cuda.jit(device=True)
def row_sum(value, slots):
    """The sum over a row's threads, in each of them. `slots`: shared, one per warp."""
    lane = cuda.threadIdx.x % 32
    warps = cuda.blockDim.x // 32
    for d in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(0xFFFFFFFF, value, d)
    if lane == 0:
        slots[cuda.threadIdx.y * warps + cuda.threadIdx.x // 32] = value
    cuda.syncthreads()  # all warps' results are there
    value = slots[cuda.threadIdx.y * warps + lane] if lane < warps else float32(0)
    for d in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(0xFFFFFFFF, value, d)
    return value


@cuda.jit
def softmax_vectorized(y, x, rows, cols, aligned):
    of_max = cuda.shared.array(32, float32)
    of_sum = cuda.shared.array(32, float32)
    row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    own = cols if row < rows else 0  # numbers in this row; the last block may have rows too many, which wait along
    first = 4 * cuda.threadIdx.x
    stride = 4 * cuda.blockDim.x  # between this thread's pieces of the row
    turn = PIECES * stride
    turns = (cols + turn - 1) // turn
    v = cuda.local.array(KEPT, float32)  # this thread's numbers of a turn
    m = LOWEST
    s = float32(0)
    ### BEGIN SOLUTION
    for n in range(turns):  # a pair of largest and sum per thread, as in online
        before = m
        for k in range(PIECES):
            c = n * turn + first + k * stride
            p = load_row4(x, row * cols + c, own - c, aligned)
            for i in range(4):
                v[4 * k + i] = p[i]
                m = max(m, p[i])
        s *= math.exp(before - m)
        for k in range(KEPT):
            s += math.exp(v[k] - m)
    largest = row_max(m, of_max)
    factor = float32(1) / row_sum(s * math.exp(m - largest), of_sum)
    n = turns
    while n > 0:  # backwards: the last turn is in registers still, the one before in caches
        n -= 1
        for k in range(PIECES):
            c = n * turn + first + k * stride
            if n < turns - 1:
                p = load_row4(x, row * cols + c, own - c, aligned)
                for i in range(4):
                    v[4 * k + i] = p[i]
            p = (
                math.exp(v[4 * k] - largest) * factor,
                math.exp(v[4 * k + 1] - largest) * factor,
                math.exp(v[4 * k + 2] - largest) * factor,
                math.exp(v[4 * k + 3] - largest) * factor,
            )
            store_row4(y, row * cols + c, p, own - c, aligned)
    ### END SOLUTION


def launch(y, x):
    rows, cols = x.shape
    threads = min(1024, (cols + 511) // 512 * 32)  # per row: one for 16 numbers, in whole warps
    together = max(1, 256 // threads)  # rows of a block
    aligned = cols % 4 == 0 and x.data_ptr() % 16 == 0 and y.data_ptr() % 16 == 0
    grid = (rows + together - 1) // together
    softmax_vectorized[grid, (threads, together)](y.reshape(-1), x.reshape(-1), rows, cols, aligned)
