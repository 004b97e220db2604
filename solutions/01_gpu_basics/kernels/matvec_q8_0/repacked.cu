// matvec_q8_0/repacked: y[m] = sum of D[m, b] Q[m, i] x[i], quants and scales apart; x rounded to 8 bits; a warp per row.
//
// Against dp4a: the quants of a row lie side by side in Q and start on 16 bytes, so that a lane reads 16 of them at once,
// half a block; scales are in D, 16 to 32 bytes. x is taken apart in the same way, its scales kept in float32. A warp has
// four steps of 512 weights on the way; Q is read once and not kept in the L1 cache (__ldcs), which stays free for x.
// Watch: load requests; bytes on the way per lane.
//
// workspace xq int8 (K)
// workspace xd float32 (K / 32)
// launch quantize<<<((K + 255) / 256), (256), 0>>>(xq, xd, x, K)
// launch repacked_matvec<<<((M + 3) / 4), (128), 0>>>(y, Q, D, xq, xd, M, K)

#include <cuda_fp16.h>

constexpr int WARPS = 4;

__device__ float warp_sum(float v)  // the sum over all lanes, in lane 0
{
    for (int far = 16; far > 0; far /= 2)
        v += __shfl_down_sync(0xffffffff, v, far);
    return v;
}

// One thread per number; a warp has just one block of 32. K is a multiple of 32: a warp is there as a whole or not at all.
extern "C" __global__ void quantize(signed char *xq, float *xd, const float *x, int K)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= K)
        return;
    float largest = fabsf(x[k]);
    for (int far = 16; far > 0; far /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, far));
    float d = largest / 127;
    xq[k] = d == 0.0f ? 0 : (signed char)rintf(x[k] / d);
    if (k % 32 == 0)
        xd[k / 32] = d;
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
repacked_matvec(float *y, const signed char *Q, const half *D, const signed char *xq, const float *xd, int M, int K)
{
    int lane = threadIdx.x % 32, row = blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= M)
        return;
    float sum = 0.0f;
    // BEGIN SOLUTION
    const int4 *q = (const int4 *)(Q + (size_t)row * K), *v = (const int4 *)xq;
    const half *d = D + (size_t)row * (K / 32);
    #pragma unroll 4
    for (int p = lane; p < K / 16; p += 32) {  // pieces of 16 quants
        int4 w = __ldcs(q + p), u = v[p];
        int products = __dp4a(w.x, u.x, __dp4a(w.y, u.y, __dp4a(w.z, u.z, __dp4a(w.w, u.w, 0))));
        sum += __half2float(d[p / 2]) * xd[p / 2] * products;
    }
    // END SOLUTION
    sum = warp_sum(sum);
    if (lane == 0)
        y[row] = sum;
}
