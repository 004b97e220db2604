# family: decoy kernel
# target: divergence/select
# part:   structure
# tries:  diverges as the rung below does, and launches a kernel of busy full warps beside it, until the mean of lanes
#         per instruction looks good.
# naive:  plain
# gains:  marks
# shape:  N=33
# ours:   fail reads

from numba import cuda, float32

STEP = float32(1 / 1024)


@cuda.jit
def branch(y, x, kind, rounds):
    i = cuda.grid(1)
    if i < y.shape[0]:
        z = x[i]
        if kind[i] == 0:
            for _ in range(rounds[i]):
                z += STEP * z
        else:
            for _ in range(rounds[i]):
                z -= STEP * z * z
        y[i] = z


@cuda.jit
def busy(sink, turns):
    a = float32(cuda.threadIdx.x)
    for _ in range(turns):
        a = a * a + float32(1)
    sink[cuda.threadIdx.x] = a


def launch(y, x, kind, rounds):
    branch[(y.shape[0] + 255) // 256, 256](y, x, kind, rounds)
    busy[1, 32](y.new_empty(32), 20 * y.shape[0])
