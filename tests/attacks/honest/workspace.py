# family: workspace
# target: reduce/sequential
# tries:  partial sums in a buffer that is kept from call to call, and grows when it must.
# ours:   pass

from numba import cuda, float32

BLOCK = 128
kept = {}


@cuda.jit
def add_up(partial, x, n):
    sums = cuda.shared.array(BLOCK, float32)
    t = cuda.threadIdx.x
    total = float32(0)
    for i in range(cuda.blockIdx.x * BLOCK + t, n, cuda.gridDim.x * BLOCK):
        total += x[i]
    sums[t] = total
    cuda.syncthreads()
    s = BLOCK // 2
    while s > 0:
        if t < s:
            sums[t] += sums[t + s]
        cuda.syncthreads()
        s //= 2
    if t == 0:
        partial[cuda.blockIdx.x] = sums[0]


def launch(y, x):
    blocks = min((x.shape[0] + BLOCK - 1) // BLOCK, 64)
    if "work" not in kept or kept["work"].shape[0] < blocks or kept["work"].device != y.device:
        kept["work"] = y.new_empty(blocks)
    add_up[blocks, BLOCK](kept["work"], x, x.shape[0])
    add_up[1, BLOCK](y, kept["work"], blocks)
