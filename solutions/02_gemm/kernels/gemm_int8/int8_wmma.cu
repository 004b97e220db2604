// gemm_int8/int8_wmma: C[M, N] = A[M, K] @ B[N, K].T, int8 in, exact sums and C in int32.
//
// Against gemm_f16/wmma_tiled: an element is one byte, so a tile of the same bytes is twice as deep along K, and the
// tensor cores do twice as many multiply-adds with it. B is stored with K as its inner dimension, so its fragment is
// "column-major". A fragment is 16 bytes deep: tiles are stored in slices of that depth, so that its 16 rows are 256
// bytes in a row, without conflicts and without padding. Sums are exact: any order gives the same bits.
// Watch: int8 tensor operations; bank conflicts, of which there are none.
//
// launch gemm_int8_wmma<<<((N + 127) / 128, (M + 127) / 128), (256), 0>>>(C, A, B, M, N, K)

#include <mma.h>
using namespace nvcuda;
using T = signed char;

constexpr int BM = 128, BN = 128, BK = 64;      // tile of a block
constexpr int WM = 32, WN = 64;                 // tile of a warp
constexpr int THREADS = BM / WM * (BN / WN) * 32;

// Copy a tile to shared memory, slice by slice of 16 columns, 16 elements at a time where rows are aligned to 16
// bytes, else one by one; zeros stand for what lies outside rows x cols.
template <int ROWS>
__device__ void stage(T *to, const T *from, int ld, int rows, int cols, bool aligned)
{
    if (!aligned) {
        for (int i = threadIdx.x; i < ROWS * BK; i += THREADS) {
            int r = i / BK, c = i % BK;
            to[(c / 16 * ROWS + r) * 16 + c % 16] = r < rows && c < cols ? from[(size_t)r * ld + c] : 0;
        }
        return;
    }
    #pragma unroll
    for (int j = 0; j < ROWS * BK / 16; j += THREADS) {
        int i = j + threadIdx.x, r = i / (BK / 16), c = i % (BK / 16) * 16;
        uint4 sixteen = {};
        if (r < rows && c < cols)  // all 16 or none, for cols is a multiple of 16
            sixteen = *(const uint4 *)(from + (size_t)r * ld + c);
        *(uint4 *)(to + (c / 16 * ROWS + r) * 16) = sixteen;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
gemm_int8_wmma(int *C, const T *A, const T *B, int M, int N, int K)
{
    __shared__ __align__(32) T tA[BM * BK], tB[BN * BK];
    __shared__ __align__(32) int sums[THREADS / 32][256];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    int wm = warp / (BN / WN) * WM, wn = warp % (BN / WN) * WN;
    bool aligned_a = K % 16 == 0 && (size_t)A % 16 == 0;
    bool aligned_b = K % 16 == 0 && (size_t)B % 16 == 0;
    wmma::fragment<wmma::accumulator, 16, 16, 16, int> c[WM / 16][WN / 16];
    for (auto &row : c)
        for (auto &fragment : row)
            wmma::fill_fragment(fragment, 0);
    // BEGIN SOLUTION
    for (int k0 = 0; k0 < K; k0 += BK) {
        stage<BM>(tA, A + (size_t)row0 * K + k0, K, M - row0, K - k0, aligned_a);
        stage<BN>(tB, B + (size_t)col0 * K + k0, K, N - col0, K - k0, aligned_b);
        __syncthreads();  // the tiles are there
        for (int k = 0; k < BK; k += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> a[WM / 16];
            for (int i = 0; i < WM / 16; ++i)
                wmma::load_matrix_sync(a[i], tA + (k / 16 * BM + wm + 16 * i) * 16, 16);
            for (int j = 0; j < WN / 16; ++j) {
                wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major> b;
                wmma::load_matrix_sync(b, tB + (k / 16 * BN + wn + 16 * j) * 16, 16);
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
