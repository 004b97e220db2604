// gemm/warp_tile: C[M, N] = A[M, K] @ B[K, N] in float32, one thread per 8 x 16 elements of C.
//
// Against double_buffered: three levels of tiles. A block owns 128 x 256 of C, each of its 8 warps
// 64 x 64 of that, each thread 8 x 16 of its warp's: 24 floats read feed 128 multiply-adds. cp.async
// carries tiles from global to shared memory with no register between, STAGES - 1 tiles ahead, and
// a thread reads its values for k + 1 while it multiplies those of k.
// Watch: wavefronts per multiply-add, registers (one block per multiprocessor), stalls of every kind.
//
// launch gemm_warp_tile<<<((N + 255) / 256, (M + 127) / 128), (256), 49664>>>(C, A, B, M, N, K)

constexpr int BM = 128, BN = 256, BK = 8;  // tile of a block, and how much of K is staged at a time
constexpr int WM = 64, WN = 64;            // tile of a warp
constexpr int TM = 8, TN = 16;             // elements of C per thread
constexpr int STAGES = 4;                  // tiles of A and B in shared memory
constexpr int THREADS = BM / WM * (BN / WN) * 32;
constexpr int LDA = BM + 4;                // row of a tile of A, padded against conflicts of its stores
constexpr int LANES_M = WM / TM, LANES_N = WN / TN;  // lanes of a warp: 8 down, 4 across

// Start copying one float, or zero where it lies outside, to shared memory.
__device__ void copy1(float *to, const float *from, bool inside)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(inside ? 4 : 0));
}

// The same for 4 floats, of which the first `left` lie inside; in one piece where `from` is aligned.
__device__ void copy4(float *to, const float *from, int left, bool aligned)
{
    if (aligned) {
        int bytes = 4 * max(0, min(4, left));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(bytes));
    } else {
        for (int j = 0; j < 4; ++j)
            copy1(to + j, from + j, j < left);
    }
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
gemm_warp_tile(float *C, const float *A, const float *B, int M, int N, int K)
{
    extern __shared__ float4 shared[];
    auto tA = (float (*)[BK][LDA])shared;        // [STAGES][BK][BM], transposed
    auto tB = (float (*)[BK][BN])(tA + STAGES);  // [STAGES][BK][BN]
    int t = threadIdx.x, warp = t / 32, lane = t % 32;
    int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    bool aligned_b = N % 4 == 0 && (size_t)B % 16 == 0;
    bool aligned_c = N % 4 == 0 && (size_t)C % 16 == 0;
    // Lanes n and n ^ 1 share their rows, n and n ^ 2 their columns: then a 16-byte read of a warp takes
    // 2 wavefronts, not 4.
    int lane_m = (lane & 2) / 2 + lane / 8 * 2, lane_n = (lane & 1) + (lane & 4) / 2;
    int m0 = warp / (BN / WN) * WM + lane_m * 4;  // first row and column of this thread in the tile
    int n0 = warp % (BN / WN) * WN + lane_n * 4;
    float acc[TM][TN] = {};
    // BEGIN SOLUTION
    // Start the copies of tile number i: 4 bytes at a time for A, which is turned round on its way.
    auto fetch = [&](int i) {
        int s = i % STAGES, k0 = i * BK;
        for (int j = t; j < BM * BK; j += THREADS) {
            int r = j / BK, k = j % BK;
            copy1(&tA[s][k][r], A + (size_t)(row0 + r) * K + k0 + k, row0 + r < M && k0 + k < K);
        }
        for (int j = t * 4; j < BK * BN; j += THREADS * 4) {
            int k = j / BN, c = j % BN;
            copy4(&tB[s][k][c], B + (size_t)(k0 + k) * N + col0 + c, k0 + k < K ? N - col0 - c : 0, aligned_b);
        }
        asm volatile("cp.async.commit_group;");
    };
    // This thread's part of row k of stage s: every (4 * LANES_M)-th group of 4 rows, and so for columns.
    float a[2][TM], b[2][TN];
    auto read = [&](int to, int s, int k) {
        for (int i = 0; i < TM; i += 4)
            *(float4 *)&a[to][i] = *(float4 *)&tA[s][k][m0 + i * LANES_M];
        for (int j = 0; j < TN; j += 4)
            *(float4 *)&b[to][j] = *(float4 *)&tB[s][k][n0 + j * LANES_N];
    };
    auto next_tile = [&] {
        asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2));  // this thread's part of it is there
        __syncthreads();  // everybody's is
    };
    for (int i = 0; i < STAGES - 1; ++i)
        fetch(i);
    next_tile();
    read(0, 0, 0);
    int tiles = (K + BK - 1) / BK;
    for (int i = 0; i < tiles; ++i) {
        #pragma unroll
        for (int k = 0; k < BK; ++k) {
            if (k == BK - 1)
                next_tile();
            read((k + 1) % 2, (i + (k + 1) / BK) % STAGES, (k + 1) % BK);
            if (k == 0)
                fetch(i + STAGES - 1);  // into the stage that nobody reads since the last barrier
            for (int m = 0; m < TM; ++m)
                for (int n = 0; n < TN; ++n)
                    acc[m][n] += a[k % 2][m] * b[k % 2][n];
        }
    }
    // END SOLUTION
    for (int i = 0; i < TM; ++i) {
        int row = row0 + m0 + i / 4 * 4 * LANES_M + i % 4;
        for (int j = 0; j < TN; j += 4) {
            int col = col0 + n0 + j * LANES_N;
            float4 v = make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
            store4(C + (size_t)row * N + col, v, row < M ? N - col : 0, aligned_c);
        }
    }
}
