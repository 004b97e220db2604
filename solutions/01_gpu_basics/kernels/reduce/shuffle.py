"""reduce/shuffle: y[0] = sum of x[N] in float32, one number per thread, added in registers.

Against sequential: the lanes of a warp read each other's registers (`shfl_down_sync`), without shared memory and
without barriers. Only the sums of the 8 warps meet in shared memory, and warp 0 adds them.
Watch: shared wavefronts and barriers fall; instructions do not, for all warps add in all lanes.
"""

from numba import cuda, float32

BLOCK = 256
WARPS = BLOCK // 32


@cuda.jit(device=True)
def warp_sum(value):
    """The sum over the lanes of the warp, in lane 0; the other lanes hold sums of less."""
    ### BEGIN SOLUTION
    d = 16
    while d > 0:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, d)
        d //= 2
    ### END SOLUTION
    return value


@cuda.jit
def reduce_shuffle(partial, x):
    N = x.shape[0]
    sums = cuda.shared.array(WARPS, float32)
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x * BLOCK + t
    value = x[i] if i < N else float32(0)
    ### BEGIN SOLUTION
    value = warp_sum(value)
    if t % 32 == 0:
        sums[t // 32] = value
    cuda.syncthreads()  # warp 0 reads what the others wrote
    if t < 32:  # all of warp 0: a shuffle needs its lanes together
        value = warp_sum(sums[t] if t < WARPS else float32(0))
    ### END SOLUTION
    if t == 0:
        partial[cuda.blockIdx.x] = value


def launch(y, x):
    blocks = (x.numel() + BLOCK - 1) // BLOCK
    while blocks > 1:
        partial = y.new_empty(blocks)
        reduce_shuffle[blocks, BLOCK](partial, x)
        x, blocks = partial, (blocks + BLOCK - 1) // BLOCK
    reduce_shuffle[1, BLOCK](y, x)
