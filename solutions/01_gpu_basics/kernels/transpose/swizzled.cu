// transpose/swizzled: B[j, i] = A[i, j] in float32, one block per tile of 32 x 32.
//
// Against padded: no word is wasted. Element (row, column) stands in column `column ^ row` of the tile: each row
// holds its own elements, in an order that puts neighbors in a column into different banks.
// Watch: shared-memory wavefronts stay as in padded; shared bytes per block fall to 4096.
//
// launch transpose_swizzled<<<((N + 31) / 32, (M + 31) / 32), (32, 8), 0>>>(B, A, M, N)

constexpr int TILE = 32, ROWS = 8;  // each thread moves 4 elements

extern "C" __global__ void transpose_swizzled(float *B, const float *A, int M, int N)
{
    __shared__ float tile[TILE][TILE];
    int x = threadIdx.x;
    int row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;  // the tile's first row and column in A
    // BEGIN SOLUTION
    for (int k = 0; k < TILE; k += ROWS) {
        int y = k + threadIdx.y;
        if (row0 + y < M && col0 + x < N)
            tile[y][x ^ y] = A[(size_t)(row0 + y) * N + col0 + x];
    }
    __syncthreads();  // what a thread writes comes from others
    for (int k = 0; k < TILE; k += ROWS) {
        int y = k + threadIdx.y;
        if (col0 + y < N && row0 + x < M)
            B[(size_t)(col0 + y) * M + row0 + x] = tile[x][y ^ x];
    }
    // END SOLUTION
}
