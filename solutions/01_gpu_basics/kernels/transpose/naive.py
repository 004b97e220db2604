"""transpose/naive: B[j, i] = A[i, j] in float32, one thread per element.

The first rung. threadIdx.x walks along a row of A, so that reads are coalesced; then the writes walk down a
column of B.
Watch: sectors per store request.
"""

from numba import cuda


@cuda.jit
def transpose_naive(B, A):
    M, N = A.shape
    ### BEGIN SOLUTION
    row = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    col = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if row < M and col < N:
        B[col, row] = A[row, col]
    ### END SOLUTION


def launch(B, A):
    M, N = A.shape
    transpose_naive[((N + 31) // 32, (M + 7) // 8), (32, 8)](B, A)
