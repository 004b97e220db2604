# family: the kernel of a lower rung
# target: transpose/padded
# part:   structure
# tries:  a kernel without shared memory has no conflicts in it, and is two rungs lower.
# naive:  plain
# gains:  marks
# ours:   fail takes

from numba import cuda


@cuda.jit
def transpose(B, A):
    row = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    col = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if row < A.shape[0] and col < A.shape[1]:
        B[col, row] = A[row, col]


def launch(B, A):
    M, N = A.shape
    transpose[((N + 31) // 32, (M + 7) // 8), (32, 8)](B, A)
