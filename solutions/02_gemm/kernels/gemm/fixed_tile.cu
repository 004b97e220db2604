// gemm/fixed_tile: C[M, N] = A[M, K] @ B[K, N] in float32, one block per 256 x 128 tile of C, whatever the size.
//
// An instrument rather than a rung: libraries change their tile from one size to the next, this kernel never
// does. Each of its 256 threads holds 16 x 8 sums in registers, which leaves a multiprocessor room for one
// block at a time. So the time is that of the tile, times the waves in which the tiles run.
// Watch: time against N; it goes up in steps.
//
// launch gemm_fixed_tile<<<((N + 127) / 128, (M + 255) / 256), (256), 0>>>(C, A, B, M, N, K)

constexpr int BM = 256, BN = 128, BK = 8;  // tile of C, and how much of K is staged at a time
constexpr int TM = 16, TN = 8;             // elements of C per thread
constexpr int THREADS = 256;
constexpr int LDA = BM + 4;                // row of a tile of A, padded against conflicts of its stores

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

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm_fixed_tile(float *C, const float *A, const float *B, int M, int N, int K)
{
    __shared__ __align__(16) float tA[2][BK][LDA];  // transposed; two stages, one being filled
    __shared__ __align__(16) float tB[2][BK][BN];
    int t = threadIdx.x, warp = t / 32, lane = t % 32;
    int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    bool aligned_a = K % 4 == 0 && (size_t)A % 16 == 0;
    bool aligned_b = N % 4 == 0 && (size_t)B % 16 == 0;
    bool aligned_c = N % 4 == 0 && (size_t)C % 16 == 0;
    // A warp owns 64 x 64 of the tile, as 4 x 8 lanes. Lanes n and n ^ 1 share their rows, n and n ^ 2 their
    // columns: then a 16-byte read of shared memory takes 2 wavefronts, not 4.
    int lane_m = (lane & 2) / 2 + (lane & 16) / 8, lane_n = (lane & 1) + (lane & 12) / 2;
    int m0 = warp / 2 * 64 + lane_m * 4, n0 = warp % 2 * 64 + lane_n * 4;
    // For the copies to shared memory: two rows of A half a tile apart, and one row of B.
    int copy_m = t / 2, copy_ak = t % 2 * 4, copy_bk = t / 32, copy_n = t % 32 * 4;
    float acc[TM][TN] = {};
    float4 next_a[2], next_b;  // on their way from global memory
    auto fetch = [&](int k0) {
        for (int p = 0; p < 2; ++p) {
            int row = row0 + copy_m + BM / 2 * p;
            next_a[p] = load4(A + (size_t)row * K + k0 + copy_ak, row < M ? K - k0 - copy_ak : 0, aligned_a);
        }
        int k = k0 + copy_bk;
        next_b = load4(B + (size_t)k * N + col0 + copy_n, k < K ? N - col0 - copy_n : 0, aligned_b);
    };
    auto stage = [&](int s) {
        for (int p = 0; p < 2; ++p) {
            float *to = &tA[s][copy_ak][copy_m + BM / 2 * p];
            to[0] = next_a[p].x;
            to[LDA] = next_a[p].y;
            to[2 * LDA] = next_a[p].z;
            to[3 * LDA] = next_a[p].w;
        }
        *(float4 *)&tB[s][copy_bk][copy_n] = next_b;
    };
    fetch(0);
    stage(0);
    __syncthreads();
    int steps = (K + BK - 1) / BK;
    for (int step = 0; step < steps; ++step) {
        int s = step % 2;
        fetch((step + 1) * BK);  // past the end of K this reads nothing
        #pragma unroll
        for (int k = 0; k < BK; k++) {
            float4 a[TM / 4], b[TN / 4];
            for (int i = 0; i < TM / 4; ++i)
                a[i] = *(float4 *)&tA[s][k][m0 + i * 16];
            for (int j = 0; j < TN / 4; ++j)
                b[j] = *(float4 *)&tB[s][k][n0 + j * 32];
            for (int i = 0; i < TM; ++i)
                for (int j = 0; j < TN; ++j)
                    acc[i][j] = fmaf(((float *)a)[i], ((float *)b)[j], acc[i][j]);
        }
        stage(s ^ 1);     // nobody has read that stage since the barrier of the step before
        __syncthreads();  // it is there for all
    }
    for (int i = 0; i < TM; ++i) {
        int row = row0 + m0 + i / 4 * 16 + i % 4;
        for (int j = 0; j < TN / 4; j++) {
            int col = col0 + n0 + j * 32;
            float4 v = *(float4 *)&acc[i][4 * j];
            store4(C + (size_t)row * N + col, v, row < M ? N - col : 0, aligned_c);
        }
    }
}
