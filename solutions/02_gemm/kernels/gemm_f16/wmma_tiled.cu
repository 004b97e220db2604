// gemm_f16/wmma_tiled: C[M, N] = A[M, K] @ B[K, N], float16 (or bfloat16, -DBF16) in, sums and C in float32.
//
// Against wmma: a block of 8 warps stages a 128 x 32 tile of A and a 32 x 128 tile of B in shared memory, and
// each warp owns 32 x 64 of C, 2 x 4 fragments: a fragment that is loaded serves 2 or 4 multiplications. Rows
// in shared memory are 16 bytes longer than the tile, so that the rows of a fragment lie in different banks.
// Watch: global load sectors fall by the width of the tile; shared bank conflicts without the padding.
//
// launch gemm_f16_wmma_tiled<<<((N + 127) / 128, (M + 127) / 128), (256), 0>>>(C, A, B, M, N, K)

#include <mma.h>
using namespace nvcuda;

#ifdef BF16
#include <cuda_bf16.h>
using T = __nv_bfloat16;
#else
#include <cuda_fp16.h>
using T = __half;
#endif

constexpr int BM = 128, BN = 128, BK = 32;      // tile of a block
constexpr int WM = 32, WN = 64;                 // tile of a warp
constexpr int THREADS = BM / WM * (BN / WN) * 32;
constexpr int LDA = BK + 8, LDB = BN + 8;       // rows in shared memory, padded

// Copy a tile to shared memory, 8 elements at a time where rows are aligned to 16 bytes, else one by one; zeros
// stand for what lies outside rows x cols.
template <int ROWS, int COLS, int LD>
__device__ void stage(T *to, const T *from, int ld, int rows, int cols, bool aligned)
{
    if (!aligned) {
        for (int i = threadIdx.x; i < ROWS * COLS; i += THREADS) {
            int r = i / COLS, c = i % COLS;
            to[r * LD + c] = r < rows && c < cols ? from[(size_t)r * ld + c] : T(0.0f);
        }
        return;
    }
    #pragma unroll
    for (int j = 0; j < ROWS * COLS / 8; j += THREADS) {
        int i = j + threadIdx.x, r = i / (COLS / 8), c = i % (COLS / 8) * 8;
        uint4 eight = {};
        if (r < rows && c < cols)  // all 8 or none, for cols is a multiple of 8
            eight = *(const uint4 *)(from + (size_t)r * ld + c);
        *(uint4 *)(to + r * LD + c) = eight;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
gemm_f16_wmma_tiled(float *C, const T *A, const T *B, int M, int N, int K)
{
    __shared__ __align__(32) T tA[BM * LDA], tB[BK * LDB];
    __shared__ __align__(32) float sums[THREADS / 32][256];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    int wm = warp / (BN / WN) * WM, wn = warp % (BN / WN) * WN;
    bool aligned_a = K % 8 == 0 && (size_t)A % 16 == 0;
    bool aligned_b = N % 8 == 0 && (size_t)B % 16 == 0;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c[WM / 16][WN / 16];
    for (auto &row : c)
        for (auto &fragment : row)
            wmma::fill_fragment(fragment, 0.0f);
    // BEGIN SOLUTION
    for (int k0 = 0; k0 < K; k0 += BK) {
        stage<BM, BK, LDA>(tA, A + (size_t)row0 * K + k0, K, M - row0, K - k0, aligned_a);
        stage<BK, BN, LDB>(tB, B + (size_t)k0 * N + col0, N, K - k0, N - col0, aligned_b);
        __syncthreads();  // the tiles are there
        for (int k = 0; k < BK; k += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> a[WM / 16];
            for (int i = 0; i < WM / 16; ++i)
                wmma::load_matrix_sync(a[i], tA + (wm + 16 * i) * LDA + k, LDA);
            for (int j = 0; j < WN / 16; ++j) {
                wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major> b;
                wmma::load_matrix_sync(b, tB + k * LDB + wn + 16 * j, LDB);
                for (int i = 0; i < WM / 16; ++i)
                    wmma::mma_sync(c[i][j], a[i], b, c[i][j]);
            }
        }
        __syncthreads();  // nobody reads them any more
    }
    // END SOLUTION
    // Where an element of a fragment lies is the hardware's secret: through shared memory it gets an address.
    #pragma unroll
    for (int i = 0; i < WM / 16; ++i)
        #pragma unroll
        for (int j = 0; j < WN / 16; ++j) {
            wmma::store_matrix_sync(sums[warp], c[i][j], 16, wmma::mem_row_major);
            __syncwarp();
            for (int e = lane; e < 256; e += 32) {
                int row = row0 + wm + 16 * i + e / 16, col = col0 + wn + 16 * j + e % 16;
                if (row < M && col < N)
                    C[(size_t)row * N + col] = sums[warp][e];
            }
            __syncwarp();  // before the next fragment takes its place
        }
}
