"""gemm_f16/mma_sync: C[M, N] = A[M, K] @ B[K, N], float16 in, sums and C in float32, on tensor cores.

Against the float32 rungs: the multiply-adds move to the tensor cores. ldmatrix brings four 8 x 8 matrices from
shared memory into the registers of a warp, turned round where B needs it, and mma multiplies 16 x 16 by 16 x 8.
A warp owns 64 x 32 of C, a block of 8 warps 128 x 128. Tiles in shared memory are swizzled: the 16-byte pieces of
a row change places, by a rule that gives the 8 rows of a matrix 8 different places in the banks.
Watch: tensor operations replace FFMA; shared load wavefronts per tensor operation, without conflicts.
"""

from numba import cuda, float32, uint32
from numba.cuda.types import float16

import labkit as lk

BM, BN, BK = 128, 128, 32  # tile of a block
WM, WN = 64, 32  # tile of a warp
THREADS = 256
TILE_A, TILE_B = BM * BK, BK * BN
MM, MN = WM // 16, WN // 8  # multiplications of 16 x 8 down and across a warp's tile


@cuda.jit
def gemm_f16_mma_sync(C, A, B):
    M, K = A.shape
    N = B.shape[1]
    tA = cuda.shared.array(TILE_A, float16, alignment=128)
    tB = cuda.shared.array(TILE_B, float16, alignment=128)
    t = cuda.threadIdx.x
    lane, warp = t % 32, t // 32
    row0, col0 = cuda.blockIdx.y * BM, cuda.blockIdx.x * BN
    wm, wn = warp // (BN // WN) * WM, warp % (BN // WN) * WN
    c = cuda.local.array((MM, MN, 4), float32)
    b = cuda.local.array((MN, 2), uint32)
    for i in range(MM):
        for j in range(MN):
            for e in range(4):
                c[i, j, e] = float32(0)
    ### BEGIN SOLUTION
    for k0 in range(0, K, BK):
        # The piece that element (row, col) is in moves to another of its row: of 4 in A, of 16 in B.
        for i in range(t, BM * BK, THREADS):
            r, k = i // BK, i % BK
            there = row0 + r < M and k0 + k < K
            tA[r * BK + ((k // 8) ^ (r // 2 % 4)) * 8 + k % 8] = A[row0 + r, k0 + k] if there else float16(0)
        for i in range(t, BK * BN, THREADS):
            k, r = i // BN, i % BN
            there = k0 + k < K and col0 + r < N
            tB[k * BN + ((r // 8) ^ (k % 8)) * 8 + r % 8] = B[k0 + k, col0 + r] if there else float16(0)
        cuda.syncthreads()  # the tiles are there
        for k in range(0, BK, 16):
            for j in range(MN // 2):  # fragments of B stay in registers and serve all rows of the warp
                r, piece = k + lane % 16, (wn + 16 * j) // 8 + lane // 16
                four = lk.cuda.ldmatrix_transposed(tB, r * BN + (piece ^ (r % 8)) * 8)
                for e in range(4):
                    b[2 * j + e // 2, e % 2] = four[e]
            for i in range(MM):
                # Lanes 0 to 15 name rows 0 to 15 at k, lanes 16 to 31 the same rows at k + 8.
                r, piece = wm + 16 * i + lane % 16, k // 8 + lane // 16
                a = lk.cuda.ldmatrix(tA, r * BK + (piece ^ (r // 2 % 4)) * 8)
                for j in range(MN):
                    old = (c[i, j, 0], c[i, j, 1], c[i, j, 2], c[i, j, 3])
                    new = lk.cuda.mma_m16n8k16(a, (b[j, 0], b[j, 1]), old)
                    for e in range(4):
                        c[i, j, e] = new[e]
        cuda.syncthreads()  # nobody reads them any more
    ### END SOLUTION
    for i in range(MM):
        for j in range(MN):
            for e in range(4):
                row = row0 + wm + 16 * i + 8 * (e // 2) + lane // 4
                col = col0 + wn + 8 * j + lane % 4 * 2 + e % 2
                if row < M and col < N:
                    C[row, col] = c[i, j, e]


def launch(C, A, B):
    M, N = C.shape
    gemm_f16_mma_sync[((N + BN - 1) // BN, (M + BM - 1) // BM), THREADS](C, A, B)
