"""softmax/three_pass: y[r, c] = exp(x[r, c] - max) / sum in float32, one block per row.

The first rung, as the formula reads: a pass over the row for the largest number, one for the sum, one to write.
The largest is subtracted so that no exponential overflows. -inf gives 0.
Watch: global load sectors; the row is read three times.
"""

import math

import numpy as np
from numba import cuda, float32

THREADS = 256
WARPS = THREADS // 32
NOTHING = np.float32(-np.inf)  # what the largest of no numbers is


@cuda.jit(device=True)
def block_max(value, slots):
    """The largest value of the block, in every thread. `slots`: shared, one for each warp."""
    t = cuda.threadIdx.x
    for d in (16, 8, 4, 2, 1):
        value = max(value, cuda.shfl_xor_sync(0xFFFFFFFF, value, d))
    if t % 32 == 0:
        slots[t // 32] = value
    cuda.syncthreads()  # all warps' results are there
    value = slots[t % WARPS]
    for d in (4, 2, 1):
        value = max(value, cuda.shfl_xor_sync(0xFFFFFFFF, value, d))
    return value


@cuda.jit(device=True)
def block_sum(value, slots):
    """The sum over the block, in every thread. `slots`: shared, one for each warp."""
    t = cuda.threadIdx.x
    for d in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(0xFFFFFFFF, value, d)
    if t % 32 == 0:
        slots[t // 32] = value
    cuda.syncthreads()  # all warps' results are there
    value = slots[t % WARPS]
    for d in (4, 2, 1):
        value += cuda.shfl_xor_sync(0xFFFFFFFF, value, d)
    return value


@cuda.jit
def softmax_three_pass(y, x):
    cols = x.shape[1]
    of_max = cuda.shared.array(WARPS, float32)  # not one array for both: nothing orders the second's
    of_sum = cuda.shared.array(WARPS, float32)  # stores after the first's loads
    row = cuda.blockIdx.x
    t = cuda.threadIdx.x
    ### BEGIN SOLUTION
    # Thread t owns the columns t, t + THREADS ... in every pass.
    largest = NOTHING
    for c in range(t, cols, THREADS):
        largest = max(largest, x[row, c])
    largest = block_max(largest, of_max)
    total = float32(0)
    for c in range(t, cols, THREADS):
        total += math.exp(x[row, c] - largest)
    total = block_sum(total, of_sum)
    for c in range(t, cols, THREADS):
        y[row, c] = math.exp(x[row, c] - largest) / total
    ### END SOLUTION


def launch(y, x):
    softmax_three_pass[x.shape[0], THREADS](y, x)
