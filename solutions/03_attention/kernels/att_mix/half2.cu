// att_mix/half2: out[h, d] = sum over t of att[h, t] * v[t, h / (H / HKV), d], v in float16, all else float32.
//
// Against fp16: a lane takes two neighbors of v with one load, and has two sums. A request is 128 bytes again. There
// is no multiplication of two float32 at once, so that the arithmetic stays as it was.
// Watch: load requests.
//
// launch att_mix_half2<<<(H), (32, min(T, WARPS)), 0>>>(out, att, v, T, H, HKV, D)

#include <cuda_fp16.h>

constexpr int WARPS = 32;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
att_mix_half2(float *out, const float *att, const half *v, int T, int H, int HKV, int D)
{
    __shared__ float sums[64];  // of 64 neighboring d
    int h = blockIdx.x, g = h / (H / HKV), lane = threadIdx.x, warp = threadIdx.y, warps = blockDim.y;
    if (warp == 0)
        sums[lane] = sums[32 + lane] = 0.0f;
    __syncthreads();  // all are zero before the first is added to
    for (int d0 = 0; d0 < D; d0 += 64) {
        int d = d0 + 2 * lane;  // and d + 1; D is even
        float2 sum = make_float2(0.0f, 0.0f);
        if (d < D) {
            // BEGIN SOLUTION
            for (int t = warp; t < T; t += warps) {
                float2 two = __half22float2(*(const half2 *)(v + ((size_t)t * HKV + g) * D + d));
                float weight = att[(size_t)h * T + t];
                sum.x += weight * two.x;
                sum.y += weight * two.y;
            }
            atomicAdd(&sums[lane], sum.x);  // one number per bank: first of the pairs, then second
            atomicAdd(&sums[32 + lane], sum.y);
            // END SOLUTION
        }
        __syncthreads();  // each warp has added
        if (warp == 0) {
            if (d < D)
                *(float2 *)(out + h * D + d) = make_float2(sums[lane], sums[32 + lane]);
            sums[lane] = sums[32 + lane] = 0.0f;
        }
        __syncthreads();  // zero again before the next is added
    }
}
