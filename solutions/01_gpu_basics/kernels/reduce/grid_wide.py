"""reduce/grid_wide: y[0] = sum of x[N] in float32, in one launch of the kernel.

Against vectorized: no second launch. Each block leaves its sum, then takes a ticket; the one that gets the last ticket
knows that all sums are there, and adds them. Which block that is differs from run to run, the order of its additions
does not: the result depends on N and x alone. (An atomic addition per block would be shorter, and not repeatable.)
Watch: launches, and the time of a short x, which is mostly launching.
"""

import torch
from numba import cuda, float32, int32

import labkit as lk

BLOCK = 256
WARPS = BLOCK // 32
PIECES = 4  # of 4 numbers, asked for at once
BLOCKS = 1056
EACH = 4 * PIECES * BLOCK  # numbers that a block takes per turn


@cuda.jit(device=True)
def block_sum(value, sums):
    """The sum over the threads of the block, in thread 0. `sums`: shared, a number for each warp."""
    t = cuda.threadIdx.x
    d = 16
    while d > 0:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, d)
        d //= 2
    if t % 32 == 0:
        sums[t // 32] = value
    cuda.syncthreads()  # warp 0 reads what the others wrote
    if t < 32:
        value = sums[t] if t < WARPS else float32(0)
        d = WARPS // 2
        while d > 0:
            value += cuda.shfl_down_sync(0xFFFFFFFF, value, d)
            d //= 2
    return value


@cuda.jit
def reduce_grid_wide(y, x, partial, tickets, aligned):
    N = x.shape[0]
    sums = cuda.shared.array(WARPS, float32)
    last = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    blocks = cuda.gridDim.x
    value = float32(0)
    whole = N // EACH * EACH if aligned else 0
    ### BEGIN SOLUTION
    # Whole turns in pieces of 16 bytes: thread t owns the pieces t, t + BLOCK ... of its block's turn.
    for i in range(cuda.blockIdx.x * EACH + 4 * t, whole, blocks * EACH):
        a = lk.cuda.load4(x, i)
        b = lk.cuda.load4(x, i + 4 * BLOCK)
        c = lk.cuda.load4(x, i + 8 * BLOCK)
        d = lk.cuda.load4(x, i + 12 * BLOCK)
        value += (a[0] + a[1] + a[2] + a[3]) + (b[0] + b[1] + b[2] + b[3])
        value += (c[0] + c[1] + c[2] + c[3]) + (d[0] + d[1] + d[2] + d[3])
    ### END SOLUTION
    for i in range(whole + cuda.blockIdx.x * BLOCK + t, N, blocks * BLOCK):
        value += x[i]
    value = block_sum(value, sums)
    ### BEGIN SOLUTION
    if t == 0:
        partial[cuda.blockIdx.x] = value
        cuda.threadfence()  # the sum is seen by all before the ticket is
        last[0] = cuda.atomic.add(tickets, 0, 1) == blocks - 1
    cuda.syncthreads()  # all threads know; and nobody uses `sums` any more
    if last[0]:
        cuda.threadfence()  # what follows sees what came before the other tickets
        value = float32(0)
        for i in range(t, blocks, BLOCK):
            value += partial[i]
        value = block_sum(value, sums)
        if t == 0:
            y[0] = value
    ### END SOLUTION


def launch(y, x):
    blocks = min(BLOCKS, (x.numel() + EACH - 1) // EACH)
    partial = y.new_empty(blocks)
    tickets = y.new_zeros(1, dtype=torch.int32)
    reduce_grid_wide[blocks, BLOCK](y, x, partial, tickets, x.data_ptr() % 16 == 0)
