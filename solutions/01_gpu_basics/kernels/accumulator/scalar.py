"""accumulator/scalar: y[r] = sum over k of x[r, k]; x in float16, y and every sum in float32. A warp per row.

The first rung. A lane adds every 32nd number of its row; then the warp adds up its 32 sums by shuffles.
Watch: sectors per request; one request fetches 64 bytes.
"""

from numba import cuda, float32

WARPS = 8


@cuda.jit
def accumulator_scalar(y, x):
    R, K = x.shape
    lane = cuda.threadIdx.x
    r = cuda.blockIdx.x * WARPS + cuda.threadIdx.y
    if r < R:  # the same for all lanes of a warp
        total = float32(0)
        ### BEGIN SOLUTION
        for k in range(lane, K, 32):
            total += float32(x[r, k])
        ### END SOLUTION
        for distance in (16, 8, 4, 2, 1):
            total += cuda.shfl_down_sync(0xFFFFFFFF, total, distance)
        if lane == 0:
            y[r] = total


def launch(y, x):
    accumulator_scalar[(y.shape[0] + WARPS - 1) // WARPS, (32, WARPS)](y, x)
