// transpose/vectorized: B[j, i] = A[i, j] in float32, one block per tile of 64 x 64, 4 x 4 elements per thread.
//
// Against swizzled: every access is 16 bytes wide, four of them in flight per thread. A thread loads 4 pieces of 4
// neighbors below each other, turns the 4 x 4 square round in registers, and writes its 4 new rows to the tile.
// The tile keeps rows of B, as 16 pieces of 16 bytes each; which piece stands where is swizzled by row. Blocks are
// numbered down A, so that neighbors write neighboring pieces of B.
// Watch: global and shared requests fall; every row of the tile is 256 bytes side by side, in A and in B.
//
// launch transpose_vectorized<<<((M + 63) / 64, (N + 63) / 64), (16, 16), 0>>>(B, A, M, N)

constexpr int TILE = 64;

// 4 floats from p on, of which the first `left` exist; in one piece where p is 16-byte aligned.
__device__ float4 load4(const float *p, int left, bool aligned)
{
    if (aligned && left >= 4)
        return *(const float4 *)p;
    return make_float4(left > 0 ? p[0] : 0.0f, left > 1 ? p[1] : 0.0f,
                       left > 2 ? p[2] : 0.0f, left > 3 ? p[3] : 0.0f);
}

__device__ void store4(float *p, float4 v, int left, bool aligned)
{
    if (aligned && left >= 4) {
        *(float4 *)p = v;
        return;
    }
    if (left > 0) p[0] = v.x;
    if (left > 1) p[1] = v.y;
    if (left > 2) p[2] = v.z;
    if (left > 3) p[3] = v.w;
}

extern "C" __global__ void __launch_bounds__(256)
transpose_vectorized(float *B, const float *A, int M, int N)
{
    __shared__ float4 tile[TILE][TILE / 4];  // rows of B
    int x = threadIdx.x, y = threadIdx.y;
    int row0 = blockIdx.x * TILE, col0 = blockIdx.y * TILE;  // the tile's first row and column in A
    bool aligned_a = N % 4 == 0 && (size_t)A % 16 == 0;  // then every row of A starts on 16 bytes
    bool aligned_b = M % 4 == 0 && (size_t)B % 16 == 0;
    // BEGIN SOLUTION
    float4 a[4];
    for (int i = 0; i < 4; ++i) {
        int row = row0 + 4 * y + i, col = col0 + 4 * x;
        a[i] = load4(A + (size_t)row * N + col, row < M ? N - col : 0, aligned_a);
    }
    // Row 4 x + j of the tile holds column 4 x + j of A; this thread has piece y of it. Lanes with different x
    // are 4 rows apart, all in the same banks: the exclusive or spreads 8 of them over all 32 banks.
    for (int j = 0; j < 4; ++j)
        tile[4 * x + j][y ^ x] = make_float4(((float *)&a[0])[j], ((float *)&a[1])[j],
                                             ((float *)&a[2])[j], ((float *)&a[3])[j]);
    __syncthreads();  // what a thread writes comes from others
    for (int i = 0; i < 4; ++i) {
        int row = y + 16 * i;  // of the tile; piece x of it
        int left = col0 + row < N ? M - row0 - 4 * x : 0;
        store4(B + (size_t)(col0 + row) * M + row0 + 4 * x, tile[row][x ^ row / 4], left, aligned_b);
    }
    // END SOLUTION
}
