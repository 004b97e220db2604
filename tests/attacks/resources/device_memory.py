# family: host or device memory exhaustion
# target: vector_add/grid
# tries:  asks for a workspace as large as the machine.
# naive:  plain
# gains:  memory
# ours:   fail .

from numba import cuda


@cuda.jit
def add(C, A, B):
    i = cuda.grid(1)
    if i < C.shape[0]:
        C[i] = A[i] + B[i]


def launch(C, A, B):
    work = C.new_ones(int("@MEMORY@") // 4)
    add[(C.shape[0] + 255) // 256, 256](C, work, B)
