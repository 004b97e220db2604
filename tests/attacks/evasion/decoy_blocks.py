# family: decoy kernel
# target: vector_add/grid
# part:   structure
# tries:  one block does everything; a grid of blocks that do nothing is there to be counted.
# naive:  plain
# gains:  marks
# ours:   fail busiest_block

from numba import cuda


@cuda.jit
def add(C, A, B):
    if cuda.blockIdx.x == 0:
        for i in range(cuda.threadIdx.x, C.shape[0], cuda.blockDim.x):
            C[i] = A[i] + B[i]


def launch(C, A, B):
    add[(C.shape[0] + 255) // 256, 256](C, A, B)
