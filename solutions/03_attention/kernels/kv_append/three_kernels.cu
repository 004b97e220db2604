// kv_append/three_kernels: K[b, t] = half(RoPE of k[b, n] at t), V[b, t] = half(v[b, n]) at t = positions[b] + n.
//
// The first rung, and llama.cpp's way: RoPE in float32, into memory; then a kernel that rounds numbers to float16 and
// puts them into a cache, once for the keys and once for the values. One thread per pair, or per number.
// Watch: launches; the turned keys go to memory and come back.
//
// workspace turned float32 (B, N, HKV, D)
// launch kv_append_rope<<<((B * N * HKV * (D / 2) + 255) / 256), (256), 0>>>(turned, k, turn, positions, B, N, HKV, D)
// launch kv_append_copy<<<((B * N * HKV * D + 255) / 256), (256), 0>>>(K, turned, positions, B, N, T, HKV * D)
// launch kv_append_copy<<<((B * N * HKV * D + 255) / 256), (256), 0>>>(V, v, positions, B, N, T, HKV * D)

#include <cuda_fp16.h>

extern "C" __global__ void kv_append_rope(float *turned, const float *k, const float *turn, const int *positions, int B,
                                          int N, int HKV, int D)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;  // counts pairs, then heads, tokens, sequences
    int P = D / 2, p = i % P;
    size_t token = i / P / HKV;  // b * N + n
    if (token >= (size_t)B * N)
        return;
    // BEGIN SOLUTION
    float2 by = ((const float2 *)turn)[(size_t)(positions[token / N] + token % N) * P + p];  // cosine, sine
    float2 pair = ((const float2 *)k)[i];
    ((float2 *)turned)[i] = make_float2(pair.x * by.x - pair.y * by.y, pair.x * by.y + pair.y * by.x);
    // END SOLUTION
}

// C: numbers of a token, those of all heads.
extern "C" __global__ void kv_append_copy(half *cache, const float *rows, const int *positions, int B, int N, int T,
                                          int C)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    size_t token = i / C, b = token / N, n = token % N;
    if (b >= B)
        return;
    // BEGIN SOLUTION
    cache[(b * T + positions[b] + n) * C + i % C] = __float2half(rows[i]);
    // END SOLUTION
}
