// gemm_f16/wmma: C[M, N] = A[M, K] @ B[K, N], float16 (or bfloat16, -DBF16) in, sums and C in float32.
//
// Against the float32 rungs: the multiply-adds move to the tensor cores. A warp owns 16 x 16 of C as one
// fragment, spread over its lanes in a way that only the hardware knows. Each step along K loads a
// 16 x 16 fragment of A and one of B, straight from global memory, and multiplies them: 4096
// multiply-adds for a warp, with a few instructions instead of 128.
// Watch: tensor operations replace FFMA; sectors, for every fragment comes from global memory.
//
// launch gemm_f16_wmma<<<((N + 15) / 16, (M + 15) / 16), (32), 0>>>(C, A, B, M, N, K)

#include <mma.h>
using namespace nvcuda;

#ifdef BF16
#include <cuda_bf16.h>
using T = __nv_bfloat16;
#else
#include <cuda_fp16.h>
using T = __half;
#endif

// Load the 16 x 16 tile at `from`. One that hangs over the edge, or whose rows are not aligned to 32 bytes, is
// copied to shared memory first, with zeros for what is not there.
template <class Fragment>
__device__ void load(Fragment &fragment, T *copy, const T *from, int ld, int rows, int cols)
{
    if (ld % 16 == 0 && (size_t)from % 32 == 0 && rows >= 16 && cols >= 16) {
        wmma::load_matrix_sync(fragment, from, ld);
        return;
    }
    __syncwarp();  // nobody reads the copy before this one any more
    for (int i = threadIdx.x; i < 256; i += 32) {
        int r = i / 16, c = i % 16;
        copy[i] = r < rows && c < cols ? from[(size_t)r * ld + c] : T(0.0f);
    }
    __syncwarp();
    wmma::load_matrix_sync(fragment, copy, 16);
}

extern "C" __global__ void gemm_f16_wmma(float *C, const T *A, const T *B, int M, int N, int K)
{
    __shared__ __align__(32) T copy_a[256], copy_b[256];
    __shared__ __align__(32) float sums[256];
    int row0 = blockIdx.y * 16, col0 = blockIdx.x * 16;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::fill_fragment(c, 0.0f);
    // BEGIN SOLUTION
    wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major> b;
    for (int k0 = 0; k0 < K; k0 += 16) {
        load(a, copy_a, A + (size_t)row0 * K + k0, K, M - row0, K - k0);
        load(b, copy_b, B + (size_t)k0 * N + col0, N, K - k0, N - col0);
        wmma::mma_sync(c, a, b, c);
    }
    // END SOLUTION
    wmma::store_matrix_sync(sums, c, 16, wmma::mem_row_major);
    __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32) {
        int row = row0 + i / 16, col = col0 + i % 16;
        if (row < M && col < N)
            C[(size_t)row * N + col] = sums[i];
    }
}
