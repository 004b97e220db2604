"""matvec/block_transpose: y[m] = sum over k of W[m, k] * x[k], W float16, all else float32; 32 rows per block.

Against warp_per_row: 32 warps stand in one block. Each leaves the sum of its row in shared memory; then lane n of the
first warp picks up that of warp n, and the warp stores 32 neighbors in one request of 128 bytes.
Watch: store requests, and sectors of 32 bytes that are written for 4.
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
def matvec_block_transpose(y, W, x):
    sums = cuda.shared.array(32, float32)
    M, K = W.shape
    lane = cuda.threadIdx.x % 32
    warp = cuda.threadIdx.x // 32
    row = cuda.blockIdx.x * 32 + warp
    ### BEGIN SOLUTION
    total = float32(0)
    if row < M:
        for k in range(lane, K, 32):
            total += float32(W[row, k]) * x[k]
    total = warp_sum(total)
    if lane == 0:
        sums[warp] = total
    cuda.syncthreads()  # all 32 sums are there before the first warp reads them
    mine = cuda.blockIdx.x * 32 + lane
    if warp == 0 and mine < M:
        y[mine] = sums[lane]
    ### END SOLUTION


def launch(y, W, x):
    blocks = (y.shape[0] + 31) // 32
    matvec_block_transpose[blocks, 1024](y, W, x)
