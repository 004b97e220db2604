# family: race that passes sometimes
# target: reduce/sequential
# tries:  leaves out the barrier; in most orders of the warps nothing happens.
# naive:  plain
# gains:  marks
# shape:  N=256
# ours:   fail race|before|without|barrier

from numba import cuda, float32

BLOCK = 256


@cuda.jit
def add_up(partial, x):
    sums = cuda.shared.array(BLOCK, float32)
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x * BLOCK + t
    sums[t] = x[i] if i < x.shape[0] else float32(0)
    if t == BLOCK - 1:  # the last warp, which mostly comes last
        total = float32(0)
        for k in range(BLOCK):
            total += sums[k]
        partial[cuda.blockIdx.x] = total


def launch(y, x):
    blocks = (x.shape[0] + BLOCK - 1) // BLOCK
    while blocks > 1:
        partial = y.new_empty(blocks)
        add_up[blocks, BLOCK](partial, x)
        x, blocks = partial, (blocks + BLOCK - 1) // BLOCK
    add_up[1, BLOCK](y, x)
