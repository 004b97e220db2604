"""gemm/split_k: C[M, N] = A[M, K] @ B[K, N] in float32, for small M * N and large K.

Against the other rungs: where C has few tiles, most of the machine would idle. Here blockIdx.z cuts
K into slices; each slice leaves its partial sums in a workspace, and a second kernel adds them, in
order, so that the result is the same in every run. Tiles are 64 x 64, for more blocks still. (The
CUDA C++ version has vectorized loads and two buffers besides; this one grows from register_2d.)
Watch: waves per multiprocessor rise from next to nothing to several; C's bytes are paid per slice.
"""

from numba import cuda, float32

BM, BN, BK = 64, 64, 8  # tile of C, and how much of K is staged at a time
TM, TN = 8, 8  # elements of C per thread
THREADS = 64
LDA = BK + 1  # row of the tile of A, padded
BLOCKS = 4224  # to aim for: 32 for each of 132 multiprocessors
SLICES = 64  # at most: each costs the bytes of C


@cuda.jit
def gemm_split_k(partial, A, B):
    M, K = A.shape
    N = B.shape[1]
    tA = cuda.shared.array((BM, LDA), float32)
    tB = cuda.shared.array((BK, BN), float32)
    t = cuda.threadIdx.x
    x = t % 8
    y = t // 8
    row0 = cuda.blockIdx.y * BM
    col0 = cuda.blockIdx.x * BN
    z = cuda.blockIdx.z
    acc = cuda.local.array((TM, TN), float32)
    for i in range(TM):
        for j in range(TN):
            acc[i, j] = 0
    ### BEGIN SOLUTION
    # This block's slice of K, in whole tiles. The last slices may be short or empty.
    slices = partial.shape[0]
    slice = ((K + slices - 1) // slices + BK - 1) // BK * BK
    k_end = min(K, (z + 1) * slice)
    a = cuda.local.array(TM, float32)
    b = cuda.local.array(TN, float32)
    for k0 in range(z * slice, k_end, BK):
        for i in range(t, BM * BK, THREADS):
            r = i // BK
            k = i % BK
            tA[r, k] = A[row0 + r, k0 + k] if row0 + r < M and k0 + k < k_end else float32(0)
        for k in range(BK):
            tB[k, t] = B[k0 + k, col0 + t] if k0 + k < k_end and col0 + t < N else float32(0)
        cuda.syncthreads()  # nobody reads a tile before all of it is there
        for k in range(BK):
            for i in range(TM):
                a[i] = tA[y + 8 * i, k]
            for j in range(TN):
                b[j] = tB[k, x + 8 * j]
            for i in range(TM):
                for j in range(TN):
                    acc[i, j] += a[i] * b[j]
        cuda.syncthreads()  # nobody overwrites a tile while others still read it
    ### END SOLUTION
    for i in range(TM):
        for j in range(TN):
            row = row0 + y + 8 * i
            col = col0 + x + 8 * j
            if row < M and col < N:
                partial[z, row, col] = acc[i, j]


@cuda.jit
def gemm_split_k_sum(C, partial):
    M, N = C.shape
    i = cuda.grid(1)
    if i < M * N:
        row = i // N
        col = i % N
        ### BEGIN SOLUTION
        total = float32(0)
        for z in range(partial.shape[0]):
            total += partial[z, row, col]
        C[row, col] = total
        ### END SOLUTION


def launch(C, A, B):
    M, N = C.shape
    K = A.shape[1]
    tiles_x = (N + BN - 1) // BN
    tiles_y = (M + BM - 1) // BM
    slices = max(1, min(SLICES, BLOCKS // (tiles_x * tiles_y), (K + 63) // 64))  # of at least 64
    partial = C.new_empty((slices, M, N))
    gemm_split_k[(tiles_x, tiles_y, slices), THREADS](partial, A, B)
    gemm_split_k_sum[(M * N + 255) // 256, 256](C, partial)
