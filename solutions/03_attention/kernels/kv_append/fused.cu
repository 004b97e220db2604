// kv_append/fused: K[b, t] = half(RoPE of k[b, n] at t), V[b, t] = half(v[b, n]) at t = positions[b] + n.
//
// Against three_kernels: one thread has a pair of k and the same pair of v; turns the one, and rounds and stores both.
// The turned keys never go to memory in float32, and there is one launch.
// Watch: launches; load and store requests; bytes moved.
//
// launch kv_append_fused<<<((B * N * HKV * (D / 2) + 255) / 256), (256), 0>>>(K, V, k, v, turn, positions, B, N, T,
//     HKV, D)

#include <cuda_fp16.h>

extern "C" __global__ void kv_append_fused(half *K, half *V, const float *k, const float *v, const float *turn,
                                           const int *positions, int B, int N, int T, int HKV, int D)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;  // counts pairs, then heads, tokens, sequences
    int P = D / 2, p = i % P;
    size_t token = i / P / HKV, b = token / N;
    if (b >= B)
        return;
    // BEGIN SOLUTION
    size_t t = positions[b] + token % N;
    float2 by = ((const float2 *)turn)[t * P + p];  // cosine, sine
    float2 key = ((const float2 *)k)[i], value = ((const float2 *)v)[i];
    size_t at = (b * T + t) * HKV * P + i % ((size_t)HKV * P);
    ((half2 *)K)[at] = __floats2half2_rn(key.x * by.x - key.y * by.y, key.x * by.y + key.y * by.x);
    ((half2 *)V)[at] = __floats2half2_rn(value.x, value.y);
    // END SOLUTION
}
