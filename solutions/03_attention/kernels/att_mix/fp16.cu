// att_mix/fp16: out[h, d] = sum over t of att[h, t] * v[t, h / (H / HKV), d], v in float16, all else float32.
//
// Against shared_atomics: the cache is half as large. A number of v is widened as soon as it is there; weights and sums
// stay in float32.
// Watch: sectors per request; bytes from memory.
//
// launch att_mix_fp16<<<(H), (32, min(T, WARPS)), 0>>>(out, att, v, T, H, HKV, D)

#include <cuda_fp16.h>

constexpr int WARPS = 32;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
att_mix_fp16(float *out, const float *att, const half *v, int T, int H, int HKV, int D)
{
    __shared__ float sums[32];  // of 32 neighboring d
    int h = blockIdx.x, g = h / (H / HKV), lane = threadIdx.x, warp = threadIdx.y, warps = blockDim.y;
    if (warp == 0)
        sums[lane] = 0.0f;
    __syncthreads();  // all are zero before the first is added to
    for (int d = lane; d < D; d += 32) {
        float sum = 0.0f;
        // BEGIN SOLUTION
        for (int t = warp; t < T; t += warps)
            sum += att[(size_t)h * T + t] * __half2float(v[((size_t)t * HKV + g) * D + d]);
        atomicAdd(&sums[lane], sum);
        // END SOLUTION
        __syncthreads();  // each warp has added
        if (warp == 0) {
            out[h * D + d] = sums[lane];
            sums[lane] = 0.0f;
        }
        __syncthreads();  // zero again before the next is added
    }
}
