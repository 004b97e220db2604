# family: lower precision inside
# target: vector_add/grid
# tries:  adds in 16 bits and widens the sum.
# naive:  plain
# gains:  marks
# ours:   fail allowed

from numba import cuda, float32
from numba.cuda.types import float16


@cuda.jit
def add(C, A, B):
    i = cuda.grid(1)
    if i < C.shape[0]:
        C[i] = float32(float16(A[i]) + float16(B[i]))


def launch(C, A, B):
    add[(C.shape[0] + 255) // 256, 256](C, A, B)
