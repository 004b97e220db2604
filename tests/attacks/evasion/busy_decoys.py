# family: decoy kernel
# target: vector_add/grid
# part:   structure
# tries:  one block does everything; the others keep busy, so that each is counted by its work.
# naive:  plain
# gains:  marks
# ours:   fail busiest_block

from numba import cuda


@cuda.jit
def add(C, A, B):
    if cuda.blockIdx.x == 0:
        for i in range(cuda.threadIdx.x, C.shape[0], cuda.blockDim.x):
            C[i] = A[i] + B[i]
    else:
        noise = cuda.threadIdx.x
        for i in range(cuda.threadIdx.x, C.shape[0], cuda.blockDim.x):
            noise = noise * 1664525 ^ i
        if noise == 1 << 40:
            C[0] = 0


def launch(C, A, B):
    add[(C.shape[0] + 255) // 256, 256](C, A, B)
