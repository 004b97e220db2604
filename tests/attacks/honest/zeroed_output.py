# family: a different but correct algorithm
# target: reduce/sequential
# tries:  clears the output with PyTorch, and adds the blocks' sums to it atomically.
# ours:   pass

from numba import cuda, float32

BLOCK = 128


@cuda.jit
def add_up(y, x):
    sums = cuda.shared.array(BLOCK, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    sums[t] = x[i] if i < x.shape[0] else float32(0)
    cuda.syncthreads()
    s = BLOCK // 2
    while s > 0:
        if t < s:
            sums[t] += sums[t + s]
        cuda.syncthreads()
        s //= 2
    if t == 0:
        cuda.atomic.add(y, 0, sums[0])


def launch(y, x):
    y.zero_()
    add_up[(x.shape[0] + BLOCK - 1) // BLOCK, BLOCK](y, x)
