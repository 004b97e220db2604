// gemm/smem_tile: C[M, N] = A[M, K] @ B[K, N] in float32, one block per 16 x 16 tile of C.
//
// Against coalesced: the block copies a tile of A and a tile of B to shared memory and multiplies them
// from there. Every float loaded from global memory now serves a whole row or column of threads.
// Watch: global load requests fall by the width of the tile; shared-memory wavefronts take their place.
//
// launch gemm_smem_tile<<<((N + 15) / 16, (M + 15) / 16), (16, 16), 0>>>(C, A, B, M, N, K)

constexpr int TILE = 16;

extern "C" __global__ void gemm_smem_tile(float *C, const float *A, const float *B, int M, int N, int K)
{
    __shared__ float tA[TILE][TILE];
    __shared__ float tB[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * TILE + y;
    int col = blockIdx.x * TILE + x;
    float acc = 0.0f;
    // BEGIN SOLUTION
    for (int k0 = 0; k0 < K; k0 += TILE) {
        // Thread (x, y) owns one element of each tile; zeros stand in for what lies outside.
        tA[y][x] = row < M && k0 + x < K ? A[(size_t)row * K + k0 + x] : 0.0f;
        tB[y][x] = k0 + y < K && col < N ? B[(size_t)(k0 + y) * N + col] : 0.0f;
        __syncthreads();  // nobody reads a tile before all of it is there
        for (int k = 0; k < TILE; ++k)
            acc += tA[y][k] * tB[k][x];
        __syncthreads();  // nobody overwrites a tile while others still read it
    }
    // END SOLUTION
    if (row < M && col < N)
        C[(size_t)row * N + col] = acc;
}
