// att_mix/prefetch: out[h, d] = sum over t of att[h, t] * v[t, h / (H / HKV), d], v in float16, all else float32.
//
// Against half2: a warp asks for the values and weights of 16 of its tokens before it uses the first of them. They wait
// in registers, and the memory works on all of them at once. Launch bounds of one block per multiprocessor give it the
// 64 registers for that: with 32, the compiler would put the loads back to where they are used. Tokens that do not fill
// 16 go one by one.
// Watch: bytes in flight; the longest chain of instructions that wait for one another.
//
// launch att_mix_prefetch<<<(H), (32, min(T, WARPS)), 0>>>(out, att, v, T, H, HKV, D)

#include <cuda_fp16.h>

constexpr int WARPS = 32;
constexpr int UNROLL = 16;

extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
att_mix_prefetch(float *out, const float *att, const half *v, int T, int H, int HKV, int D)
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
            size_t step = (size_t)warps * HKV * D;  // from one token of this warp to the next
            const half *value = v + ((size_t)warp * HKV + g) * D + d;
            const float *weight = att + (size_t)h * T + warp;
            int t = warp;
            for (; t + (UNROLL - 1) * warps < T; t += UNROLL * warps) {
                half2 two[UNROLL];
                float w[UNROLL];
                #pragma unroll
                for (int j = 0; j < UNROLL; ++j) {
                    two[j] = *(const half2 *)(value + j * step);
                    w[j] = weight[j * warps];
                }
                #pragma unroll
                for (int j = 0; j < UNROLL; ++j) {
                    float2 wide = __half22float2(two[j]);
                    sum.x += w[j] * wide.x;
                    sum.y += w[j] * wide.y;
                }
                value += UNROLL * step;
                weight += UNROLL * warps;
            }
            for (; t < T; t += warps) {
                float2 wide = __half22float2(*(const half2 *)value);
                sum.x += *weight * wide.x;
                sum.y += *weight * wide.y;
                value += step;
                weight += warps;
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
