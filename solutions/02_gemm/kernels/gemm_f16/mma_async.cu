// gemm_f16/mma_async: C[M, N] = A[M, K] @ B[K, N], float16 (or bfloat16, -DBF16) in, sums and C in float32.
//
// Against mma_sync: nobody waits for global memory. cp.async carries the tiles of the next steps into further
// stages of shared memory while the tensor cores work on this one, with no register between; and a warp loads the
// fragments of k + 16 while it multiplies those of k. The block grows to 128 x 256, a warp to 64 x 64: 32
// multiplications for 8 ldmatrix. That takes most of a multiprocessor's registers: one block is resident.
// Watch: stalls at the barrier and on long scoreboards; tensor pipe utilization.
//
// launch gemm_f16_mma_async<<<((N + BN - 1) / BN, (M + BM - 1) / BM), (THREADS), STAGES * STAGE * 2>>>(C, A, B, M, N, K)

#ifdef BF16
#include <cuda_bf16.h>
using T = __nv_bfloat16;
#define KIND "bf16"
#else
#include <cuda_fp16.h>
using T = __half;
#define KIND "f16"
#endif

constexpr int BM = 128, BN = 256, BK = 32;  // tile of a block, and how much of K is staged at a time
constexpr int WM = 64, WN = 64;             // tile of a warp
constexpr int STAGES = 4;                   // tiles in shared memory: one is used, the others are on their way
constexpr int THREADS = BM / WM * (BN / WN) * 32;
constexpr int STAGE = BM * BK + BK * BN;    // elements of a stage

// Where element (r, c) of a tile with COLS columns lies. 8 rows at the same c fill the 128 bytes of the banks once.
template <int COLS>
__device__ int place(int r, int c)
{
    constexpr int ROWS_PER_LINE = COLS < 64 ? 64 / COLS : 1;  // a line is 128 bytes
    constexpr int PIECES = COLS < 64 ? COLS / 8 : 8;
    return r * COLS + ((c / 8) ^ (r / ROWS_PER_LINE % PIECES)) * 8 + c % 8;
}

// Start copying a tile to shared memory, 16 bytes at a time; zeros stand for what lies outside rows x cols.
// Rows that are not aligned to 16 bytes go through registers, element by element.
template <int ROWS, int COLS>
__device__ void fetch(T *to, const T *from, int ld, int rows, int cols, bool aligned)
{
    for (int i = threadIdx.x; i < ROWS * COLS / 8; i += THREADS) {
        int r = i / (COLS / 8), c = i % (COLS / 8) * 8;
        const T *p = from + (size_t)r * ld + c;
        T *at = to + place<COLS>(r, c);
        if (aligned) {
            bool inside = r < rows && c < cols;  // of 8 elements, for cols is a multiple of 8
            unsigned address = __cvta_generic_to_shared(at);
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                         :: "r"(address), "l"(inside ? p : from), "r"(inside ? 16 : 0) : "memory");
        } else
            for (int e = 0; e < 8; ++e)
                at[e] = r < rows && c + e < cols ? p[e] : T(0.0f);
    }
}

// Four 8 x 8 matrices: lane n says where row n % 8 of matrix n / 8 lies, and receives two elements of each.
__device__ void ldmatrix(unsigned (&to)[4], const T *row)
{
    unsigned at = __cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}

__device__ void ldmatrix_transposed(unsigned (&to)[4], const T *row)
{
    unsigned at = __cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}

// c += a @ b, 16 x 16 by 16 x 8. Lane 4 * g + q holds of c rows g and g + 8, columns 2 * q and 2 * q + 1.
__device__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." KIND "." KIND ".f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm_f16_mma_async(float *C, const T *A, const T *B, int M, int N, int K)
{
    extern __shared__ __align__(128) T shared[];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    int wm = warp / (BN / WN) * WM, wn = warp % (BN / WN) * WN;
    bool aligned_a = K % 8 == 0 && (size_t)A % 16 == 0;
    bool aligned_b = N % 8 == 0 && (size_t)B % 16 == 0;
    bool aligned_c = N % 2 == 0 && (size_t)C % 8 == 0;
    float c[WM / 16][WN / 8][4] = {};
    // BEGIN SOLUTION
    int steps = (K + BK - 1) / BK;
    auto start = [&](int step) {  // the copies of a step, into its stage
        if (step < steps) {
            T *tA = shared + step % STAGES * STAGE, *tB = tA + BM * BK;
            int k0 = step * BK;
            fetch<BM, BK>(tA, A + (size_t)row0 * K + k0, K, M - row0, K - k0, aligned_a);
            fetch<BK, BN>(tB, B + (size_t)k0 * N + col0, N, K - k0, N - col0, aligned_b);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");  // an empty group keeps the count
    };
    auto arrive = [&] {  // the next step's tiles are there, and nobody reads those of the last one any more
        asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
        __syncthreads();
    };
    unsigned a[2][WM / 16][4], b[2][WN / 16][4];
    auto load = [&](int f, int step, int k) {
        T *tA = shared + step % STAGES * STAGE, *tB = tA + BM * BK;
        for (int i = 0; i < WM / 16; ++i)
            ldmatrix(a[f][i], tA + place<BK>(wm + 16 * i + lane % 16, k + lane / 16 * 8));
        for (int j = 0; j < WN / 16; ++j)
            ldmatrix_transposed(b[f][j], tB + place<BN>(k + lane % 16, wn + 16 * j + lane / 16 * 8));
    };
    for (int step = 0; step < STAGES - 1; ++step)
        start(step);
    arrive();
    load(0, 0, 0);
    for (int step = 0; step < steps; ++step) {
        #pragma unroll
        for (int k = 0; k < BK; k += 16) {
            if (k == BK - 16) {
                start(step + STAGES - 1);  // into the stage of the step before, which is done since the last barrier
                arrive();
            }
            if (k < BK - 16 || step + 1 < steps)
                load((k / 16 + 1) % 2, step + (k + 16) / BK, (k + 16) % BK);
            for (int i = 0; i < WM / 16; ++i)
                for (int j = 0; j < WN / 8; ++j)
                    mma(c[i][j], a[k / 16 % 2][i], b[k / 16 % 2][j / 2][j % 2 * 2], b[k / 16 % 2][j / 2][j % 2 * 2 + 1]);
        }
    }
    // END SOLUTION
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
}
