# family: other instructions than those that are counted
# target: vector_add/one_block
# part:   structure
# tries:  reads by adding zero atomically, which is no load, and so never too many of them.
# naive:  plain
# gains:  marks
# ours:   fail reads

from numba import cuda, float32


@cuda.jit
def add(C, A, B):
    for i in range(C.shape[0]):
        C[i] = cuda.atomic.add(A, i, float32(0)) + cuda.atomic.add(B, i, float32(0))


def launch(C, A, B):
    add[1, 1](C, A, B)
