// transpose/padded: B[j, i] = A[i, j] in float32, one block per tile of 32 x 32.
//
// Against tiled: a word that nobody uses at the end of each row of the tile. Neighbors in a column are 33 words
// apart, one bank further on each.
// Watch: shared-memory wavefronts of loads fall.
//
// launch transpose_padded<<<((N + 31) / 32, (M + 31) / 32), (32, 8), 0>>>(B, A, M, N)

constexpr int TILE = 32, ROWS = 8;  // each thread moves 4 elements
constexpr int PITCH = TILE + 1;     // words from one row of the tile to the next

extern "C" __global__ void transpose_padded(float *B, const float *A, int M, int N)
{
    // BEGIN SOLUTION
    __shared__ float tile[TILE][PITCH];
    int x = threadIdx.x;
    int row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;  // the tile's first row and column in A
    for (int k = 0; k < TILE; k += ROWS) {
        int y = k + threadIdx.y;
        if (row0 + y < M && col0 + x < N)
            tile[y][x] = A[(size_t)(row0 + y) * N + col0 + x];
    }
    __syncthreads();  // what a thread writes comes from others
    for (int k = 0; k < TILE; k += ROWS) {
        int y = k + threadIdx.y;
        if (col0 + y < N && row0 + x < M)
            B[(size_t)(col0 + y) * M + row0 + x] = tile[x][y];
    }
    // END SOLUTION
}
