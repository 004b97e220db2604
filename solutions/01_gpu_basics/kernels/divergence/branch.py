"""divergence/branch: y[i] = x[i] after rounds[i] rounds of the formula of kind[i]; float32, kind and rounds int32.

The first rung: one thread per item, and each kind has its side of a branch. Lanes of both kinds share a warp.
Watch: active lanes per instruction (smsp__thread_inst_executed_per_inst_executed.ratio), 32 at best.
"""

from numba import cuda, float32

STEP = float32(1 / 1024)


@cuda.jit
def divergence_branch(y, x, kind, rounds):
    i = cuda.grid(1)
    ### BEGIN SOLUTION
    if i < y.shape[0]:
        z = x[i]
        if kind[i] == 0:
            for _ in range(rounds[i]):
                z += STEP * z
        else:
            for _ in range(rounds[i]):
                z -= STEP * z * z
        y[i] = z
    ### END SOLUTION


def launch(y, x, kind, rounds):
    divergence_branch[(y.shape[0] + 255) // 256, 256](y, x, kind, rounds)
