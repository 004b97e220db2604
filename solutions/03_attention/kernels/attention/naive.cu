// attention/naive: O = softmax(scale Q K^T) V and L in float32, the formula word by word.
//
// Three kernels: one thread per score; one warp per row of scores for its softmax; one thread per element of O. The
// scores of all heads lie in memory between them, N x NK numbers per head.
// Watch: load and store sectors; the peak of memory.
//
// workspace S float32 (B, H, N, NK)
// launch attention_naive_scores<<<((NK + 15) / 16 * (B * H), (N + 15) / 16), (16, 16), 0>>>(S, Q, K,
//     H / HK, N, NK, D, scale, causal)
// launch attention_naive_softmax<<<(B * H * N), (32), 0>>>(S, L, NK)
// launch attention_naive_values<<<((D + 31) / 32 * (B * H), (N + 7) / 8), (32, 8), 0>>>(O, S, V, H / HK, N, NK, D)

#define INF __int_as_float(0x7f800000)

// group: query heads per key head.
extern "C" __global__ void attention_naive_scores(float *S, const float *Q, const float *K, int group, int N, int NK,
                                                  int D, float scale, int causal)
{
    int tiles = (NK + 15) / 16, head = blockIdx.x / tiles;
    int i = blockIdx.y * 16 + threadIdx.y, j = blockIdx.x % tiles * 16 + threadIdx.x;
    if (i >= N || j >= NK)
        return;
    const float *q = Q + ((size_t)head * N + i) * D, *k = K + ((size_t)(head / group) * NK + j) * D;
    float s = 0.0f;
    // BEGIN SOLUTION
    for (int d = 0; d < D; ++d)
        s += q[d] * k[d];
    s *= scale == 0.0f ? 1.0f / sqrtf(D) : scale;
    if (causal && j > i)
        s = -INF;
    // END SOLUTION
    S[((size_t)head * N + i) * NK + j] = s;
}

extern "C" __global__ void attention_naive_softmax(float *S, float *L, int NK)
{
    float *s = S + (size_t)blockIdx.x * NK;
    float m = -3.402823466e38f, l = 0.0f;  // and not -inf: exp(-inf - -inf) is NaN
    // BEGIN SOLUTION
    for (int j = threadIdx.x; j < NK; j += 32)
        m = fmaxf(m, s[j]);
    for (int d = 16; d > 0; d /= 2)
        m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, d));
    for (int j = threadIdx.x; j < NK; j += 32)
        l += expf(s[j] - m);
    for (int d = 16; d > 0; d /= 2)
        l += __shfl_xor_sync(0xffffffff, l, d);
    for (int j = threadIdx.x; j < NK; j += 32)
        s[j] = l > 0.0f ? expf(s[j] - m) / l : 0.0f;  // a row of -inf has no sum
    // END SOLUTION
    if (threadIdx.x == 0)
        L[blockIdx.x] = m + logf(l);
}

extern "C" __global__ void attention_naive_values(float *O, const float *S, const float *V, int group, int N, int NK,
                                                  int D)
{
    int tiles = (D + 31) / 32, head = blockIdx.x / tiles;
    int i = blockIdx.y * 8 + threadIdx.y, d = blockIdx.x % tiles * 32 + threadIdx.x;
    if (i >= N)
        return;
    const float *p = S + ((size_t)head * N + i) * NK, *v = V + (size_t)(head / group) * NK * D + d;
    float o = 0.0f;
    // BEGIN SOLUTION
    for (int j = 0; j < NK; ++j)
        o += p[j] * v[(size_t)j * D];
    // END SOLUTION
    O[((size_t)head * N + i) * D + d] = o;
}
