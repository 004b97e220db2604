// gemm/warp_tile: C[M, N] = A[M, K] @ B[K, N] in float32, one thread per 8 x 16 elements of C.
//
// Against double_buffered: three levels of tiles. A block owns 128 x 256 of C, each of its 8 warps
// 64 x 64 of that, each thread 8 x 16 of its warp's: 24 floats read feed 128 multiply-adds. cp.async
// carries tiles from global to shared memory with no register between, and a thread reads its values
// for k + 1 while it multiplies those of k. The rest is bookkeeping kept off the multiplier's back:
// nothing but additions in the copies, and an order of multiply-adds that suits the register file.
// Watch: wavefronts per multiply-add, instructions that are no FFMA, dispatch stalls (register banks).
//
// launch gemm_warp_tile<<<((N + 255) / 256, (M + 127) / 128), (256), 49664>>>(C, A, B, M, N, K)

constexpr int BM = 128, BN = 256, BK = 16;  // tile of a block, and how much of K is staged at a time
constexpr int WM = 64, WN = 64;             // tile of a warp
constexpr int TM = 8, TN = 16;              // elements of C per thread
constexpr int STAGES = 2;                   // tiles of A and B in shared memory
constexpr int THREADS = BM / WM * (BN / WN) * 32;
constexpr int LDA = BM + 4;                          // row of a tile of A, padded against conflicts
constexpr int LANES_M = WM / TM, LANES_N = WN / TN;  // lanes of a warp: 8 down, 4 across

// Start copying 4 or 16 bytes to shared memory; zeros instead where they lie outside.
template <int BYTES>
__device__ void copy(float *to, const float *from, bool inside)
{
    unsigned at = __cvta_generic_to_shared(to);
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(at), "l"(from), "r"(inside ? 16 : 0));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"(at), "l"(from), "r"(inside ? 4 : 0));
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
    // This thread copies column ak of A's tile in every ROWS_A-th row, 4 bytes at a time, for A is turned
    // round on its way; and of B's tile 16 bytes in every ROWS_B-th row, or one column if B is unaligned.
    // What lies below or right of C is never stored: there, copy the last row or column again.
    constexpr int ROWS_A = THREADS / BK, ROWS_B = THREADS * 4 / BN;
    static_assert(THREADS == BN, "one thread per column of B's tile");
    int ak = t % BK, ar = t / BK, bk = t / (BN / 4), bc = t % (BN / 4) * 4;
    const float *from_a[BM / ROWS_A];
    for (int j = 0; j < BM / ROWS_A; ++j)
        from_a[j] = A + (size_t)min(row0 + ar + ROWS_A * j, M - 1) * K + ak;
    const float *from_b = B + (aligned_b ? (size_t)bk * N + min(col0 + bc, N - 4) : min(col0 + t, N - 1));
    auto fetch = [&](int i) {  // start the copies of tile number i
        int s = i % STAGES, left = K - i * BK;
        for (int j = 0; j < BM / ROWS_A; ++j) {
            copy<4>(&tA[s][ak][ar + ROWS_A * j], from_a[j], ak < left);
            from_a[j] += BK;
        }
        if (aligned_b)
            for (int k = 0; k < BK; k += ROWS_B)
                copy<16>(&tB[s][bk + k][bc], from_b + (size_t)k * N, bk + k < left);
        else
            for (int k = 0; k < BK; ++k)
                copy<4>(&tB[s][k][t], from_b + (size_t)k * N, k < left);
        from_b += (size_t)BK * N;
        asm volatile("cp.async.commit_group;");
    };
    auto next_tile = [&] {
        asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2));  // this thread's part of it is there
        __syncthreads();  // everybody's is
    };
    // This thread's part of row k of stage s: every LANES_M-th group of 4 rows, every LANES_N-th of columns.
    float a[2][TM], b[2][TN];
    auto read = [&](int to, int s, int k) {
        for (int i = 0; i < TM; i += 4)
            *(float4 *)&a[to][i] = *(float4 *)&tA[s][k][m0 + i * LANES_M];
        for (int j = 0; j < TN; j += 4)
            *(float4 *)&b[to][j] = *(float4 *)&tB[s][k][n0 + j * LANES_N];
    };
    // To and fro along the rows: every multiply-add shares a factor with the one before, which saves a
    // read of a register bank, even at the ends of rows.
    auto multiply = [&](int f) {
        for (int i = 0; i < TM; ++i)
            for (int step = 0; step < TN; ++step) {
                int j = i & 1 ? TN - 1 - step : step;
                acc[i][j] += a[f][i] * b[f][j];
            }
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
            multiply(k % 2);
        }
    }
    // END SOLUTION
    for (int i = 0; i < TM; ++i) {
        int row = row0 + m0 + i / 4 * 4 * LANES_M + i % 4;
        for (int j = 0; j < TN; j += 4) {
            int col = col0 + n0 + j * LANES_N;
            // A 16-byte store needs 4 registers in a row, as a 16-byte read of b does: acc[i][j] and b[j]
            // would share a register bank all through the loop. Adding 0 lets them differ.
            float4 v = make_float4(acc[i][j] + 0.0f, acc[i][j + 1] + 0.0f, acc[i][j + 2] + 0.0f, acc[i][j + 3] + 0.0f);
            store4(C + (size_t)row * N + col, v, row < M ? N - col : 0, aligned_c);
        }
    }
}
