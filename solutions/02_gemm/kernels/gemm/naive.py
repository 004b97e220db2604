"""gemm/naive: C[M, N] = A[M, K] @ B[K, N] in float32, one thread per element of C.

The first rung. threadIdx.x walks down the rows of C, as a mathematician would number them, so the
neighbors in a warp read A one whole row apart, and little of what memory sends is used.
Watch: sectors per global load request (l1tex__average_t_sectors_per_request_..._op_ld.ratio).
"""

from numba import cuda, float32


@cuda.jit
def gemm_naive(C, A, B):
    M, K = A.shape
    N = B.shape[1]
    ### BEGIN SOLUTION
    row = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    col = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    if row < M and col < N:
        acc = float32(0)
        for k in range(K):
            acc += A[row, k] * B[k, col]
        C[row, col] = acc
    ### END SOLUTION


def launch(C, A, B):
    M, N = C.shape
    gemm_naive[((M + 15) // 16, (N + 15) // 16), (16, 16)](C, A, B)
