// decode_attention_f16/one_block: O[b, h] = softmax(Q[b, h] K[b, :, g]^T / sqrt(D)) V[b, :, g] in float16, sums in
// float32; a block per sequence and query head.
//
// The first rung on a batch. A row of the cache is D / 8 pieces of 16 bytes, so that D / 8 lanes share a token and a
// warp has 2 or 4 tokens at a time; these lanes are a team. A team takes 4 tokens per turn, asks for all of their keys
// and values first, and keeps its own online softmax. The teams' results are put together in shared memory.
// Watch: blocks; waves.
//
// launch decode_one_block<<<(HQ, B), (128), 0>>>(O, Q, K, V, lengths, T, HKV, D)

#include <cuda_fp16.h>

constexpr int THREADS = 128, EACH = 4;  // tokens of a team per turn
constexpr float LOWEST = -1e30f;        // below any score; and not -inf: -inf - -inf is NaN
#define INF __int_as_float(0x7f800000)

// 8 numbers of 16 bytes, widened.
__device__ void widen(float (&x)[8], uint4 bits)
{
    const half2 *two = (const half2 *)&bits;
    for (int i = 0; i < 4; ++i) {
        float2 wide = __half22float2(two[i]);
        x[2 * i] = wide.x, x[2 * i + 1] = wide.y;
    }
}

template <int D>
__device__ void attend(half *O, const half *Q, const half *K, const half *V, const int *lengths, int T, int HKV)
{
    constexpr int LANES = D / 8, TEAMS = THREADS / LANES;
    __shared__ float outs[TEAMS][D], mosts[TEAMS], totals[TEAMS];
    int h = blockIdx.x, b = blockIdx.y, HQ = gridDim.x, g = h / (HQ / HKV), length = lengths[b];
    int team = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    float scale2 = rsqrtf(D) * 1.4426950408889634f;  // exp(x) is exp2(x log2(e))
    float q[8], o[8] = {}, most = LOWEST, total = 0.0f;
    widen(q, *(const uint4 *)(Q + ((size_t)b * HQ + h) * D + 8 * lane));
    const uint4 *keys = (const uint4 *)(K + ((size_t)b * T * HKV + g) * D) + lane;
    const uint4 *values = (const uint4 *)(V + ((size_t)b * T * HKV + g) * D) + lane;
    size_t step = (size_t)HKV * LANES;  // from token to token, in pieces
    for (int t0 = 0; t0 < length; t0 += EACH * TEAMS) {  // all threads take as many turns: shuffles need whole warps
        // BEGIN SOLUTION
        uint4 k[EACH], v[EACH];
        float s[EACH], top = most;
        #pragma unroll
        for (int e = 0; e < EACH; ++e) {
            int t = t0 + e * TEAMS + team;
            k[e] = v[e] = make_uint4(0, 0, 0, 0);
            if (t < length)
                k[e] = keys[t * step], v[e] = values[t * step];
        }
        #pragma unroll
        for (int e = 0; e < EACH; ++e) {
            float x[8];
            widen(x, k[e]);
            s[e] = 0.0f;
            for (int i = 0; i < 8; ++i)
                s[e] += q[i] * x[i];
            for (int far = LANES / 2; far > 0; far /= 2)
                s[e] += __shfl_xor_sync(0xffffffff, s[e], far);
            s[e] = t0 + e * TEAMS + team < length ? s[e] * scale2 : -INF;
            top = fmaxf(top, s[e]);
        }
        float shrink = exp2f(most - top);
        most = top, total *= shrink;
        for (int i = 0; i < 8; ++i)
            o[i] *= shrink;
        #pragma unroll
        for (int e = 0; e < EACH; ++e) {
            float x[8], p = exp2f(s[e] - most);
            widen(x, v[e]);
            total += p;
            for (int i = 0; i < 8; ++i)
                o[i] += p * x[i];
        }
        // END SOLUTION
    }
    for (int i = 0; i < 8; ++i)
        outs[team][8 * lane + i] = o[i];
    if (lane == 0)
        mosts[team] = most, totals[team] = total;
    __syncthreads();  // each team's are there
    if (threadIdx.x >= D)
        return;
    float number = 0.0f;
    total = 0.0f;
    for (int i = 0; i < TEAMS; ++i)
        most = fmaxf(most, mosts[i]);
    for (int i = 0; i < TEAMS; ++i) {
        float times = exp2f(mosts[i] - most);
        total += times * totals[i];
        number += times * outs[i][threadIdx.x];
    }
    O[((size_t)b * HQ + h) * D + threadIdx.x] = __float2half(total > 0.0f ? number / total : 0.0f);  // no keys, no sum
}

// Q, K and V begin on 16 bytes.
extern "C" __global__ void __launch_bounds__(THREADS)
decode_one_block(half *O, const half *Q, const half *K, const half *V, const int *lengths, int T, int HKV, int D)
{
    if (D == 64)
        attend<64>(O, Q, K, V, lengths, T, HKV);
    else
        attend<128>(O, Q, K, V, lengths, T, HKV);
}
