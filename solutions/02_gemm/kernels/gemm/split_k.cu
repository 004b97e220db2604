// gemm/split_k: C[M, N] = A[M, K] @ B[K, N] in float32, for small M * N and large K.
//
// Against double_buffered: where C has few tiles, most of the machine would idle. Here blockIdx.z cuts
// K into slices; each slice leaves its partial sums in a workspace, and a second kernel adds them, in
// order, so that the result is the same in every run. Tiles are 64 x 64, for more blocks still.
// Watch: waves per multiprocessor rise from next to nothing to several; C's bytes are paid per slice.
//
// About 4224 blocks (32 for each of an H200's 132 multiprocessors), in at most 64 slices of at least 64.
// workspace partial float32 (
//     max(1, min(64, min(4224 / (((N + 63) / 64) * ((M + 63) / 64)), (K + 63) / 64))), M, N)
// launch gemm_split_k<<<((N + 63) / 64, (M + 63) / 64,
//     max(1, min(64, min(4224 / (((N + 63) / 64) * ((M + 63) / 64)), (K + 63) / 64)))), (64), 0>>>(
//     partial, A, B, M, N, K)
// launch gemm_split_k_sum<<<((M * N + 255) / 256), (256), 0>>>(C, partial, M, N,
//     max(1, min(64, min(4224 / (((N + 63) / 64) * ((M + 63) / 64)), (K + 63) / 64))))

constexpr int BM = 64, BN = 64, BK = 8;    // tile of C, and how much of K is staged at a time
constexpr int TM = 8, TN = 8;              // elements of C per thread
constexpr int THREADS = 64;

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

extern "C" __global__ void __launch_bounds__(THREADS, 6)
gemm_split_k(float *partial, const float *A, const float *B, int M, int N, int K)
{
    __shared__ __align__(16) float tA[2][BK][BM + 4];  // transposed, padded
    __shared__ __align__(16) float tB[2][BK][BN];
    int t = threadIdx.x;
    int x = t % 8, y = t / 8;
    int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    bool aligned_a = K % 4 == 0 && (size_t)A % 16 == 0;
    bool aligned_b = N % 4 == 0 && (size_t)B % 16 == 0;
    bool aligned_c = N % 4 == 0 && (size_t)partial % 16 == 0;
    float acc[TM][TN] = {};
    // BEGIN SOLUTION
    // This block's slice of K: whole tiles, so that alignment holds. The last slices may be short or empty.
    int slice = ((K + gridDim.z - 1) / gridDim.z + BK - 1) / BK * BK;
    int k_begin = min(K, (int)blockIdx.z * slice), k_end = min(K, k_begin + slice);
    int ar = t / (BK / 4), ak = t % (BK / 4) * 4;  // of each tile, this thread copies 4 floats
    int bk = t / (BN / 4), bc = t % (BN / 4) * 4;  // and 4 more half a tile further
    float4 va[2], vb[2];
    auto load = [&](int k0) {  // global memory -> registers
        for (int p = 0; p < 2; ++p) {
            int row = row0 + ar + BM / 2 * p, k = k0 + bk + BK / 2 * p;
            va[p] = load4(A + (size_t)row * K + k0 + ak, row < M ? k_end - k0 - ak : 0, aligned_a);
            vb[p] = load4(B + (size_t)k * N + col0 + bc, k < k_end ? N - col0 - bc : 0, aligned_b);
        }
    };
    auto store = [&](int s) {  // registers -> buffer s
        for (int p = 0; p < 2; ++p) {
            tA[s][ak + 0][ar + BM / 2 * p] = va[p].x;
            tA[s][ak + 1][ar + BM / 2 * p] = va[p].y;
            tA[s][ak + 2][ar + BM / 2 * p] = va[p].z;
            tA[s][ak + 3][ar + BM / 2 * p] = va[p].w;
            *(float4 *)&tB[s][bk + BK / 2 * p][bc] = vb[p];
        }
    };
    load(k_begin);
    store(0);
    __syncthreads();
    int s = 0;  // the buffer to compute on
    for (int k0 = k_begin; k0 < k_end; k0 += BK) {
        bool more = k0 + BK < k_end;
        if (more)
            load(k0 + BK);  // nothing waits for these loads until the store below
        #pragma unroll 2
        for (int k = 0; k < BK; ++k) {
            float4 a[2], b[2];
            a[0] = *(float4 *)&tA[s][k][y * 4];
            a[1] = *(float4 *)&tA[s][k][BM / 2 + y * 4];
            b[0] = *(float4 *)&tB[s][k][x * 4];
            b[1] = *(float4 *)&tB[s][k][BN / 2 + x * 4];
            for (int i = 0; i < TM; ++i)
                for (int step = 0; step < TN; ++step) {  // to and fro, as in warp_tile
                    int j = i & 1 ? TN - 1 - step : step;
                    acc[i][j] += ((float *)a)[i] * ((float *)b)[j];
                }
        }
        s ^= 1;
        if (more)
            store(s);  // nobody has read buffer s since the barrier of the tile before
        __syncthreads();  // the next tile is there, and nobody reads the old one any more
    }
    // END SOLUTION
    float *mine = partial + (size_t)blockIdx.z * M * N;
    for (int i = 0; i < TM; ++i) {
        int row = row0 + i / 4 * (BM / 2) + y * 4 + i % 4;
        for (int j = 0; j < TN; j += 4) {
            int col = col0 + j / 4 * (BN / 2) + x * 4;
            // Adding 0 keeps acc out of b's register banks, as in warp_tile.
            float4 v = make_float4(acc[i][j] + 0.0f, acc[i][j + 1] + 0.0f, acc[i][j + 2] + 0.0f, acc[i][j + 3] + 0.0f);
            store4(mine + (size_t)row * N + col, v, row < M ? N - col : 0, aligned_c);
        }
    }
}

extern "C" __global__ void gemm_split_k_sum(float *C, const float *partial, int M, int N, int slices)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, size = (size_t)M * N;
    if (i >= size)
        return;
    // BEGIN SOLUTION
    float sum = 0.0f;
    for (int z = 0; z < slices; ++z)
        sum += partial[z * size + i];
    C[i] = sum;
    // END SOLUTION
}
