"""gemm_int8/int8_mma: C[M, N] = A[M, K] @ B[N, K].T, int8 in, exact sums and C in int32, on tensor cores.

Against gemm_f16/mma_async: an element is one byte, so a tile of the same bytes is twice as deep along K, and mma
m16n8k32 does twice as many multiply-adds with registers of the same size. ldmatrix moves rows of 16 bytes and does not
ask what is in them; it could not turn int8 round, but need not: both operands have K as their inner dimension.
Watch: int8 tensor operations; shared load wavefronts per tensor operation.
"""

from numba import cuda, int8, int32, uint32

import labkit as lk

BM, BN, BK = 128, 128, 64  # tile of a block
WM, WN = 64, 32  # tile of a warp
STAGES, THREADS = 3, 256
TILE = BM * BK  # bytes, of either operand
SIZE = STAGES * TILE
MM, MN = WM // 16, WN // 8  # multiplications of 16 x 8 down and across a warp's tile


@cuda.jit(device=True, inline=True)
def place(r, k):
    """Where element (r, k) lies in a tile: pieces of 16 change places within their row."""
    return r * BK + ((k // 16) ^ (r // 2 % 4)) * 16 + k % 16


@cuda.jit(device=True, inline=True)
def fetch(tile, stage, X, rows, row0, K, k0, wide):
    """Start copying a tile of X into a stage: 16 bytes at a time where rows are aligned, else one by one."""
    for i in range(cuda.threadIdx.x, TILE // 16, THREADS):
        r, k = i // (BK // 16), i % (BK // 16) * 16
        at = stage * TILE + place(r, k)
        if wide:
            there = row0 + r < rows and k0 + k < K  # all 16 or none, for K is a multiple of 16
            lk.cuda.cp_async(tile, at, X, (row0 + r) * K + k0 + k if there else 0, 16 if there else 0)
        else:
            for e in range(16):
                there = row0 + r < rows and k0 + k + e < K
                tile[at + e] = X[(row0 + r) * K + k0 + k + e] if there else int8(0)


@cuda.jit(max_registers=128)  # so that two blocks share a multiprocessor
def gemm_int8_mma(C, A, B, M, N, K, wide):
    tA = cuda.shared.array(SIZE, int8, alignment=128)
    tB = cuda.shared.array(SIZE, int8, alignment=128)
    t = cuda.threadIdx.x
    lane, warp = t % 32, t // 32
    row0, col0 = cuda.blockIdx.y * BM, cuda.blockIdx.x * BN
    wm, wn = warp // (BN // WN) * WM, warp % (BN // WN) * WN
    c = cuda.local.array((MM, MN, 4), int32)
    b = cuda.local.array((MN, 2), uint32)
    for i in range(MM):
        for j in range(MN):
            for e in range(4):
                c[i, j, e] = int32(0)
    ### BEGIN SOLUTION
    for step in range(STAGES - 1):
        if step * BK < K:
            fetch(tA, step, A, M, row0, K, step * BK, wide)
            fetch(tB, step, B, N, col0, K, step * BK, wide)
        lk.cuda.cp_async_commit()
    stage = 0
    for k0 in range(0, K, BK):
        lk.cuda.cp_async_wait(1)  # this thread's part of this step is there
        cuda.syncthreads()  # everybody's is, and nobody reads the stage of the step before any more
        ahead = (stage + STAGES - 1) % STAGES
        if k0 + (STAGES - 1) * BK < K:
            fetch(tA, ahead, A, M, row0, K, k0 + (STAGES - 1) * BK, wide)
            fetch(tB, ahead, B, N, col0, K, k0 + (STAGES - 1) * BK, wide)
        lk.cuda.cp_async_commit()  # an empty group keeps the count
        for k in range(0, BK, 32):
            for j in range(MN // 2):  # fragments of B stay in registers and serve all rows of the warp
                at = stage * TILE + place(wn + 16 * j + lane // 16 * 8 + lane % 8, k + lane // 8 % 2 * 16)
                four = lk.cuda.ldmatrix(tB, at)
                for e in range(4):
                    b[2 * j + e // 2, e % 2] = four[e]
            for i in range(MM):
                at = stage * TILE + place(wm + 16 * i + lane % 16, k + lane // 16 * 16)
                a = lk.cuda.ldmatrix(tA, at)
                for j in range(MN):
                    old = (c[i, j, 0], c[i, j, 1], c[i, j, 2], c[i, j, 3])
                    new = lk.cuda.mma_m16n8k32(a, (b[j, 0], b[j, 1]), old)
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
    (M, K), N = A.shape, B.shape[0]
    wide = K % 16 == 0 and A.data_ptr() % 16 == 0 and B.data_ptr() % 16 == 0
    grid = ((N + BN - 1) // BN, (M + BM - 1) // BM)
    gemm_int8_mma[grid, THREADS](C, A.reshape(-1), B.reshape(-1), M, N, K, wide)
