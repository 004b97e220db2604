// matvec_q8_0/dequantize: y[m] = sum of d q[i] x[i] over the blocks of row m; W in block_q8_0, a block of one warp per
// row.
//
// The first rung, and llama.cpp's dequantize_mul_mat_vec: a lane widens two neighboring weights to float32, scale
// times quant, and multiplies them with two numbers of x. Arithmetic is as without quantization; only less is read.
// block_q8_0 is 34 bytes: a float16 scale d, then 32 signed bytes q.
// Watch: load requests per weight; instructions per weight.
//
// launch dequantize_matvec<<<(M), (32), 0>>>(y, W, x, K)

#include <cuda_fp16.h>

constexpr int BLOCK = 34;  // bytes of a block

__device__ float warp_sum(float v)  // the sum over all lanes, in lane 0
{
    for (int far = 16; far > 0; far /= 2)
        v += __shfl_down_sync(0xffffffff, v, far);
    return v;
}

extern "C" __global__ void dequantize_matvec(float *y, const unsigned char *W, const float *x, int K)
{
    int row = blockIdx.x, lane = threadIdx.x;
    const unsigned char *blocks = W + (size_t)row * (K / 32 * BLOCK);
    float sum = 0.0f;
    // BEGIN SOLUTION
    for (int k = 2 * lane; k < K; k += 64) {
        const unsigned char *block = blocks + k / 32 * BLOCK;
        float d = __half2float(*(const half *)block);
        const signed char *q = (const signed char *)(block + 2) + k % 32;
        sum += d * q[0] * x[k];
        sum += d * q[1] * x[k + 1];
    }
    // END SOLUTION
    sum = warp_sum(sum);
    if (lane == 0)
        y[row] = sum;
}
