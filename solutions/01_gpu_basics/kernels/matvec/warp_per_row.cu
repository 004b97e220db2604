// matvec/warp_per_row: y[m] = sum over k of W[m, k] * x[k], W float16, all else float32; a block of one warp per row.
//
// Against thread_per_row: the 32 lanes share a row and read neighbors in it. Each has a part of the sum in the end,
// and shuffles add them up: five steps, each halving the distance.
// Watch: sectors per load request; warps per multiprocessor.
//
// launch matvec_warp_per_row<<<(M), (32), 0>>>(y, W, x, K)

#include <cuda_fp16.h>

__device__ float warp_sum(float v)  // the sum over all lanes, in lane 0
{
    for (int far = 16; far > 0; far /= 2)
        v += __shfl_down_sync(0xffffffff, v, far);
    return v;
}

extern "C" __global__ void matvec_warp_per_row(float *y, const half *W, const float *x, int K)
{
    int row = blockIdx.x, lane = threadIdx.x;
    // BEGIN SOLUTION
    float sum = 0.0f;
    for (int k = lane; k < K; k += 32)
        sum += __half2float(W[(size_t)row * K + k]) * x[k];
    sum = warp_sum(sum);
    if (lane == 0)
        y[row] = sum;
    // END SOLUTION
}
