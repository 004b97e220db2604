"""gemm/vectorized: C[M, N] = A[M, K] @ B[K, N] in float32, one thread per 8 x 8 elements of C.

Against register_2d: memory moves in pieces of 16 bytes, global and shared. To read 4 rows of A at
once, the tile of A lies transposed in shared memory, turned round on its way in.
Watch: global load requests and shared load instructions fall; wavefronts fall less.

A, B and C come as flat arrays, for numba has no 16-byte access: lk.cuda.load4 and store4 are one each.
"""

from numba import cuda, float32

import labkit as lk

BM, BN, BK = 128, 128, 8  # tile of C, and how much of K is staged at a time
TM, TN = 8, 8  # elements of C per thread
THREADS = 256
LDA = BM + 4  # row of the tile of A, padded against conflicts of its stores
SIZE_A, SIZE_B = BK * LDA, BK * BN


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
def gemm_vectorized(C, A, B, M, N, K, aligned_a, aligned_b, aligned_c):
    tA = cuda.shared.array(SIZE_A, float32, alignment=16)  # [BK][LDA], transposed
    tB = cuda.shared.array(SIZE_B, float32, alignment=16)  # [BK][BN]
    t = cuda.threadIdx.x
    x = t % 16
    y = t // 16
    row0 = cuda.blockIdx.y * BM
    col0 = cuda.blockIdx.x * BN
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
    for k0 in range(0, K, BK):
        left_a = K - k0 - ak if row0 + ar < M else 0
        left_b = N - col0 - bc if k0 + bk < K else 0
        va = load_row4(A, (row0 + ar) * K + k0 + ak, left_a, aligned_a)
        vb = load_row4(B, (k0 + bk) * N + col0 + bc, left_b, aligned_b)
        for i in range(4):
            tA[(ak + i) * LDA + ar] = va[i]
        lk.cuda.store4(tB, bk * BN + bc, vb)
        cuda.syncthreads()  # nobody reads a tile before all of it is there
        for k in range(BK):
            # Two groups of 4 rows and of 4 columns, half a tile apart: lanes read neighboring pieces.
            for h in range(2):
                a4 = lk.cuda.load4(tA, k * LDA + h * (BM // 2) + y * 4)
                b4 = lk.cuda.load4(tB, k * BN + h * (BN // 2) + x * 4)
                for i in range(4):
                    a[h * 4 + i] = a4[i]
                    b[h * 4 + i] = b4[i]
            for i in range(TM):
                for j in range(TN):
                    acc[i, j] += a[i] * b[j]
        cuda.syncthreads()  # nobody overwrites a tile while others still read it
    ### END SOLUTION
    for i in range(TM):
        row = row0 + i // 4 * (BM // 2) + y * 4 + i % 4
        for h in range(2):
            col = col0 + h * (BN // 2) + x * 4
            values = (acc[i, h * 4], acc[i, h * 4 + 1], acc[i, h * 4 + 2], acc[i, h * 4 + 3])
            store_row4(C, row * N + col, values, N - col if row < M else 0, aligned_c)


def launch(C, A, B):
    M, N = C.shape
    K = A.shape[1]
    # Rows of A start on 16 bytes if A does and K is a multiple of 4; so for B and C with N.
    aligned = [X.data_ptr() % 16 == 0 and X.shape[1] % 4 == 0 for X in (A, B, C)]
    grid = ((N + BN - 1) // BN, (M + BM - 1) // BM)
    gemm_vectorized[grid, THREADS](C.reshape(-1), A.reshape(-1), B.reshape(-1), M, N, K, *aligned)
