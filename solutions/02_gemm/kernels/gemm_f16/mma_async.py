"""gemm_f16/mma_async: C[M, N] = A[M, K] @ B[K, N], float16 in, sums and C in float32, on tensor cores.

Against mma_sync: nobody waits for global memory. cp_async carries 16 bytes at a time into a further stage of shared
memory, with no register between, while the tensor cores work on this one. Three stages of a 128 x 32 and a 32 x 128
tile fill the 48 KiB that a block may have without asking; numba has no way to ask for more.
Watch: global load requests fall by eight, for mma_sync copied 2 bytes at a time; stalls at the barrier.
"""

from numba import cuda, float32, uint32
from numba.cuda.types import float16

import labkit as lk

BM, BN, BK = 128, 128, 32  # tile of a block
WM, WN = 64, 32  # tile of a warp
STAGES, THREADS = 3, 256
TILE_A, TILE_B = BM * BK, BK * BN
SIZE_A, SIZE_B = STAGES * TILE_A, STAGES * TILE_B
MM, MN = WM // 16, WN // 8  # multiplications of 16 x 8 down and across a warp's tile


@cuda.jit(device=True, inline=True)
def place_a(r, k):
    """Where A[r, k] lies in a tile: pieces of 8 change places within their row."""
    return r * BK + ((k // 8) ^ (r // 2 % 4)) * 8 + k % 8


@cuda.jit(device=True, inline=True)
def place_b(k, c):
    """Where B[k, c] lies in a tile."""
    return k * BN + ((c // 8) ^ (k % 8)) * 8 + c % 8


@cuda.jit(device=True, inline=True)
def fetch(tA, tB, stage, A, B, M, N, K, row0, col0, k0, wide_a, wide_b):
    """Start copying the tiles at k0 into a stage: 16 bytes at a time where rows are aligned, else one by one."""
    for i in range(cuda.threadIdx.x, TILE_A // 8, THREADS):
        r, k = i // (BK // 8), i % (BK // 8) * 8
        at = stage * TILE_A + place_a(r, k)
        if wide_a:
            there = row0 + r < M and k0 + k < K  # all 8 or none, for K is a multiple of 8
            lk.cuda.cp_async(tA, at, A, (row0 + r) * K + k0 + k if there else 0, 16 if there else 0)
        else:
            for e in range(8):
                there = row0 + r < M and k0 + k + e < K
                tA[at + e] = A[(row0 + r) * K + k0 + k + e] if there else float16(0)
    for i in range(cuda.threadIdx.x, TILE_B // 8, THREADS):
        k, c = i // (BN // 8), i % (BN // 8) * 8
        at = stage * TILE_B + place_b(k, c)
        if wide_b:
            there = k0 + k < K and col0 + c < N
            lk.cuda.cp_async(tB, at, B, (k0 + k) * N + col0 + c if there else 0, 16 if there else 0)
        else:
            for e in range(8):
                there = k0 + k < K and col0 + c + e < N
                tB[at + e] = B[(k0 + k) * N + col0 + c + e] if there else float16(0)


@cuda.jit
def gemm_f16_mma_async(C, A, B, M, N, K, wide_a, wide_b):
    tA = cuda.shared.array(SIZE_A, float16, alignment=128)
    tB = cuda.shared.array(SIZE_B, float16, alignment=128)
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
    for step in range(STAGES - 1):
        if step * BK < K:
            fetch(tA, tB, step, A, B, M, N, K, row0, col0, step * BK, wide_a, wide_b)
        lk.cuda.cp_async_commit()
    stage = 0
    for k0 in range(0, K, BK):
        lk.cuda.cp_async_wait(1)  # this thread's part of this step is there
        cuda.syncthreads()  # everybody's is, and nobody reads the stage of the step before any more
        ahead = (stage + STAGES - 1) % STAGES
        if k0 + (STAGES - 1) * BK < K:
            fetch(tA, tB, ahead, A, B, M, N, K, row0, col0, k0 + (STAGES - 1) * BK, wide_a, wide_b)
        lk.cuda.cp_async_commit()  # an empty group keeps the count
        for k in range(0, BK, 16):
            for j in range(MN // 2):
                at = stage * TILE_B + place_b(k + lane % 16, wn + 16 * j + lane // 16 * 8)
                four = lk.cuda.ldmatrix_transposed(tB, at)
                for e in range(4):
                    b[2 * j + e // 2, e % 2] = four[e]
            for i in range(MM):
                at = stage * TILE_A + place_a(wm + 16 * i + lane % 16, k + lane // 16 * 8)
                a = lk.cuda.ldmatrix(tA, at)
                for j in range(MN):
                    old = (c[i, j, 0], c[i, j, 1], c[i, j, 2], c[i, j, 3])
                    new = lk.cuda.mma_m16n8k16(a, (b[j, 0], b[j, 1]), old)
                    for e in range(4):
                        c[i, j, e] = new[e]
        stage = (stage + 1) % STAGES
    ### END SOLUTION
    for i in range(MM):
        for j in range(MN):
            for e in range(4):
                row = row0 + wm + 16 * i + 8 * (e // 2) + lane // 4
                col = col0 + wn + 8 * j + lane % 4 * 2 + e % 2
                if row < M and col < N:
                    C[row, col] = c[i, j, e]


def launch(C, A, B):
    (M, K), N = A.shape, B.shape[1]
    wide_a = K % 8 == 0 and A.data_ptr() % 16 == 0
    wide_b = N % 8 == 0 and B.data_ptr() % 16 == 0
    grid = ((N + BN - 1) // BN, (M + BM - 1) // BM)
    gemm_f16_mma_async[grid, THREADS](C, A.reshape(-1), B.reshape(-1), M, N, K, wide_a, wide_b)
