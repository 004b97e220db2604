// gemm_f16/mma_tuned: C[M, N] = A[M, K] @ B[K, N], float16 (or bfloat16, -DBF16) in, sums and C in float32.
//
// Against mma_async: which tiles are in flight together, and no pause between them. As many blocks as there are
// multiprocessors stay for all tiles, and each walks through its tiles in one stream of steps: while it stores
// one tile, the next one's first steps are already on their way. Tiles are taken in groups of 8 rows, down before
// across, so that those in flight together form a square and share their rows of A and columns of B in the L2.
// Watch: L2 hit rate; DRAM bytes; the gap between waves.
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
    // This thread copies 16 bytes of every ROWS_A-th row of A's tile and of every ROWS_B-th row of B's. They keep
    // their places in the rows, for the swizzle repeats after 8 rows. What lies below or right of C is never stored:
    // there, copy the last row or columns again.
    constexpr int ROWS_A = THREADS / (BK / 8), ROWS_B = THREADS / (BN / 8);
    static_assert(ROWS_A % 8 == 0 && ROWS_B % 8 == 0, "the swizzle repeats after 8 rows");
    int ra = threadIdx.x / (BK / 8), ca = threadIdx.x % (BK / 8) * 8;
    int rb = threadIdx.x / (BN / 8), cb = threadIdx.x % (BN / 8) * 8;
    unsigned base = __cvta_generic_to_shared(shared);
    unsigned to_a = base + 2 * place<BK>(ra, ca), to_b = base + 2 * (BM * BK + place<BN>(rb, cb));
    int steps = (K + BK - 1) / BK;  // of a tile
    int row0, col0, copied = 0, tile_copied = blockIdx.x, s_copied = 0;  // step, tile and stage of the next copies
    const T *from_a[BM / ROWS_A], *from_b;
    auto begin = [&] {  // the copies of a tile
        corner(tile_copied, row0, col0);
        from_b = B + (size_t)rb * N + min(col0 + cb, N - 8);
        #pragma unroll
        for (int j = 0; j < BM / ROWS_A; ++j)
            from_a[j] = A + (size_t)min(row0 + ra + ROWS_A * j, M - 1) * K + ca;
    };
    begin();
    auto start = [&] {  // the copies of a step, and go on to the next one
        if (tile_copied < tiles_m * tiles_n) {
            int k0 = copied * BK, left = K - k0;
            if constexpr (ALIGNED) {
                #pragma unroll
                for (int j = 0; j < BM / ROWS_A; ++j)
                    copy(to_a + s_copied * STAGE * 2 + ROWS_A * j * BK * 2, from_a[j] + k0, ca < left);
                #pragma unroll
                for (int j = 0; j < BK / ROWS_B; ++j)
                    copy(to_b + s_copied * STAGE * 2 + ROWS_B * j * BN * 2, from_b + (size_t)ROWS_B * j * N,
                         rb + ROWS_B * j < left);
                from_b += (size_t)BK * N;
            } else {
                T *tA = shared + s_copied * STAGE;
                copy_unaligned<BM, BK>(tA, A + (size_t)row0 * K + k0, K, M - row0, left);
                copy_unaligned<BK, BN>(tA + BM * BK, B + (size_t)k0 * N + col0, N, left, N - col0);
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
        start();
    arrive();
    load(0, 0, 0);
    int s = 0;  // the stage that is multiplied
    for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x) {
        for (int step = 0; step < steps; ++step) {
            int next = s + 1 == STAGES ? 0 : s + 1;
            bool more = step + 1 < steps || tile + gridDim.x < tiles_m * tiles_n;
            #pragma unroll
            for (int k = 0; k < BK; k += 16) {
                if (k == BK - 16)
                    arrive();
                if (k < BK - 16 || more)
                    load((k / 16 + 1) % 2, k < BK - 16 ? s : next, (k + 16) % BK);
                if (k == 0)
                    start();  // into the stage of the step before, which is done since the last barrier
                for (int i = 0; i < WM / 16; ++i)
                    for (int j = 0; j < WN / 8; ++j)
                        mma(c[i][j], a[k / 16 % 2][i], b[k / 16 % 2][j / 2][j % 2 * 2],
                            b[k / 16 % 2][j / 2][j % 2 * 2 + 1]);
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
