// attention/online_softmax: O = softmax(scale Q K^T) V and L in float32, one kernel, a warp per query.
//
// Against tiled: no score is stored. A warp walks over the keys once and keeps three things of its query: the largest
// score so far, the sum of exponentials relative to it, and their weighted sum of V. A larger score corrects both sums.
// Each lane has every 32nd number of the head dimension. With causal, the walk ends at the query.
// Watch: store sectors fall to those of O; the peak of memory no longer grows with N * NK. K and V are read per query.
//
// launch attention_online_softmax<<<((N + WARPS - 1) / WARPS * (B * H)), (32 * WARPS), 0>>>(O, L, Q,
//     K, V, H / HK, N, NK, D, scale, causal)

constexpr int WARPS = 8;  // queries of a block, neighbors: what one loads is in the L1 for the others
constexpr int PARTS = 4;  // numbers of a row in a lane, at most: D is 128 or less

// group: query heads per key head.
extern "C" __global__ void attention_online_softmax(float *O, float *L, const float *Q, const float *K, const float *V,
                                                    int group, int N, int NK, int D, float scale, int causal)
{
    int tiles = (N + WARPS - 1) / WARPS, head = blockIdx.x / tiles, lane = threadIdx.x % 32;
    int i = blockIdx.x % tiles * WARPS + threadIdx.x / 32;
    if (i >= N)
        return;
    const float *k = K + (size_t)(head / group) * NK * D + lane, *v = V + (size_t)(head / group) * NK * D + lane;
    size_t row = (size_t)head * N + i;
    float q[PARTS] = {}, o[PARTS] = {}, m = -3.402823466e38f, l = 0.0f;  // and not -inf: exp(-inf - -inf) is NaN
    scale = scale == 0.0f ? 1.0f / sqrtf(D) : scale;
    for (int e = 0; e < PARTS; ++e)
        if (32 * e < D)
            q[e] = Q[row * D + 32 * e + lane] * scale;
    int keys = causal ? min(i + 1, NK) : NK;
    for (int j = 0; j < keys; ++j) {
        // BEGIN SOLUTION
        float s = 0.0f;
        for (int e = 0; e < PARTS; ++e)
            if (32 * e < D)
                s += q[e] * k[(size_t)j * D + 32 * e];
        for (int d = 16; d > 0; d /= 2)
            s += __shfl_xor_sync(0xffffffff, s, d);
        float largest = fmaxf(m, s), correction = expf(m - largest), p = expf(s - largest);
        l = l * correction + p;
        for (int e = 0; e < PARTS; ++e)
            if (32 * e < D)
                o[e] = o[e] * correction + p * v[(size_t)j * D + 32 * e];
        m = largest;
        // END SOLUTION
    }
    for (int e = 0; e < PARTS; ++e)
        if (32 * e < D)
            O[row * D + 32 * e + lane] = l > 0.0f ? o[e] / l : 0.0f;  // a row of -inf has no sum
    if (lane == 0)
        L[row] = m + logf(l);
}
