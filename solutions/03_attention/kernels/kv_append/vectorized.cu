// kv_append/vectorized: K[b, t] = half(RoPE of k[b, n] at t), V[b, t] = half(v[b, n]) at t = positions[b] + n.
//
// Against fused: a thread has 4 pairs, 16 bytes of a cache's row, of up to 4 heads. It reads cosines and sines once for
// these heads, and asks for everything before it computes. Heads whose size is no multiple of 8 go pair by pair.
// Watch: instructions; load and store requests.
//
// launch kv_append_vectorized<<<((B * N * ((HKV + HEADS - 1) / HEADS) * ((D + 7) / 8) + 127) / 128), (128), 0>>>(K, V,
//     k, v, turn, positions, B, N, T, HKV, D)

#include <cuda_fp16.h>

constexpr int HEADS = 4;  // of a thread

// Two pairs, turned by the cosines and sines of `by`.
__device__ float4 turned(float4 x, float4 by)
{
    return make_float4(x.x * by.x - x.y * by.y, x.x * by.y + x.y * by.x,
                       x.z * by.z - x.w * by.w, x.z * by.w + x.w * by.z);
}

// 8 numbers rounded to float16, stored at once.
__device__ void store8(half *to, float4 a, float4 b)
{
    half2 h[4] = {__floats2half2_rn(a.x, a.y), __floats2half2_rn(a.z, a.w),
                  __floats2half2_rn(b.x, b.y), __floats2half2_rn(b.z, b.w)};
    *(uint4 *)to = *(uint4 *)h;
}

extern "C" __global__ void __launch_bounds__(128)
kv_append_vectorized(half *K, half *V, const float *k, const float *v, const float *turn, const int *positions, int B,
                     int N, int T, int HKV, int D)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;  // counts pieces, then groups of heads, tokens, sequences
    unsigned pieces = (D + 7) / 8, groups = (HKV + HEADS - 1) / HEADS;
    unsigned d = i % pieces * 8, h = i / pieces % groups * HEADS, token = i / pieces / groups, b = token / N;
    if (b >= B)
        return;
    size_t t = positions[b] + token % N;
    const float *by = turn + t * D + d;
    size_t from = ((size_t)token * HKV + h) * D + d, to = ((b * (size_t)T + t) * HKV + h) * D + d;
    int heads = min(HEADS, HKV - h);
    if (D % 8 == 0) {
        // BEGIN SOLUTION
        float4 by0 = *(const float4 *)by, by1 = *(const float4 *)(by + 4);
        float4 x[HEADS][2], y[HEADS][2];
        #pragma unroll
        for (int e = 0; e < HEADS; ++e)
            if (e < heads) {
                const float4 *key = (const float4 *)(k + from + e * D), *value = (const float4 *)(v + from + e * D);
                x[e][0] = key[0], x[e][1] = key[1], y[e][0] = value[0], y[e][1] = value[1];
            }
        #pragma unroll
        for (int e = 0; e < HEADS; ++e)
            if (e < heads) {
                store8(K + to + e * D, turned(x[e][0], by0), turned(x[e][1], by1));
                store8(V + to + e * D, y[e][0], y[e][1]);
            }
        // END SOLUTION
    } else {
        for (int e = 0; e < heads; ++e)
            for (int j = 0; j < min(8, D - (int)d); j += 2) {
                size_t at = from + e * D + j, there = to + e * D + j;
                *(half2 *)(K + there) = __floats2half2_rn(k[at] * by[j] - k[at + 1] * by[j + 1],
                                                          k[at] * by[j + 1] + k[at + 1] * by[j]);
                *(half2 *)(V + there) = __floats2half2_rn(v[at], v[at + 1]);
            }
    }
}
