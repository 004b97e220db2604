"""gemm/coalesced: C[M, N] = A[M, K] @ B[K, N] in float32, one thread per element of C.

Against naive: threadIdx.x walks along a row of C. Neighbors in a warp now read neighbors in B,
and share their row of A, so that far fewer sectors serve the same request.
Watch: sectors per global load request, and sectors per store request with it.
"""

from numba import cuda, float32


@cuda.jit
def gemm_coalesced(C, A, B):
    M, K = A.shape
    N = B.shape[1]
    ### BEGIN SOLUTION
    row = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    col = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if row < M and col < N:
        acc = float32(0)
        for k in range(K):
            acc += A[row, k] * B[k, col]
        C[row, col] = acc
    ### END SOLUTION


def launch(C, A, B):
    M, N = C.shape
    grid = ((N + 15) // 16, (M + 15) // 16)  # x counts columns now
    gemm_coalesced[grid, (16, 16)](C, A, B)
