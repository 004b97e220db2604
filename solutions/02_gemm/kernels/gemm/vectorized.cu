// gemm/vectorized: C[M, N] = A[M, K] @ B[K, N] in float32, one thread per 8 x 8 elements of C.
//
// Against register_2d: memory moves in pieces of 16 bytes, global and shared. To read 4 rows of A at
// once, the tile of A lies transposed in shared memory, turned round on its way in.
// Watch: global load requests and shared load instructions fall; wavefronts fall less.
//
// launch gemm_vectorized<<<((N + 127) / 128, (M + 127) / 128), (256), 0>>>(C, A, B, M, N, K)

constexpr int BM = 128, BN = 128, BK = 8;  // tile of C, and how much of K is staged at a time
constexpr int TM = 8, TN = 8;              // elements of C per thread
constexpr int THREADS = 256;

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

extern "C" __global__ void __launch_bounds__(THREADS)
gemm_vectorized(float *C, const float *A, const float *B, int M, int N, int K)
{
    __shared__ __align__(16) float tA[BK][BM + 4];  // transposed; padded against conflicts of its stores
    __shared__ __align__(16) float tB[BK][BN];
    int t = threadIdx.x;
    int x = t % 16, y = t / 16;
    int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    // Rows of A start on 16 bytes if A does and K is a multiple of 4; so for B and C with N.
    bool aligned_a = K % 4 == 0 && (size_t)A % 16 == 0;
    bool aligned_b = N % 4 == 0 && (size_t)B % 16 == 0;
    bool aligned_c = N % 4 == 0 && (size_t)C % 16 == 0;
    float acc[TM][TN] = {};
    // BEGIN SOLUTION
    int ar = t / (BK / 4), ak = t % (BK / 4) * 4;  // the 4 floats of each tile that this thread copies
    int bk = t / (BN / 4), bc = t % (BN / 4) * 4;
    const float *a_row = A + (size_t)(row0 + ar) * K;
    for (int k0 = 0; k0 < K; k0 += BK) {
        float4 va = load4(a_row + k0 + ak, row0 + ar < M ? K - k0 - ak : 0, aligned_a);
        float4 vb = load4(B + (size_t)(k0 + bk) * N + col0 + bc, k0 + bk < K ? N - col0 - bc : 0, aligned_b);
        tA[ak + 0][ar] = va.x;
        tA[ak + 1][ar] = va.y;
        tA[ak + 2][ar] = va.z;
        tA[ak + 3][ar] = va.w;
        *(float4 *)&tB[bk][bc] = vb;
        __syncthreads();  // nobody reads a tile before all of it is there
        #pragma unroll 2
        for (int k = 0; k < BK; ++k) {
            // Two groups of 4 rows and of 4 columns, half a tile apart: lanes read neighboring pieces.
            float4 a[2], b[2];
            a[0] = *(float4 *)&tA[k][y * 4];
            a[1] = *(float4 *)&tA[k][BM / 2 + y * 4];
            b[0] = *(float4 *)&tB[k][x * 4];
            b[1] = *(float4 *)&tB[k][BN / 2 + x * 4];
            for (int i = 0; i < TM; ++i)
                for (int j = 0; j < TN; ++j)
                    acc[i][j] += ((float *)a)[i] * ((float *)b)[j];
        }
        __syncthreads();  // nobody overwrites a tile while others still read it
    }
    // END SOLUTION
    for (int i = 0; i < TM; ++i) {
        int row = row0 + i / 4 * (BM / 2) + y * 4 + i % 4;
        for (int j = 0; j < TN; j += 4) {
            int col = col0 + j / 4 * (BN / 2) + x * 4;
            float4 v = make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
            store4(C + (size_t)row * N + col, v, row < M ? N - col : 0, aligned_c);
        }
    }
}
