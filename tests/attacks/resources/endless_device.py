# family: infinite loop on the host or on the device
# target: vector_add/grid
# tries:  a kernel that never ends.
# naive:  plain
# gains:  stops
# ours:   fail|timeout still run|not end

from numba import cuda


@cuda.jit
def spin(C, A):
    i = cuda.grid(1)
    while i < C.shape[0]:
        C[i] = A[i]


def launch(C, A, B):
    spin[(C.shape[0] + 255) // 256, 256](C, A)
