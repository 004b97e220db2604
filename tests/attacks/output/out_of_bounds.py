# family: out-of-bounds write
# target: vector_add/grid
# tries:  guards nothing: on a GPU the stray stores land in the padding of the allocation, and nobody sees them.
# naive:  plain
# gains:  gpu marks
# ours:   fail past the end|outside|out of

from numba import cuda


@cuda.jit
def add(C, A, B):
    i = cuda.grid(1)
    C[i] = A[i] + B[i]


def launch(C, A, B):
    add[(C.shape[0] + 255) // 256, 256](C, A, B)
