# family: reading what torch.empty left behind
# target: vector_add/grid
# tries:  writes nothing: the output is often the memory in which the reference stood before.
# naive:  reused memory
# gains:  marks
# shape:  N=4099
# ours:   fail never written

from numba import cuda


@cuda.jit
def nothing(C):
    pass


def launch(C, A, B):
    nothing[1, 32](C)
