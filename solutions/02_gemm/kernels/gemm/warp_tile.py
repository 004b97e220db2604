"""gemm/warp_tile: C[M, N] = A[M, K] @ B[K, N] in float32, one thread per 8 x 8 elements of C.

Against double_buffered: three levels of tiles. A block owns 128 x 128 of C, each of its 8 warps
32 x 64 of that, each thread 8 x 8 of its warp's. Only the shape of a warp's part changes.
(The CUDA C++ version has 8 x 16 per thread and cp.async besides, which numba cannot express.)
Watch: shared-memory wavefronts per multiply-add.
"""

from numba import cuda, float32

import labkit as lk

BM, BN, BK = 128, 128, 8  # tile of a block, and how much of K is staged at a time
WM, WN = 32, 64  # tile of a warp
TM, TN = 8, 8  # elements of C per thread
LANES_M, LANES_N = WM // TM, WN // TN  # lanes of a warp: 4 down, 8 across
THREADS = 256
LDA = BM + 4  # row of the tile of A, padded against conflicts of its stores
SIZE_A, SIZE_B = BK * LDA, BK * BN  # one buffer
BOTH_A, BOTH_B = 2 * SIZE_A, 2 * SIZE_B


@cuda.jit(device=True)
def load_row4(array, at, left, aligned):
    """4 floats from `at` on, of which the first `left` exist; in one piece where `at` is aligned."""
    if aligned and left >= 4:
        return lk.cuda.load4(array, at)
    return (
        array[at] if left > 0 else float32(0),
        array[at + 1] if left > 1 else float32(0),
        array[at + 2] if left > 2 else float32(0),
        array[at + 3] if left > 3 else float32(0),
    )


@cuda.jit(device=True)
def store_row4(array, at, values, left, aligned):
    if aligned and left >= 4:
        lk.cuda.store4(array, at, values)
    else:
        if left > 0:
            array[at] = values[0]
        if left > 1:
            array[at + 1] = values[1]
        if left > 2:
            array[at + 2] = values[2]
        if left > 3:
            array[at + 3] = values[3]


@cuda.jit
def gemm_warp_tile(C, A, B, M, N, K, aligned_a, aligned_b, aligned_c):
    tA = cuda.shared.array(BOTH_A, float32, alignment=16)  # [2][BK][LDA], transposed
    tB = cuda.shared.array(BOTH_B, float32, alignment=16)  # [2][BK][BN]
    t = cuda.threadIdx.x
    warp = t // 32
    lane = t % 32
    row0 = cuda.blockIdx.y * BM
    col0 = cuda.blockIdx.x * BN
    # Lanes n and n ^ 1 share their rows, n and n ^ 2 their columns: then a 16-byte read of a warp
    # takes 2 wavefronts, not 4.
    lane_m = (lane & 2) // 2 + lane // 16 * 2
    lane_n = (lane & 1) + (lane & 12) // 2
    m0 = warp // (BN // WN) * WM + lane_m * 4  # first row and column of this thread in the tile
    n0 = warp % (BN // WN) * WN + lane_n * 4
    acc = cuda.local.array((TM, TN), float32)
    for i in range(TM):
        for j in range(TN):
            acc[i, j] = 0
    ### BEGIN SOLUTION
    ar = t // (BK // 4)  # the 4 floats of each tile that this thread copies
    ak = t % (BK // 4) * 4
    bk = t // (BN // 4)
    bc = t % (BN // 4) * 4
    a = cuda.local.array(TM, float32)
    b = cuda.local.array(TN, float32)
    at_a = (row0 + ar) * K + ak
    at_b = bk * N + col0 + bc
    va = load_row4(A, at_a, K - ak if row0 + ar < M else 0, aligned_a)
    left = N - col0 - bc
    vb = load_row4(B, at_b, left if bk < K else 0, aligned_b)
    for i in range(4):
        tA[(ak + i) * LDA + ar] = va[i]
    lk.cuda.store4(tB, bk * BN + bc, vb)
    cuda.syncthreads()
    s = 0  # the buffer to compute on
    for k0 in range(BK, K + BK, BK):  # k0: the tile after the one to compute on
        # Nothing waits for these loads until the stores below.
        va = load_row4(A, at_a + k0, K - k0 - ak if row0 + ar < M else 0, aligned_a)
        vb = load_row4(B, at_b + k0 * N, left if k0 + bk < K else 0, aligned_b)
        for k in range(BK):
            # Every (4 * LANES_M)-th group of 4 rows, and so for columns.
            for h in range(0, TM, 4):
                a4 = lk.cuda.load4(tA, s * SIZE_A + k * LDA + m0 + h * LANES_M)
                for i in range(4):
                    a[h + i] = a4[i]
            for h in range(0, TN, 4):
                b4 = lk.cuda.load4(tB, s * SIZE_B + k * BN + n0 + h * LANES_N)
                for i in range(4):
                    b[h + i] = b4[i]
            for i in range(TM):
                for j in range(TN):
                    acc[i, j] += a[i] * b[j]
        s = 1 - s
        # Nobody has read buffer s since the barrier of the tile before.
        for i in range(4):
            tA[s * SIZE_A + (ak + i) * LDA + ar] = va[i]
        lk.cuda.store4(tB, s * SIZE_B + bk * BN + bc, vb)
        cuda.syncthreads()  # the next tile is there, and nobody reads the old one any more
    ### END SOLUTION
    for i in range(TM):
        row = row0 + m0 + i // 4 * 4 * LANES_M + i % 4
        for j in range(0, TN, 4):
            col = col0 + n0 + j * LANES_N
            values = (acc[i, j], acc[i, j + 1], acc[i, j + 2], acc[i, j + 3])
            store_row4(C, row * N + col, values, N - col if row < M else 0, aligned_c)


def launch(C, A, B):
    M, N = C.shape
    K = A.shape[1]
    # Rows of A start on 16 bytes if A does and K is a multiple of 4; so for B and C with N.
    aligned = [X.data_ptr() % 16 == 0 and X.shape[1] % 4 == 0 for X in (A, B, C)]
    grid = ((N + BN - 1) // BN, (M + BM - 1) // BM)
    gemm_warp_tile[grid, THREADS](C.reshape(-1), A.reshape(-1), B.reshape(-1), M, N, K, *aligned)
