// gemm_int8/int8_mma: C[M, N] = A[M, K] @ B[N, K].T, int8 in, exact sums and C in int32.
//
// Against int8_wmma: what took gemm_f16 from wmma_tiled to mma_tuned, at once. ldmatrix and mma.sync m16n8k32
// on swizzled tiles, cp.async into four stages, blocks that stay for all tiles, in an order for the L2. ldmatrix
// moves rows of 16 bytes and does not ask what is in them; it could not turn int8 round, but need not: both
// operands have K as their inner dimension, which is the way mma wants them.
// Watch: tensor pipe; instructions per tensor operation.
//
// SMS is the number of multiprocessors (compile with -DSMS=... for others). Right for any.
// launch gemm_int8_mma<<<(min(SMS, ((N + BN - 1) / BN) * ((M + BM - 1) / BM))), (THREADS), STAGES * STAGE>>>(C, A, B, M, N, K)

#ifndef SMS
#define SMS 132
#endif
using T = signed char;

constexpr int BM = 128, BN = 256, BK = 64;  // tile of a block, and how much of K is staged at a time
constexpr int WM = 64, WN = 64;             // tile of a warp
constexpr int STAGES = 4;                   // tiles in shared memory: one is used, the others are on their way
constexpr int THREADS = BM / WM * (BN / WN) * 32;
constexpr int GROUP = 8;                    // rows of tiles that are walked down together
constexpr int STAGE = BM * BK + BN * BK;    // bytes of a stage

// Where element (r, k) of a tile lies. 8 rows at the same k fill the 128 bytes of the banks once.
__device__ int place(int r, int k)
{
    return r * BK + ((k / 16) ^ (r / 2 % 4)) * 16 + k % 16;
}

// Start copying 16 bytes to shared memory; zeros instead where they lie outside.
__device__ void copy(unsigned to, const T *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

// A tile whose rows are not aligned to 16 bytes: element by element, through registers.
template <int ROWS>
__device__ void copy_unaligned(T *to, const T *from, int ld, int rows, int cols)
{
    for (int i = threadIdx.x; i < ROWS * BK; i += THREADS) {
        int r = i / BK, c = i % BK;
        to[place(r, c)] = r < rows && c < cols ? from[(size_t)r * ld + c] : 0;
    }
}

// Four matrices of 8 x 16: lane n says where row n % 8 of matrix n / 8 lies, and receives four elements of each.
__device__ void ldmatrix(unsigned (&to)[4], unsigned at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}

// c += a @ b, 16 x 32 by 32 x 8. Lane 4 * g + q holds of c rows g and g + 8, columns 2 * q and 2 * q + 1.
__device__ void mma(int (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// This block's tiles of C. ALIGNED: rows of A and B begin on 16 bytes.
template <bool ALIGNED>
__device__ void multiply(int *C, const T *A, const T *B, int M, int N, int K)
{
    extern __shared__ __align__(128) T shared[];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int wm = warp / (BN / WN) * WM, wn = warp % (BN / WN) * WN;
    bool aligned_c = N % 2 == 0 && (size_t)C % 8 == 0;
    int c[WM / 16][WN / 8][4] = {};
    int tiles_m = (M + BM - 1) / BM, tiles_n = (N + BN - 1) / BN;
    auto corner = [&](int tile, int &row0, int &col0) {
        // BEGIN SOLUTION
        int group = tile / (GROUP * tiles_n), first = group * GROUP, rows = min(GROUP, tiles_m - first);
        tile -= group * GROUP * tiles_n;
        row0 = (first + tile % rows) * BM;
        col0 = tile / rows * BN;
        // END SOLUTION
    };
    auto store = [&](int row0, int col0) {
        #pragma unroll
        for (int i = 0; i < WM / 16; ++i)
            #pragma unroll
            for (int j = 0; j < WN / 8; ++j)
                #pragma unroll
                for (int half = 0; half < 2; ++half) {
                    int row = row0 + wm + 16 * i + 8 * half + lane / 4, col = col0 + wn + 8 * j + lane % 4 * 2;
                    int *to = C + (size_t)row * N + col;
                    if (aligned_c && row < M && col < N)
                        *(int2 *)to = make_int2(c[i][j][2 * half], c[i][j][2 * half + 1]);
                    else if (row < M)
                        for (int e = 0; e < 2 && col + e < N; ++e)
                            to[e] = c[i][j][2 * half + e];
                }
    };
    // BEGIN SOLUTION
    // This thread copies 16 bytes of every ROWS-th row of either tile. They keep their places in the rows, for the
    // swizzle repeats after 8 rows. What lies below or right of C is never stored: there, copy the last row again.
    constexpr int ROWS = THREADS / (BK / 16);
    static_assert(ROWS % 8 == 0, "the swizzle repeats after 8 rows");
    int r = threadIdx.x / (BK / 16), ck = threadIdx.x % (BK / 16) * 16;
    unsigned base = __cvta_generic_to_shared(shared), to_a = base + place(r, ck), to_b = to_a + BM * BK;
    int steps = (K + BK - 1) / BK;  // of a tile
    int row0, col0, copied = 0, tile_copied = blockIdx.x, s_copied = 0;  // step, tile and stage of the next copies
    const T *from_a[BM / ROWS], *from_b[BN / ROWS];
    auto begin = [&] {  // the copies of a tile
        corner(tile_copied, row0, col0);
        #pragma unroll
        for (int j = 0; j < BM / ROWS; ++j)
            from_a[j] = A + (size_t)min(row0 + r + ROWS * j, M - 1) * K + ck;
        #pragma unroll
        for (int j = 0; j < BN / ROWS; ++j)
            from_b[j] = B + (size_t)min(col0 + r + ROWS * j, N - 1) * K + ck;
    };
    begin();
    auto start = [&] {  // the copies of a step, and go on to the next one
        if (tile_copied < tiles_m * tiles_n) {
            int k0 = copied * BK, left = K - k0;
            if constexpr (ALIGNED) {
                #pragma unroll
                for (int j = 0; j < BM / ROWS; ++j)
                    copy(to_a + s_copied * STAGE + ROWS * j * BK, from_a[j] + k0, ck < left);
                #pragma unroll
                for (int j = 0; j < BN / ROWS; ++j)
                    copy(to_b + s_copied * STAGE + ROWS * j * BK, from_b[j] + k0, ck < left);
            } else {
                T *tA = shared + s_copied * STAGE;
                copy_unaligned<BM>(tA, A + (size_t)row0 * K + k0, K, M - row0, left);
                copy_unaligned<BN>(tA + BM * BK, B + (size_t)col0 * K + k0, K, N - col0, left);
            }
            s_copied = s_copied + 1 == STAGES ? 0 : s_copied + 1;
            if (++copied == steps) {
                copied = 0;
                tile_copied += gridDim.x;
                begin();
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");  // an empty group keeps the count
    };
    auto arrive = [&] {  // the next step's tiles are there, and nobody reads those of the last one any more
        asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
        __syncthreads();
    };
    // Where this lane's rows lie within a stage, for each k; and 16 rows further for each i and j.
    unsigned lane_a[BK / 32], lane_b[BK / 32], a[2][WM / 16][4], b[2][WN / 16][4];
    for (int k = 0; k < BK; k += 32) {
        lane_a[k / 32] = base + place(wm + lane % 16, k + lane / 16 * 16);
        lane_b[k / 32] = base + BM * BK + place(wn + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 16);
    }
    auto load = [&](int f, int s, int k) {
        for (int i = 0; i < WM / 16; ++i)
            ldmatrix(a[f][i], s * STAGE + lane_a[k / 32] + 16 * i * BK);
        for (int j = 0; j < WN / 16; ++j)
            ldmatrix(b[f][j], s * STAGE + lane_b[k / 32] + 16 * j * BK);
    };
    for (int step = 0; step < STAGES - 1; ++step)
        start();
    arrive();
    load(0, 0, 0);
    int s = 0;  // the stage that is multiplied
    for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x) {
        for (int step = 0; step < steps; ++step) {
            int next = s + 1 == STAGES ? 0 : s + 1;
            bool more = step + 1 < steps || tile + gridDim.x < tiles_m * tiles_n;
            #pragma unroll
            for (int k = 0; k < BK; k += 32) {
                if (k == BK - 32)
                    arrive();
                if (k < BK - 32 || more)
                    load((k / 32 + 1) % 2, k < BK - 32 ? s : next, (k + 32) % BK);
                if (k == 0)
                    start();  // into the stage of the step before, which is done since the last barrier
                for (int i = 0; i < WM / 16; ++i)
                    for (int j = 0; j < WN / 8; ++j)
                        mma(c[i][j], a[k / 32 % 2][i], b[k / 32 % 2][j / 2][j % 2 * 2],
                            b[k / 32 % 2][j / 2][j % 2 * 2 + 1]);
            }
            s = next;
        }
        int row, col;
        corner(tile, row, col);
        store(row, col);
        for (auto &rows : c)
            for (auto &sums : rows)
                for (int &sum : sums)
                    sum = 0;
    }
    // END SOLUTION
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm_int8_mma(int *C, const T *A, const T *B, int M, int N, int K)
{
    if (K % 16 == 0 && (size_t)A % 16 == 0 && (size_t)B % 16 == 0)
        multiply<true>(C, A, B, M, N, K);
    else
        multiply<false>(C, A, B, M, N, K);
}
