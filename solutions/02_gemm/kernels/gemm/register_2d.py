"""gemm/register_2d: C[M, N] = alpha * op(A) @ op(B) + beta * C in float32, one thread per 8 x 8 elements.

op(A) is A[M, K], or the transpose of A[K, M] where trans_a = 1; op(B) is B[K, N], or that of B[N, K].

Against register_1d: a thread's elements form a square, so a value of tA serves 8 sums as well as
one of tB.
Watch: shared-memory wavefronts per multiply-add fall again, and occupancy with them.
"""

from numba import cuda, float32

BM, BN, BK = 128, 128, 8  # tile of C, and how much of K is staged at a time
TM, TN = 8, 8  # elements of C per thread
THREADS = 256
LDA, LDB = BK + 1, BN + 4  # rows of the tiles, padded: stores down a column meet 32 banks


@cuda.jit
def gemm_register_2d(C, A, B, alpha, beta, trans_a, trans_b):
    M, K = A.shape  # of op(A) and op(B): a transpose is the same memory with its strides exchanged
    N = B.shape[1]
    tA = cuda.shared.array((BM, LDA), float32)
    tB = cuda.shared.array((BK, LDB), float32)
    x = cuda.threadIdx.x
    y = cuda.threadIdx.y
    t = y * 16 + x
    row0 = cuda.blockIdx.y * BM
    col0 = cuda.blockIdx.x * BN
    acc = cuda.local.array((TM, TN), float32)
    for i in range(TM):
        for j in range(TN):
            acc[i, j] = 0
    ### BEGIN SOLUTION
    a = cuda.local.array(TM, float32)
    b = cuda.local.array(TN, float32)
    for k0 in range(0, K, BK):
        # Every thread copies 4 floats of each tile. Neighboring threads take neighboring floats
        # of global memory in either layout: only the walk through the tile changes.
        for i in range(t, BM * BK, THREADS):
            r = i % BM if trans_a else i // BK
            k = i // BM if trans_a else i % BK
            tA[r, k] = A[row0 + r, k0 + k] if row0 + r < M and k0 + k < K else float32(0)
        for i in range(t, BK * BN, THREADS):
            k = i % BK if trans_b else i // BN
            c = i // BK if trans_b else i % BN
            tB[k, c] = B[k0 + k, col0 + c] if k0 + k < K and col0 + c < N else float32(0)
        cuda.syncthreads()  # nobody reads a tile before all of it is there
        for k in range(BK):
            # Thread (x, y) owns rows y, y + 16, ... and columns x, x + 16, ...: lanes read
            # neighboring words, or the same one.
            for i in range(TM):
                a[i] = tA[y + 16 * i, k]
            for j in range(TN):
                b[j] = tB[k, x + 16 * j]
            for i in range(TM):
                for j in range(TN):
                    acc[i, j] += a[i] * b[j]
        cuda.syncthreads()  # nobody overwrites a tile while others still read it
    ### END SOLUTION
    for i in range(TM):
        for j in range(TN):
            row = row0 + y + 16 * i
            col = col0 + x + 16 * j
            if row < M and col < N:
                # With beta = 0, C may hold anything, NaN too: it is not read.
                if beta == 0:
                    C[row, col] = alpha * acc[i, j]
                else:
                    C[row, col] = alpha * acc[i, j] + beta * C[row, col]


def launch(C, A, B, alpha=1.0, beta=0.0, trans_a=0, trans_b=0):
    M, N = C.shape
    if trans_a:
        A = A.T
    if trans_b:
        B = B.T
    grid = ((N + BN - 1) // BN, (M + BM - 1) // BM)
    gemm_register_2d[grid, (16, 16)](C, A, B, float32(alpha), float32(beta), trans_a, trans_b)
