"""rmsnorm/vectorized: y[r, c] = x[r, c] / sqrt(mean of x[r]^2 + eps) * w[c] in float32, each row read once.

Against fused: a thread keeps its numbers of the row in registers, 4 pieces of 4, between the sum and the product.
The block grows with the row, to 1024 threads; of short rows it takes several, a group of warps for each.
A row that is too long for the registers takes several turns, and all but the last are read twice.
Watch: global load sectors and requests fall; bytes in flight rise.

x and y come as flat arrays, for numba has no 16-byte access: lk.cuda.load4 and store4 are one each.
"""

import math

from numba import cuda, float32

import labkit as lk

PIECES = 4  # of 4 numbers, kept by a thread
KEPT = 4 * PIECES


@cuda.jit(device=True)
def load_row4(array, at, left, aligned):
    """4 numbers from `at` on, of which the first `left` exist; in one piece where `at` is aligned."""
    if aligned and left >= 4:
        return lk.cuda.load4(array, at)
    return (
        array[at] if left > 0 else float32(0),
        array[at + 1] if left > 1 else float32(0),
        array[at + 2] if left > 2 else float32(0),
        array[at + 3] if left > 3 else float32(0),
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
def row_sum(value, slots):
    """The sum over a row's threads (threadIdx.y is the row), in each of them. `slots`: shared, one per warp."""
    lane = cuda.threadIdx.x % 32
    warps = cuda.blockDim.x // 32
    for d in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(0xFFFFFFFF, value, d)
    if lane == 0:
        slots[cuda.threadIdx.y * warps + cuda.threadIdx.x // 32] = value
    cuda.syncthreads()  # all warps' sums are there
    value = slots[cuda.threadIdx.y * warps + lane] if lane < warps else float32(0)
    for d in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(0xFFFFFFFF, value, d)
    return value


@cuda.jit(max_registers=64)  # a block of 1024 threads has no more
def rmsnorm_vectorized(y, x, w, rows, cols, eps, aligned):
    slots = cuda.shared.array(32, float32)
    row = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    own = cols if row < rows else 0  # numbers in this row; the last block may have rows too many, which wait along
    first = 4 * cuda.threadIdx.x
    stride = 4 * cuda.blockDim.x  # between this thread's pieces of the row
    turn = PIECES * stride
    turns = (cols + turn - 1) // turn
    v = cuda.local.array(KEPT, float32)  # this thread's numbers of a turn
    squares = float32(0)
    ### BEGIN SOLUTION
    for n in range(turns):
        for k in range(PIECES):
            c = n * turn + first + k * stride
            p = load_row4(x, row * cols + c, own - c, aligned)
            for i in range(4):
                v[4 * k + i] = p[i]
                squares += p[i] * p[i]
    scale = float32(1) / math.sqrt(row_sum(squares, slots) / float32(cols) + float32(eps))
    n = turns
    while n > 0:  # backwards: the last turn is in registers still, the one before in caches
        n -= 1
        for k in range(PIECES):
            c = n * turn + first + k * stride
            if n < turns - 1:
                p = load_row4(x, row * cols + c, own - c, aligned)
                for i in range(4):
                    v[4 * k + i] = p[i]
            f = load_row4(w, c, own - c, aligned)
            p = (
                v[4 * k] * scale * f[0],
                v[4 * k + 1] * scale * f[1],
                v[4 * k + 2] * scale * f[2],
                v[4 * k + 3] * scale * f[3],
            )
            store_row4(y, row * cols + c, p, own - c, aligned)
    ### END SOLUTION


def launch(y, x, w, eps=1e-5):
    rows, cols = x.shape
    threads = min(1024, (cols + 511) // 512 * 32)  # per row: one for 16 numbers, in whole warps
    together = max(1, 256 // threads)  # rows of a block
    aligned = cols % 4 == 0 and all(a.data_ptr() % 16 == 0 for a in (x, y, w))
    grid = (rows + together - 1) // together
    rmsnorm_vectorized[grid, (threads, together)](y.reshape(-1), x.reshape(-1), w, rows, cols, eps, aligned)
