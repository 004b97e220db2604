"""reduce/interleaved: y[0] = sum of x[N] in float32, one number per thread, a tree in shared memory.

The first rung: a block adds up 256 numbers; the kernel is launched again on the blocks' sums until one is left. In the
step s = 1, 2, 4 ... every (2 s)-th thread adds what lies s further on, so the adding threads thin out. The order
of the additions depends on N alone: the same x gives the same bits in every run.
Watch: divergent branches; in every step but the last ones, each warp has lanes that add and lanes that do not.
"""

from numba import cuda, float32

BLOCK = 256


@cuda.jit
def reduce_interleaved(partial, x):
    N = x.shape[0]
    sums = cuda.shared.array(BLOCK, float32)
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x * BLOCK + t
    sums[t] = x[i] if i < N else float32(0)
    cuda.syncthreads()  # nobody adds before all numbers are there
    ### BEGIN SOLUTION
    s = 1
    while s < BLOCK:
        # Thread t owns sums[t], which stands for the 2 s numbers from there on after this step.
        if t % (2 * s) == 0:
            sums[t] += sums[t + s]
        cuda.syncthreads()  # the next step reads what this one wrote
        s *= 2
    ### END SOLUTION
    if t == 0:
        partial[cuda.blockIdx.x] = sums[0]


def launch(y, x):
    blocks = (x.numel() + BLOCK - 1) // BLOCK
    while blocks > 1:
        partial = y.new_empty(blocks)
        reduce_interleaved[blocks, BLOCK](partial, x)
        x, blocks = partial, (blocks + BLOCK - 1) // BLOCK
    reduce_interleaved[1, BLOCK](y, x)
