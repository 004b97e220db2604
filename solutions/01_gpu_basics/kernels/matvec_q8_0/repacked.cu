// matvec_q8_0/repacked: y[m] = sum of D[m, b] Q[m, i] x[i], quants and scales apart; x rounded to 8 bits; two rows per
// warp.
//
// Against dp4a: the quants of a row lie side by side in Q and start on 16 bytes, so that a lane reads 16 of them at
// once, half a block; scales are in D. x is taken apart in the same way, its scales kept in float32, and serves two
// rows. The loop is unrolled 4 times, and the launch bounds (128, 1) let the compiler take the registers to have all of
// its loads in flight at once.
// Watch: load requests; bytes in flight per lane.
//
// workspace xq int8 (K)
// workspace xd float32 (K / 32)
// launch quantize<<<((K + 255) / 256), (256), 0>>>(xq, xd, x, K)
// launch repacked_matvec<<<((M + 7) / 8), (128), 0>>>(y, Q, D, xq, xd, M, K)

#include <cuda_fp16.h>

constexpr int WARPS = 4;

__device__ float warp_sum(float v)  // the sum over all lanes, in lane 0
{
    for (int far = 16; far > 0; far /= 2)
        v += __shfl_down_sync(0xffffffff, v, far);
    return v;
}

__device__ int dot16(int4 a, int4 b)  // the exact sum of 16 products of quants
{
    return __dp4a(a.x, b.x, __dp4a(a.y, b.y, __dp4a(a.z, b.z, __dp4a(a.w, b.w, 0))));
}

// One thread per number, a warp per block of 32. K is a multiple of 32: a warp is there as a whole or not at all.
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

extern "C" __global__ void __launch_bounds__(WARPS * 32, 1)
repacked_matvec(float *y, const signed char *Q, const half *D, const signed char *xq, const float *xd, int M, int K)
{
    int lane = threadIdx.x % 32, row = (blockIdx.x * WARPS + threadIdx.x / 32) * 2;
    if (row >= M)
        return;
    int next = min(row + 1, M - 1);  // a warp that has one row only takes it twice
    float sum = 0.0f, sum_next = 0.0f;
    // BEGIN SOLUTION
    const int4 *q = (const int4 *)(Q + (size_t)row * K), *q_next = (const int4 *)(Q + (size_t)next * K);
    const half *d = D + (size_t)row * (K / 32), *d_next = D + (size_t)next * (K / 32);
    #pragma unroll 4
    for (int p = lane; p < K / 16; p += 32) {  // pieces of 16 quants
        int4 u = ((const int4 *)xq)[p];
        float scale = xd[p / 2];
        sum += __half2float(d[p / 2]) * scale * dot16(__ldcs(q + p), u);
        sum_next += __half2float(d_next[p / 2]) * scale * dot16(__ldcs(q_next + p), u);
    }
    // END SOLUTION
    sum = warp_sum(sum);
    sum_next = warp_sum(sum_next);
    if (lane == 0) {
        y[row] = sum;
        if (next > row)
            y[next] = sum_next;
    }
}
