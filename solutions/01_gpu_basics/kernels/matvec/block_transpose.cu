// matvec/block_transpose: y[m] = sum over k of W[m, k] * x[k], W float16, all else float32; 32 rows per block.
//
// Against warp_per_row: 32 warps stand in one block. Each leaves the sum of its row in shared memory; then lane n of
// the first warp picks up that of warp n, and the warp stores 32 neighbors in one request of 128 bytes.
// Watch: store requests, and sectors of 32 bytes that are written for 4.
//
// launch matvec_block_transpose<<<((M + 31) / 32), (1024), 0>>>(y, W, x, M, K)

#include <cuda_fp16.h>

__device__ float warp_sum(float v)  // the sum over all lanes, in lane 0
{
    for (int far = 16; far > 0; far /= 2)
        v += __shfl_down_sync(0xffffffff, v, far);
    return v;
}

extern "C" __global__ void __launch_bounds__(1024)
matvec_block_transpose(float *y, const half *W, const float *x, int M, int K)
{
    __shared__ float sums[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row = blockIdx.x * 32 + warp;
    // BEGIN SOLUTION
    float sum = 0.0f;
    if (row < M)
        for (int k = lane; k < K; k += 32)
            sum += __half2float(W[(size_t)row * K + k]) * x[k];
    sum = warp_sum(sum);
    if (lane == 0)
        sums[warp] = sum;
    __syncthreads();  // all 32 sums are there before the first warp reads them
    int mine = blockIdx.x * 32 + lane;
    if (warp == 0 && mine < M)
        y[mine] = sums[lane];
    // END SOLUTION
}
