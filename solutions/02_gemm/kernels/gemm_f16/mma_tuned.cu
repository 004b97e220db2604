// gemm_f16/mma_tuned: C[M, N] = A[M, K] @ B[K, N], float16 (or bfloat16, -DBF16) in, sums and C in float32.
//
// Against mma_async: which tiles are in flight together, no pause between them, and none between the products. As many
// blocks as there are multiprocessors stay for all tiles, and each walks through its tiles in one stream of steps:
// while it stores one tile, the next one's first steps are already on their way. Tiles are taken in groups of 8 rows,
// down before across, so that those in flight together form a square and share their rows of A and columns of B in
// the L2. Within a step, the copies are spread over the products, and no branch stands before them (after the last tile
// they bring zeros): the compiler can put each one between two multiplications. And a warp goes through the columns of
// its tile forth and back, so that two multiplications in a row share a fragment.
// Watch: L2 hit rate; DRAM bytes; the gap between waves; tensor pipe; instructions per multiplication.
//
// SMS is the number of multiprocessors (compile with -DSMS=... for others). Right for any.
// launch gemm_f16_mma_tuned<<<(min(SMS, ((N + BN - 1) / BN) * ((M + BM - 1) / BM))), (THREADS), STAGES * STAGE * 2>>>(C, A, B, M, N, K)

#ifndef SMS
#define SMS 132
#endif
#ifdef BF16
#include <cuda_bf16.h>
using T = __nv_bfloat16;
#define KIND "bf16"
#else
#include <cuda_fp16.h>
using T = __half;
#define KIND "f16"
#endif

constexpr int BM = 128, BN = 256, BK = 64;  // tile of a block, and how much of K is staged at a time
constexpr int WM = 64, WN = 64;             // tile of a warp
constexpr int STAGES = 4;                   // tiles in shared memory: one is used, the others are on their way
constexpr int THREADS = BM / WM * (BN / WN) * 32;
constexpr int GROUP = 8;                    // rows of tiles that are walked down together
constexpr int STAGE = BM * BK + BK * BN;    // elements of a stage

// Where element (r, c) of a tile with COLS columns lies. 8 rows at the same c fill the 128 bytes of the banks once.
template <int COLS>
__device__ int place(int r, int c)
{
    constexpr int ROWS_PER_LINE = COLS < 64 ? 64 / COLS : 1;  // a line is 128 bytes
    constexpr int PIECES = COLS < 64 ? COLS / 8 : 8;
    return r * COLS + ((c / 8) ^ (r / ROWS_PER_LINE % PIECES)) * 8 + c % 8;
}

// Start copying 16 bytes to shared memory; zeros instead where they lie outside.
__device__ void copy(unsigned to, const T *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

// A tile whose rows are not aligned to 16 bytes: element by element, through registers.
template <int ROWS, int COLS>
__device__ void copy_unaligned(T *to, const T *from, int ld, int rows, int cols)
{
    for (int i = threadIdx.x; i < ROWS * COLS; i += THREADS) {
        int r = i / COLS, c = i % COLS;
        to[place<COLS>(r, c)] = r < rows && c < cols ? from[(size_t)r * ld + c] : T(0.0f);
    }
}

// Four 8 x 8 matrices: lane n says where row n % 8 of matrix n / 8 lies, and receives two elements of each.
__device__ void ldmatrix(unsigned (&to)[4], unsigned at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}

__device__ void ldmatrix_transposed(unsigned (&to)[4], unsigned at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}

// c += a @ b, 16 x 16 by 16 x 8. Lane 4 * g + q holds of c rows g and g + 8, columns 2 * q and 2 * q + 1.
__device__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32." KIND "." KIND ".f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// This block's tiles of C. ALIGNED: rows of A and B begin on 16 bytes.
template <bool ALIGNED>
__device__ void multiply(float *C, const T *A, const T *B, int M, int N, int K)
{
    extern __shared__ __align__(128) T shared[];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int wm = warp / (BN / WN) * WM, wn = warp % (BN / WN) * WN;
    bool aligned_c = N % 2 == 0 && (size_t)C % 8 == 0;
    float c[WM / 16][WN / 8][4] = {};
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
                    float *to = C + (size_t)row * N + col;
                    if (aligned_c && row < M && col < N)
                        *(float2 *)to = make_float2(c[i][j][2 * half], c[i][j][2 * half + 1]);
                    else if (row < M)
                        for (int e = 0; e < 2 && col + e < N; ++e)
                            to[e] = c[i][j][2 * half + e];
                }
    };
    // BEGIN SOLUTION
    // This thread copies 16 bytes of every ROWS-th row of A's tile, and of every ROWS-th row of each 64 columns of B's.
    // They keep their places in the rows, for the swizzle repeats after 8 rows and after 64 columns. What lies outside
    // becomes zeros. These PIECES of a step, A's first, are started in PARTS: one beside the products of each 16 of k
    // but the last.
    constexpr int ROWS = THREADS / 8, PIECES_A = BM / ROWS, PIECES = PIECES_A + BK / ROWS * (BN / 64);
    constexpr int PARTS = BK / 16 - 1;
    static_assert(BK == 64 && ROWS % 8 == 0, "a row of A's tile is 8 times 16 bytes; the swizzle repeats after 8 rows");
    int r = threadIdx.x / 8, c8 = threadIdx.x % 8 * 8;
    unsigned base = __cvta_generic_to_shared(shared);
    unsigned to_a = base + 2 * place<BK>(r, c8), to_b = base + 2 * (BM * BK + place<BN>(r, c8));
    int steps = (K + BK - 1) / BK;  // of a tile
    int row0, col0, copied = 0, tile_copied = blockIdx.x, s_copied = 0;  // step, tile and stage of the next copies
    int k_left, rows_left, cols_left;  // of K, and of C below this thread's row and right of its column
    const T *from_a, *from_b;
    auto begin = [&] {  // the copies of a tile; of zeros, if none is left
        k_left = 0;
        if (tile_copied < tiles_m * tiles_n) {
            corner(tile_copied, row0, col0);
            k_left = K, rows_left = M - row0 - r, cols_left = N - col0 - c8;
            from_a = A + (size_t)(row0 + r) * K + c8;
            from_b = B + (size_t)r * N + col0 + c8;
        }
    };
    begin();
    auto start = [&](int part) {  // a part of a step's copies; with the last one, go on to the next step
        if constexpr (ALIGNED) {
            #pragma unroll
            for (int p = PIECES * part / PARTS; p < PIECES * (part + 1) / PARTS; ++p)
                if (p < PIECES_A)
                    copy(to_a + s_copied * STAGE * 2 + ROWS * p * BK * 2, from_a + (size_t)ROWS * p * K,
                         c8 < k_left && ROWS * p < rows_left);
                else {
                    int down = (p - PIECES_A) % (BK / ROWS) * ROWS, across = (p - PIECES_A) / (BK / ROWS) * 64;
                    copy(to_b + s_copied * STAGE * 2 + (down * BN + across) * 2, from_b + (size_t)down * N + across,
                         r + down < k_left && across < cols_left);
                }
        } else if (part == 0) {
            T *tA = shared + s_copied * STAGE;
            copy_unaligned<BM, BK>(tA, A + (size_t)row0 * K + copied * BK, K, M - row0, k_left);
            copy_unaligned<BK, BN>(tA + BM * BK, B + (size_t)copied * BK * N + col0, N, k_left, N - col0);
        }
        if (part < PARTS - 1)
            return;
        asm volatile("cp.async.commit_group;" ::: "memory");
        s_copied = s_copied + 1 == STAGES ? 0 : s_copied + 1;
        from_a += BK, from_b += (size_t)BK * N, k_left -= BK;
        if (++copied == steps) {
            copied = 0;
            tile_copied += gridDim.x;
            begin();
        }
    };
    auto arrive = [&] {  // the next step's tiles are there, and nobody reads those of the last one any more
        asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
        __syncthreads();
    };
    // Where this lane's rows lie within a stage: for each k of A, and 16 rows further for each i; for each j of B, and
    // 16 rows further for each k. That too the swizzle repeats.
    unsigned lane_a[BK / 16], lane_b[WN / 16], a[2][WM / 16][4], b[2][WN / 16][4];
    for (int k = 0; k < BK; k += 16)
        lane_a[k / 16] = base + 2 * place<BK>(wm + lane % 16, k + lane / 16 * 8);
    for (int j = 0; j < WN / 16; ++j)
        lane_b[j] = base + 2 * (BM * BK + place<BN>(lane % 16, wn + 16 * j + lane / 16 * 8));
    auto load = [&](int f, int s, int k) {
        unsigned stage = s * STAGE * 2;
        for (int i = 0; i < WM / 16; ++i)
            ldmatrix(a[f][i], stage + lane_a[k / 16] + 16 * i * BK * 2);
        for (int j = 0; j < WN / 16; ++j)
            ldmatrix_transposed(b[f][j], stage + lane_b[j] + k * BN * 2);
    };
    for (int step = 0; step < STAGES - 1; ++step)
        for (int part = 0; part < PARTS; ++part)
            start(part);
    arrive();
    load(0, 0, 0);
    int s = 0;  // the stage that is multiplied
    for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x) {
        for (int step = 0; step < steps; ++step) {
            int next = s + 1 == STAGES ? 0 : s + 1;
            #pragma unroll
            for (int k = 0; k < BK; k += 16) {
                if (k == BK - 16)
                    arrive();
                load((k / 16 + 1) % 2, k < BK - 16 ? s : next, (k + 16) % BK);
                if (k < BK - 16)
                    start(k / 16);  // into the stage of the step before, which is done since the last barrier
                for (int i = 0; i < WM / 16; ++i)
                    for (int n = 0; n < WN / 8; ++n) {
                        int j = i % 2 ? WN / 8 - 1 - n : n;  // forth and back
                        mma(c[i][j], a[k / 16 % 2][i], b[k / 16 % 2][j / 2][j % 2 * 2],
                            b[k / 16 % 2][j / 2][j % 2 * 2 + 1]);
                    }
            }
            s = next;
        }
        int row, col;
        corner(tile, row, col);
        store(row, col);
        for (auto &rows : c)
            for (auto &sums : rows)
                for (float &sum : sums)
                    sum = 0.0f;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");  // no copy may outlive its block, zeros behind the end included
    // END SOLUTION
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm_f16_mma_tuned(float *C, const T *A, const T *B, int M, int N, int K)
{
    if (K % 8 == 0 && N % 8 == 0 && (size_t)A % 16 == 0 && (size_t)B % 16 == 0)
        multiply<true>(C, A, B, M, N, K);
    else
        multiply<false>(C, A, B, M, N, K);
}
