// matvec_q8_0/dp4a: y[m] = sum of d q[i] x[i] over the blocks of row m; x rounded to block_q8_1, W in block_q8_0.
//
// Against dequantize: x becomes 8-bit blocks too, once for all rows. Then one instruction, dp4a, multiplies 4 quants
// with 4 quants and adds the products up exactly, in int32; a float32 multiplication follows only once per 8 quants. As
// llama.cpp does it: a lane takes 8 quants, 4 lanes a block, a warp 8 blocks at a time.
// block_q8_0, 34 bytes: float16 d, 32 signed bytes. It starts on 2 bytes only, so that 4 quants come as two halves.
// block_q8_1, 36 bytes: float16 d, float16 sum of the numbers (other formats need it), 32 signed bytes.
// Watch: instructions per weight.
//
// workspace xq uint8 (K / 32 * 36)
// launch quantize_q8_1<<<((K + 255) / 256), (256), 0>>>(xq, x, K)
// launch dp4a_matvec<<<(M), (32), 0>>>(y, W, xq, K)

#include <cuda_fp16.h>

constexpr int Q8_0 = 34, Q8_1 = 36;  // bytes of a block

__device__ float warp_sum(float v)  // the sum over all lanes, in lane 0
{
    for (int far = 16; far > 0; far /= 2)
        v += __shfl_down_sync(0xffffffff, v, far);
    return v;
}

// One thread per number, a warp per block of 32. K is a multiple of 32: a warp is there as a whole or not at all.
extern "C" __global__ void quantize_q8_1(unsigned char *xq, const float *x, int K)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= K)
        return;
    unsigned char *block = xq + k / 32 * Q8_1;
    // BEGIN SOLUTION
    float largest = fabsf(x[k]), sum = x[k];
    for (int far = 16; far > 0; far /= 2) {  // all lanes get both
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, far));
        sum += __shfl_xor_sync(0xffffffff, sum, far);
    }
    float d = largest / 127;
    ((signed char *)block)[4 + k % 32] = d == 0.0f ? 0 : (signed char)rintf(x[k] / d);
    if (k % 32 == 0) {
        ((half *)block)[0] = __float2half(d);
        ((half *)block)[1] = __float2half(sum);
    }
    // END SOLUTION
}

__device__ int quad(const unsigned char *p)  // 4 bytes from an address that is a multiple of 2
{
    const unsigned short *h = (const unsigned short *)p;
    return h[0] | h[1] << 16;
}

extern "C" __global__ void dp4a_matvec(float *y, const unsigned char *W, const unsigned char *xq, int K)
{
    int row = blockIdx.x, lane = threadIdx.x;
    const unsigned char *blocks = W + (size_t)row * (K / 32 * Q8_0);
    float sum = 0.0f;
    // BEGIN SOLUTION
    for (int b = lane / 4; b < K / 32; b += 8) {
        const unsigned char *w = blocks + b * Q8_0, *v = xq + b * Q8_1;
        int at = lane % 4 * 8, products = 0;
        for (int i = at; i < at + 8; i += 4)
            products = __dp4a(quad(w + 2 + i), *(const int *)(v + 4 + i), products);
        sum += __half2float(*(const half *)w) * __half2float(*(const half *)v) * products;
    }
    // END SOLUTION
    sum = warp_sum(sum);
    if (lane == 0)
        y[row] = sum;
}
