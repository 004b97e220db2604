// decode_attention/five_kernels: O[h] = softmax(Q[h] K[:, g]^T / sqrt(D)) V[g], the cache in float16, all else float32.
//
// The first rung, llama.cpp's: one kernel per operator, the scores in memory between them. A warp has one score, and
// its lanes go along a row of K; later a warp has one number of O, and its lanes go along the tokens, which lie side by
// side in V. The mask changes nothing where the new token is the last, and is launched all the same. (llama.cpp counts
// tokens in the second dimension of the grid, which ends at 65,535; here it is the first.)
// Watch: launches; store sectors.
//
// workspace S float32 (HQ, T)
// launch decode_attention_scores<<<(T, HQ), (32), 0>>>(S, Q, K, T, HQ, HKV, D)
// launch decode_attention_scale<<<((HQ * T + 255) / 256), (256), 0>>>(S, HQ * T, D)
// launch decode_attention_mask<<<((T + 31) / 32, HQ), (32), 0>>>(S, T, n_past)
// launch decode_attention_softmax<<<(HQ), (32), 0>>>(S, T)
// launch decode_attention_values<<<(D, HQ), (32), 0>>>(O, S, V, T, HQ, HKV, D, C)

#include <cuda_fp16.h>
#define INF __int_as_float(0x7f800000)

// The sum over the lanes of a warp, in all of them.
__device__ float warp_sum(float x)
{
    for (int far = 16; far > 0; far /= 2)
        x += __shfl_xor_sync(0xffffffff, x, far);
    return x;
}

extern "C" __global__ void decode_attention_scores(float *S, const float *Q, const half *K, int T, int HQ, int HKV,
                                                   int D)
{
    int t = blockIdx.x, h = blockIdx.y, g = h / (HQ / HKV);
    float sum = 0.0f;
    // BEGIN SOLUTION
    for (int d = threadIdx.x; d < D; d += 32)
        sum += __half2float(K[((size_t)t * HKV + g) * D + d]) * Q[h * D + d];
    sum = warp_sum(sum);
    // END SOLUTION
    if (threadIdx.x == 0)
        S[(size_t)h * T + t] = sum;
}

extern "C" __global__ void decode_attention_scale(float *S, int N, int D)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N)
        S[i] *= 1.0f / sqrtf(D);
}

extern "C" __global__ void decode_attention_mask(float *S, int T, int n_past)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    size_t i = (size_t)blockIdx.y * T + t;
    if (t < T)
        S[i] = n_past >= 0 && t > n_past ? -INF : S[i];
}

extern "C" __global__ void decode_attention_softmax(float *S, int T)
{
    float *s = S + (size_t)blockIdx.x * T;
    float most = -3.402823466e38f, sum = 0.0f;  // and not -inf: exp(-inf - -inf) is NaN
    // BEGIN SOLUTION
    for (int t = threadIdx.x; t < T; t += 32)
        most = fmaxf(most, s[t]);
    for (int far = 16; far > 0; far /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, far));
    for (int t = threadIdx.x; t < T; t += 32)
        sum += expf(s[t] - most);
    sum = warp_sum(sum);
    for (int t = threadIdx.x; t < T; t += 32)
        s[t] = sum > 0.0f ? expf(s[t] - most) / sum : 0.0f;  // a row of -inf has no sum
    // END SOLUTION
}

extern "C" __global__ void decode_attention_values(float *O, const float *S, const half *V, int T, int HQ, int HKV,
                                                   int D, int C)
{
    int d = blockIdx.x, h = blockIdx.y, g = h / (HQ / HKV);
    float sum = 0.0f;
    // BEGIN SOLUTION
    for (int t = threadIdx.x; t < T; t += 32)
        sum += __half2float(V[((size_t)g * D + d) * C + t]) * S[(size_t)h * T + t];
    sum = warp_sum(sum);
    // END SOLUTION
    if (threadIdx.x == 0)
        O[h * D + d] = sum;
}
