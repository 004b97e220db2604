"""gemm/smem_tile: C[M, N] = A[M, K] @ B[K, N] in float32, one block per 16 x 16 tile of C.

Against coalesced: the block copies a tile of A and a tile of B to shared memory and multiplies them
from there. Every float loaded from global memory now serves a whole row or column of threads.
Watch: global load requests fall by the width of the tile; shared-memory wavefronts take their place.
"""

from numba import cuda, float32

TILE = 16


@cuda.jit
def gemm_smem_tile(C, A, B):
    M, K = A.shape
    N = B.shape[1]
    tA = cuda.shared.array((TILE, TILE), float32)
    tB = cuda.shared.array((TILE, TILE), float32)
    x = cuda.threadIdx.x
    y = cuda.threadIdx.y
    row = cuda.blockIdx.y * TILE + y
    col = cuda.blockIdx.x * TILE + x
    acc = float32(0)
    ### BEGIN SOLUTION
    for k0 in range(0, K, TILE):
        # Thread (x, y) owns one element of each tile; zeros stand in for what lies outside.
        tA[y, x] = A[row, k0 + x] if row < M and k0 + x < K else float32(0)
        tB[y, x] = B[k0 + y, col] if k0 + y < K and col < N else float32(0)
        cuda.syncthreads()  # nobody reads a tile before all of it is there
        for k in range(TILE):
            acc += tA[y, k] * tB[k, x]
        cuda.syncthreads()  # nobody overwrites a tile while others still read it
    ### END SOLUTION
    if row < M and col < N:
        C[row, col] = acc


def launch(C, A, B):
    M, N = C.shape
    gemm_smem_tile[((N + TILE - 1) // TILE, (M + TILE - 1) // TILE), (TILE, TILE)](C, A, B)
