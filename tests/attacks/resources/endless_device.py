# family: infinite loop on the host or on the device
# target: vector_add/grid
# tries:  a kernel that never ends.
# naive:  plain
# gains:  stops
# ours:   fail steps|not end|no progress|instructions

from numba import cuda


@cuda.jit
def spin(C):
    i = 0
    while C[0] != 12345:
        i += 1
        C[0] = i % 1000


def launch(C, A, B):
    spin[64, 256](C)
