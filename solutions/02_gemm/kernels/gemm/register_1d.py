"""gemm/register_1d: C[M, N] = A[M, K] @ B[K, N] in float32, one thread per column of 8 elements of C.

Against smem_tile: a thread keeps 8 sums in registers, one below the other, so that a value of tB
that it has read serves all 8.
Watch: shared-memory wavefronts per multiply-add fall; registers per thread rise.
"""

from numba import cuda, float32

BM, BN, BK = 64, 64, 8  # tile of C, and how much of K is staged at a time
TM = 8  # elements of C per thread


@cuda.jit
def gemm_register_1d(C, A, B):
    M, K = A.shape
    N = B.shape[1]
    tA = cuda.shared.array((BM, BK), float32)
    tB = cuda.shared.array((BK, BN), float32)
    x = cuda.threadIdx.x
    y = cuda.threadIdx.y
    t = y * BN + x
    row0 = cuda.blockIdx.y * BM
    col0 = cuda.blockIdx.x * BN
    acc = cuda.local.array(TM, float32)  # indexed by constants once unrolled: registers
    for i in range(TM):
        acc[i] = 0
    ### BEGIN SOLUTION
    for k0 in range(0, K, BK):
        # 512 threads, 512 floats in each tile: one of each per thread, zeros outside. For A, 8
        # neighbors take a row of the tile: 32 bytes, one sector.
        r = t // BK
        k = t % BK
        tA[r, k] = A[row0 + r, k0 + k] if row0 + r < M and k0 + k < K else float32(0)
        tB[y, x] = B[k0 + y, col0 + x] if k0 + y < K and col0 + x < N else float32(0)
        cuda.syncthreads()  # nobody reads a tile before all of it is there
        for k in range(BK):
            b = tB[k, x]
            # The lanes of a warp share y: tA is broadcast.
            for i in range(TM):
                acc[i] += tA[y * TM + i, k] * b
        cuda.syncthreads()  # nobody overwrites a tile while others still read it
    ### END SOLUTION
    for i in range(TM):
        row = row0 + y * TM + i
        col = col0 + x
        if row < M and col < N:
            C[row, col] = acc[i]


def launch(C, A, B):
    M, N = C.shape
    grid = ((N + BN - 1) // BN, (M + BM - 1) // BM)
    gemm_register_1d[grid, (BN, BM // TM)](C, A, B)
