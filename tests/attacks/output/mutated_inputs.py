# family: mutating the inputs
# target: vector_add/grid
# tries:  clears inputs and output, so that what it writes is right for what is there afterwards.
# naive:  reference after
# gains:  marks
# ours:   fail is an input

from numba import cuda


@cuda.jit
def clear(C, A, B):
    i = cuda.grid(1)
    if i < C.shape[0]:
        A[i] = B[i] = C[i] = 0


def launch(C, A, B):
    clear[(C.shape[0] + 255) // 256, 256](C, A, B)
