// gemm_f16/mma_sync: C[M, N] = A[M, K] @ B[K, N], float16 (or bfloat16, -DBF16) in, sums and C in float32.
//
// Against wmma_tiled: the instructions underneath. ldmatrix brings four 8 x 8 matrices from shared memory into
// the registers of a warp, turned round where B needs it, and mma.sync multiplies 16 x 16 by 16 x 8. Their layouts
// are public, so that each lane stores its own sums, and a warp can own 64 x 32 of C. Tiles are not padded but
// swizzled: the 16-byte pieces of a row change places, by a rule that gives the 8 rows of a matrix 8 different
// places in the banks.
// Watch: shared load wavefronts per tensor operation; no conflicts, and no bytes for padding.
//
// launch gemm_f16_mma_sync<<<((N + 127) / 128, (M + 127) / 128), (256), 0>>>(C, A, B, M, N, K)

#ifdef BF16
#include <cuda_bf16.h>
using T = __nv_bfloat16;
#define KIND "bf16"
#else
#include <cuda_fp16.h>
using T = __half;
#define KIND "f16"
#endif

constexpr int BM = 128, BN = 128, BK = 32;  // tile of a block
constexpr int WM = 64, WN = 32;             // tile of a warp
constexpr int THREADS = BM / WM * (BN / WN) * 32;

// Where element (r, c) of a tile with COLS columns lies. 8 rows at the same c fill the 128 bytes of the banks once.
template <int COLS>
__device__ int place(int r, int c)
{
    constexpr int ROWS_PER_LINE = COLS < 64 ? 64 / COLS : 1;  // a line is 128 bytes
    constexpr int PIECES = COLS < 64 ? COLS / 8 : 8;
    return r * COLS + ((c / 8) ^ (r / ROWS_PER_LINE % PIECES)) * 8 + c % 8;
}

// Copy a tile to shared memory, 8 elements at a time where rows are aligned to 16 bytes, else one by one; zeros
// stand for what lies outside rows x cols.
template <int ROWS, int COLS>
__device__ void stage(T *to, const T *from, int ld, int rows, int cols, bool aligned)
{
    if (!aligned) {
        for (int i = threadIdx.x; i < ROWS * COLS; i += THREADS) {
            int r = i / COLS, c = i % COLS;
            to[place<COLS>(r, c)] = r < rows && c < cols ? from[(size_t)r * ld + c] : T(0.0f);
        }
        return;
    }
    #pragma unroll
    for (int j = 0; j < ROWS * COLS / 8; j += THREADS) {
        int i = j + threadIdx.x, r = i / (COLS / 8), c = i % (COLS / 8) * 8;
        uint4 eight = {};
        if (r < rows && c < cols)  // all 8 or none, for cols is a multiple of 8
            eight = *(const uint4 *)(from + (size_t)r * ld + c);
        *(uint4 *)(to + place<COLS>(r, c)) = eight;
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

extern "C" __global__ void __launch_bounds__(THREADS)
gemm_f16_mma_sync(float *C, const T *A, const T *B, int M, int N, int K)
{
    __shared__ __align__(128) T tA[BM * BK], tB[BK * BN];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    int wm = warp / (BN / WN) * WM, wn = warp % (BN / WN) * WN;
    bool aligned_a = K % 8 == 0 && (size_t)A % 16 == 0;
    bool aligned_b = N % 8 == 0 && (size_t)B % 16 == 0;
    bool aligned_c = N % 2 == 0 && (size_t)C % 8 == 0;
    float c[WM / 16][WN / 8][4] = {};
    // BEGIN SOLUTION
    for (int k0 = 0; k0 < K; k0 += BK) {
        stage<BM, BK>(tA, A + (size_t)row0 * K + k0, K, M - row0, K - k0, aligned_a);
        stage<BK, BN>(tB, B + (size_t)k0 * N + col0, N, K - k0, N - col0, aligned_b);
        __syncthreads();  // the tiles are there
        for (int k = 0; k < BK; k += 16) {
            unsigned a[WM / 16][4], b[WN / 16][4];
            for (int i = 0; i < WM / 16; ++i)  // rows 0 to 15 at k, then the same rows at k + 8
                ldmatrix(a[i], tA + place<BK>(wm + 16 * i + lane % 16, k + lane / 16 * 8));
            for (int j = 0; j < WN / 16; ++j)  // rows k to k + 15 for 8 columns, then for 8 more
                ldmatrix_transposed(b[j], tB + place<BN>(k + lane % 16, wn + 16 * j + lane / 16 * 8));
            for (int i = 0; i < WM / 16; ++i)
                for (int j = 0; j < WN / 8; ++j)
                    mma(c[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
        __syncthreads();  // nobody reads them any more
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
