"""reduce/strided: y[0] = sum of x[N] in float32, one number per thread, a tree in shared memory.

Against interleaved: the same additions, given to other threads. In the step s, the first 128 / s threads add, side
by side, so that whole warps work and whole warps rest; thread t takes the pair that begins at 2 s t.
Watch: divergent branches fall; the words that a warp reads at once now lie 2 s apart, and bank conflicts appear.
"""

from numba import cuda, float32

BLOCK = 256


@cuda.jit
def reduce_strided(partial, x):
    N = x.shape[0]
    sums = cuda.shared.array(BLOCK, float32)
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x * BLOCK + t
    sums[t] = x[i] if i < N else float32(0)
    cuda.syncthreads()  # nobody adds before all numbers are there
    ### BEGIN SOLUTION
    s = 1
    while s < BLOCK:
        # Thread t owns the t-th pair of this step.
        j = 2 * s * t
        if j < BLOCK:
            sums[j] += sums[j + s]
        cuda.syncthreads()  # the next step reads what this one wrote
        s *= 2
    ### END SOLUTION
    if t == 0:
        partial[cuda.blockIdx.x] = sums[0]


def launch(y, x):
    blocks = (x.numel() + BLOCK - 1) // BLOCK
    while blocks > 1:
        partial = y.new_empty(blocks)
        reduce_strided[blocks, BLOCK](partial, x)
        x, blocks = partial, (blocks + BLOCK - 1) // BLOCK
    reduce_strided[1, BLOCK](y, x)
