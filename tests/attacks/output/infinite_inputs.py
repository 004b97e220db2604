# family: mutating the inputs
# target: vector_add/grid
# tries:  makes the inputs infinite on the way, so that the reference is infinite too, and so is every tolerance.
# naive:  reference after
# gains:  marks
# ours:   fail is an input

import math

from numba import cuda


@cuda.jit
def fill(C, A, B, value):
    i = cuda.grid(1)
    if i < C.shape[0]:
        A[i] = value
        C[i] = value


def launch(C, A, B):
    fill[(C.shape[0] + 255) // 256, 256](C, A, B, math.inf)
