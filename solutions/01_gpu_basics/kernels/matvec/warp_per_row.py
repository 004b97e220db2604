"""matvec/warp_per_row: y[m] = sum over k of W[m, k] * x[k], W float16, all else float32; a block of one warp per row.

Against thread_per_row: the 32 lanes share a row and read neighbors in it. Each has a part of the sum in the end, and
shuffles add them up: five steps, each halving the distance.
Watch: sectors per load request; warps per multiprocessor.
"""

from numba import cuda, float32


@cuda.jit(device=True)
def warp_sum(v):
    """The sum over all lanes, in lane 0."""
    far = 16
    while far > 0:
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, far)
        far //= 2
    return v


@cuda.jit
def matvec_warp_per_row(y, W, x):
    K = W.shape[1]
    row = cuda.blockIdx.x
    lane = cuda.threadIdx.x
    ### BEGIN SOLUTION
    total = float32(0)
    for k in range(lane, K, 32):
        total += float32(W[row, k]) * x[k]
    total = warp_sum(total)
    if lane == 0:
        y[row] = total
    ### END SOLUTION


def launch(y, W, x):
    matvec_warp_per_row[y.shape[0], 32](y, W, x)
