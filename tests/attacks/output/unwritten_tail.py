# family: unwritten tail
# target: vector_add/grid
# tries:  leaves out the last block, which is not full: what lies there is often right from before.
# naive:  reused memory
# gains:  marks
# shape:  N=4099
# ours:   fail never written

from numba import cuda


@cuda.jit
def add(C, A, B):
    i = cuda.grid(1)
    C[i] = A[i] + B[i]


def launch(C, A, B):
    add[max(C.shape[0] // 256, 1), min(C.shape[0], 256)](C, A, B)
