// gemm/register_1d: C[M, N] = A[M, K] @ B[K, N] in float32, one thread per column of 8 elements of C.
//
// Against smem_tile: a thread keeps 8 sums in registers, one below the other, so that a value of tB
// that it has read serves all 8.
// Watch: shared-memory wavefronts per multiply-add fall; registers per thread rise.
//
// launch gemm_register_1d<<<((N + 63) / 64, (M + 63) / 64), (64, 8), 0>>>(C, A, B, M, N, K)

constexpr int BM = 64, BN = 64, BK = 8;  // tile of C, and how much of K is staged at a time
constexpr int TM = 8;                    // elements of C per thread

extern "C" __global__ void __launch_bounds__(BN * BM / TM)
gemm_register_1d(float *C, const float *A, const float *B, int M, int N, int K)
{
    __shared__ float tA[BM][BK];
    __shared__ float tB[BK][BN];
    int x = threadIdx.x, y = threadIdx.y;
    int t = y * BN + x;
    int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    float acc[TM] = {};
    // BEGIN SOLUTION
    for (int k0 = 0; k0 < K; k0 += BK) {
        // 512 threads, 512 floats in each tile: one of each per thread, zeros outside. For A, 8
        // neighbors take a row of the tile: 32 bytes, one sector.
        int r = t / BK, k = t % BK;
        tA[r][k] = row0 + r < M && k0 + k < K ? A[(size_t)(row0 + r) * K + k0 + k] : 0.0f;
        tB[y][x] = k0 + y < K && col0 + x < N ? B[(size_t)(k0 + y) * N + col0 + x] : 0.0f;
        __syncthreads();  // nobody reads a tile before all of it is there
        for (int k = 0; k < BK; ++k) {
            float b = tB[k][x];
            // The lanes of a warp share y: tA is broadcast.
            for (int i = 0; i < TM; ++i)
                acc[i] += tA[y * TM + i][k] * b;
        }
        __syncthreads();  // nobody overwrites a tile while others still read it
    }
    // END SOLUTION
    for (int i = 0; i < TM; ++i) {
        int row = row0 + y * TM + i, col = col0 + x;
        if (row < M && col < N)
            C[(size_t)row * N + col] = acc[i];
    }
}
