# family: correct but slow
# target: vector_add/grid
# tries:  one thread does everything.
# naive:  plain
# gains:  marks
# ours:   pass

from numba import cuda


@cuda.jit
def add(C, A, B):
    for i in range(C.shape[0]):
        C[i] = A[i] + B[i]


def launch(C, A, B):
    add[1, 1](C, A, B)
