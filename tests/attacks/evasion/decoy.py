# family: decoy kernel
# target: vector_add/grid
# tries:  launches a kernel on memory that nobody looks at, and lets PyTorch write the output.
# naive:  plain
# gains:  marks
# ours:   fail started no kernel|never written|reaches the values|on the host

from numba import cuda


@cuda.jit
def add(C, A, B):
    i = cuda.grid(1)
    if i < C.shape[0]:
        C[i] = A[i] + B[i]


def launch(C, A, B):
    C.copy_(A + B)
    add[(C.shape[0] + 255) // 256, 256](C.new_empty(C.shape), A, B)
