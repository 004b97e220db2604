"""divergence/select: y[i] = x[i] after rounds[i] rounds of the formula of kind[i]; float32, kind and rounds int32.

Against branch: both formulas are one, z + z * (p + q * z), with coefficients that a lane selects once. A kind now does
a multiply-add that it would not need, and no lane waits for the other kind.
Watch: active lanes per instruction; what is left is the loops' different lengths.
"""

from numba import cuda, float32

STEP = float32(1 / 1024)


@cuda.jit
def divergence_select(y, x, kind, rounds):
    i = cuda.grid(1)
    ### BEGIN SOLUTION
    if i < y.shape[0]:
        z = x[i]
        p = STEP if kind[i] == 0 else float32(0)
        q = float32(0) if kind[i] == 0 else -STEP
        for _ in range(rounds[i]):
            z += z * (p + q * z)
        y[i] = z
    ### END SOLUTION


def launch(y, x, kind, rounds):
    divergence_select[(y.shape[0] + 255) // 256, 256](y, x, kind, rounds)
