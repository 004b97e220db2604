"""y[r] = sum over c of A[r, c] * x[c]; A: rows x columns, float32. One warp per row."""

from numba import cuda, float32

WARPS = 8  # per block


@cuda.jit
def matvec(y, A, x):
    lane = cuda.threadIdx.x % 32
    row = cuda.blockIdx.x * WARPS + cuda.threadIdx.x // 32
    if row >= A.shape[0]:
        return
    total = float32(0)
    for c in range(lane, A.shape[1], 32):  # neighboring lanes, neighboring columns
        total += A[row, c] * x[c]
    for d in (16, 8, 4, 2, 1):
        total += cuda.shfl_down_sync(0xFFFFFFFF, total, d)
    if lane == 0:  # it alone has the sum
        y[row] = total


def launch(y, A, x):
    matvec[(A.shape[0] + WARPS - 1) // WARPS, 32 * WARPS](y, A, x)
