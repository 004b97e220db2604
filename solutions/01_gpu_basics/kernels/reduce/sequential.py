"""reduce/sequential: y[0] = sum of x[N] in float32, one number per thread, a tree in shared memory.

Against strided: other pairs. In the step s = 128, 64 ... 1, the second half of what is left is added to the first
half, so that neighboring threads read neighboring words.
Watch: bank conflicts are gone, and divergent branches stay few.
"""

from numba import cuda, float32

BLOCK = 256


@cuda.jit
def reduce_sequential(partial, x):
    N = x.shape[0]
    sums = cuda.shared.array(BLOCK, float32)
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x * BLOCK + t
    sums[t] = x[i] if i < N else float32(0)
    cuda.syncthreads()  # nobody adds before all numbers are there
    ### BEGIN SOLUTION
    s = BLOCK // 2
    while s > 0:
        # Thread t owns sums[t], and adds the number that lies half of the rest further on.
        if t < s:
            sums[t] += sums[t + s]
        cuda.syncthreads()  # the next step reads what this one wrote
        s //= 2
    ### END SOLUTION
    if t == 0:
        partial[cuda.blockIdx.x] = sums[0]


def launch(y, x):
    blocks = (x.numel() + BLOCK - 1) // BLOCK
    while blocks > 1:
        partial = y.new_empty(blocks)
        reduce_sequential[blocks, BLOCK](partial, x)
        x, blocks = partial, (blocks + BLOCK - 1) // BLOCK
    reduce_sequential[1, BLOCK](y, x)
