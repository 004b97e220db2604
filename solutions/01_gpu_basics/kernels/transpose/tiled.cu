// transpose/tiled: B[j, i] = A[i, j] in float32, one block per tile of 32 x 32.
//
// Against naive: the tile goes through shared memory. It is read row by row and written row by row, rows of B
// this time, so that both are coalesced; the turn happens in between, where no sectors exist.
// Watch: sectors per store request fall; shared-memory wavefronts appear.
//
// launch transpose_tiled<<<((N + 31) / 32, (M + 31) / 32), (32, 8), 0>>>(B, A, M, N)

constexpr int TILE = 32, ROWS = 8;  // each thread moves 4 elements

extern "C" __global__ void transpose_tiled(float *B, const float *A, int M, int N)
{
    __shared__ float tile[TILE][TILE];
    int x = threadIdx.x;
    int row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;  // the tile's first row and column in A
    for (int k = 0; k < TILE; k += ROWS) {
        int y = k + threadIdx.y;
        if (row0 + y < M && col0 + x < N)
            tile[y][x] = A[(size_t)(row0 + y) * N + col0 + x];
    }
    // BEGIN SOLUTION
    __syncthreads();  // what a thread writes comes from others
    for (int k = 0; k < TILE; k += ROWS) {
        int y = k + threadIdx.y;
        if (col0 + y < N && row0 + x < M)
            B[(size_t)(col0 + y) * M + row0 + x] = tile[x][y];
    }
    // END SOLUTION
}
