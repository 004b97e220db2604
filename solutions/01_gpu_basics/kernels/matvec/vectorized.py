"""matvec/vectorized: y[m] = sum over k of W[m, k] * x[k], W float16, all else float32; two rows per warp, 16 per block.

Against block_transpose: a lane reads 8 weights at a time, 16 bytes, of two rows, and for both the same 8 numbers of x.
Smaller blocks wait less for their last warp. Four steps are in flight at once, and the launch bounds let the compiler
take the registers for that. Rows that do not start on 16 bytes go one number at a time.
Watch: load requests; bytes in flight per lane.
"""

from numba import cuda, float32

import labkit as lk

WARPS = 8
ROWS = 2  # per warp
THREADS = WARPS * 32
BLOCK_ROWS = WARPS * ROWS


@cuda.jit(device=True)
def warp_sum(v):
    """The sum over all lanes, in lane 0."""
    far = 16
    while far > 0:
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, far)
        far //= 2
    return v


@cuda.jit(device=True)
def dot8(w, a, b):
    """8 weights times 8 numbers of x."""
    low = w[0] * a[0] + w[1] * a[1] + w[2] * a[2] + w[3] * a[3]
    return low + w[4] * b[0] + w[5] * b[1] + w[6] * b[2] + w[7] * b[3]


@cuda.jit(launch_bounds=(THREADS, 1))
def matvec_vectorized(y, W, x, M, K, aligned):
    sums = cuda.shared.array(BLOCK_ROWS, float32)
    t = cuda.threadIdx.x
    lane = t % 32
    warp = t // 32
    row = (cuda.blockIdx.x * WARPS + warp) * ROWS  # the first of this warp's
    first = float32(0)
    second = float32(0)
    if aligned and row + ROWS <= M:
        ### BEGIN SOLUTION
        begin = row * K
        k = lane * 8
        while k + 768 < K:  # four steps at once: all loads of W first
            w = lk.cuda.load8(W, begin + k)
            w1 = lk.cuda.load8(W, begin + k + 256)
            w2 = lk.cuda.load8(W, begin + k + 512)
            w3 = lk.cuda.load8(W, begin + k + 768)
            u = lk.cuda.load8(W, begin + K + k)
            u1 = lk.cuda.load8(W, begin + K + k + 256)
            u2 = lk.cuda.load8(W, begin + K + k + 512)
            u3 = lk.cuda.load8(W, begin + K + k + 768)
            a, b = lk.cuda.load4(x, k), lk.cuda.load4(x, k + 4)
            first += dot8(w, a, b)
            second += dot8(u, a, b)
            a, b = lk.cuda.load4(x, k + 256), lk.cuda.load4(x, k + 260)
            first += dot8(w1, a, b)
            second += dot8(u1, a, b)
            a, b = lk.cuda.load4(x, k + 512), lk.cuda.load4(x, k + 516)
            first += dot8(w2, a, b)
            second += dot8(u2, a, b)
            a, b = lk.cuda.load4(x, k + 768), lk.cuda.load4(x, k + 772)
            first += dot8(w3, a, b)
            second += dot8(u3, a, b)
            k += 1024
        while k < K:
            w = lk.cuda.load8(W, begin + k)
            u = lk.cuda.load8(W, begin + K + k)
            a, b = lk.cuda.load4(x, k), lk.cuda.load4(x, k + 4)
            first += dot8(w, a, b)
            second += dot8(u, a, b)
            k += 256
        ### END SOLUTION
    else:
        for k in range(lane, K, 32):
            if row < M:
                first += float32(W[row * K + k]) * x[k]
            if row + 1 < M:
                second += float32(W[(row + 1) * K + k]) * x[k]
    first = warp_sum(first)
    second = warp_sum(second)
    if lane == 0:
        sums[warp * ROWS] = first
        sums[warp * ROWS + 1] = second
    cuda.syncthreads()  # all sums of the block are there before the first warp reads them
    mine = cuda.blockIdx.x * BLOCK_ROWS + t
    if t < BLOCK_ROWS and mine < M:
        y[mine] = sums[t]


def launch(y, W, x):
    M, K = W.shape
    aligned = K % 8 == 0 and (W.data_ptr() | x.data_ptr()) % 16 == 0
    blocks = (M + BLOCK_ROWS - 1) // BLOCK_ROWS
    matvec_vectorized[blocks, THREADS](y, W.reshape(-1), x, M, K, aligned)
