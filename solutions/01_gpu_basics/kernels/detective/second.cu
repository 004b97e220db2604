// B[r, c] = A[r, c] - mean of row r. A: rows x 64, float32. A block takes 64 rows, and each of its threads one of them.

extern "C" __global__ void second(float *B, const float *A, int rows)
{
    __shared__ float tile[64][64];
    int t = threadIdx.x, first = blockIdx.x * 64, here = min(64, rows - first);
    for (int r = 0; r < here; ++r)  // row by row: neighbouring threads take neighbouring columns
        tile[r][t] = A[(size_t)(first + r) * 64 + t];
    __syncthreads();
    float total = 0;
    for (int c = 0; c < 64; ++c)  // now thread t walks along row t
        total += tile[t][c];
    for (int c = 0; c < 64; ++c)
        tile[t][c] -= total / 64;
    __syncthreads();
    for (int r = 0; r < here; ++r)
        B[(size_t)(first + r) * 64 + t] = tile[r][t];
}
