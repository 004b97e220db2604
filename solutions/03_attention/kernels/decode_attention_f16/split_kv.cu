// decode_attention_f16/split_kv: O[b, h] = softmax(Q[b, h] K[b, :, g]^T / sqrt(D)) V[b, :, g] in float16, sums in
// float32; a block per sequence, query head and piece of the tokens.
//
// Against one_block: the tokens of a sequence are cut into pieces, so that even one sequence has blocks for the whole
// GPU. A block leaves what it has of O, the largest of its scores and the sum of its weights; a second kernel puts the
// pieces of a head together, each shrunk to the largest score of all. This is flash-decoding.
// Watch: blocks; launches.
//
// workspace parts float32 (B, HQ, max(splits, (splits == 0) * max(1, min((T + 255) / 256, BLOCKS / (B * HQ)))), D)
// workspace stats float32 (B, HQ, max(splits, (splits == 0) * max(1, min((T + 255) / 256, BLOCKS / (B * HQ)))), 2)
// launch decode_split_kv<<<(HQ, B, max(splits, (splits == 0) * max(1, min((T + 255) / 256, BLOCKS / (B * HQ)))
//     )), (THREADS), 0>>>(parts, stats, Q, K, V, lengths, T, HKV, D)
// launch decode_split_kv_combine<<<(HQ, B), (D, COMBINE / D), 0>>>(O, parts, stats,
//     max(splits, (splits == 0) * max(1, min((T + 255) / 256, BLOCKS / (B * HQ)))))

#include <cuda_fp16.h>

constexpr int BLOCKS = 1056;            // to aim for: 8 on each of 132 multiprocessors
constexpr int THREADS = 128, EACH = 4;  // tokens of a team per turn
constexpr int COMBINE = 512;            // threads that put a head together
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
__device__ void attend(float *parts, float *stats, const half *Q, const half *K, const half *V, const int *lengths,
                       int T, int HKV)
{
    constexpr int LANES = D / 8, TEAMS = THREADS / LANES;
    __shared__ float outs[TEAMS][D], mosts[TEAMS], totals[TEAMS];
    int h = blockIdx.x, b = blockIdx.y, HQ = gridDim.x, g = h / (HQ / HKV), length = lengths[b];
    int piece = (length + gridDim.z - 1) / gridDim.z, first = min(length, (int)blockIdx.z * piece);
    int last = min(length, first + piece);
    size_t part = ((size_t)b * HQ + h) * gridDim.z + blockIdx.z;
    int team = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    float scale2 = rsqrtf(D) * 1.4426950408889634f;  // exp(x) is exp2(x log2(e))
    float q[8], o[8] = {}, most = LOWEST, total = 0.0f;
    widen(q, *(const uint4 *)(Q + ((size_t)b * HQ + h) * D + 8 * lane));
    const uint4 *keys = (const uint4 *)(K + ((size_t)b * T * HKV + g) * D) + lane;
    const uint4 *values = (const uint4 *)(V + ((size_t)b * T * HKV + g) * D) + lane;
    size_t step = (size_t)HKV * LANES;  // from token to token, in pieces
    for (int t0 = first; t0 < last; t0 += EACH * TEAMS) {  // all threads take as many turns: shuffles need whole warps
        // BEGIN SOLUTION
        uint4 k[EACH], v[EACH];
        float s[EACH], top = most;
        #pragma unroll
        for (int e = 0; e < EACH; ++e) {
            int t = t0 + e * TEAMS + team;
            k[e] = v[e] = make_uint4(0, 0, 0, 0);
            if (t < last)
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
            s[e] = t0 + e * TEAMS + team < last ? s[e] * scale2 : -INF;
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
    parts[part * D + threadIdx.x] = number;
    if (threadIdx.x == 0)
        stats[2 * part] = most, stats[2 * part + 1] = total;
}

// Q, K and V begin on 16 bytes.
extern "C" __global__ void __launch_bounds__(THREADS)
decode_split_kv(float *parts, float *stats, const half *Q, const half *K, const half *V, const int *lengths, int T,
                int HKV, int D)
{
    if (D == 64)
        attend<64>(parts, stats, Q, K, V, lengths, T, HKV);
    else
        attend<128>(parts, stats, Q, K, V, lengths, T, HKV);
}

// A thread per number of O and every COMBINE / D-th piece; then the first D threads put these together.
extern "C" __global__ void __launch_bounds__(COMBINE)
decode_split_kv_combine(half *O, const float *parts, const float *stats, int splits)
{
    __shared__ float outs[COMBINE], mosts[COMBINE], totals[COMBINE];
    int d = threadIdx.x, D = blockDim.x, mine = threadIdx.y * D + d;
    size_t row = (size_t)blockIdx.y * gridDim.x + blockIdx.x;
    float most = LOWEST, total = 0.0f, number = 0.0f;
    auto add = [&](float its_most, float its_total, float its_number) {  // both relative to the larger maximum
        float top = fmaxf(most, its_most), old = exp2f(most - top), now = exp2f(its_most - top);
        total = total * old + its_total * now;
        number = number * old + its_number * now;
        most = top;
    };
    // BEGIN SOLUTION
    #pragma unroll 4
    for (int i = threadIdx.y; i < splits; i += blockDim.y) {
        size_t part = row * splits + i;
        add(stats[2 * part], stats[2 * part + 1], parts[part * D + d]);
    }
    // END SOLUTION
    mosts[mine] = most, totals[mine] = total, outs[mine] = number;
    __syncthreads();  // all threads' are there
    if (threadIdx.y > 0)
        return;
    for (int i = 1; i < blockDim.y; ++i)
        add(mosts[i * D + d], totals[i * D + d], outs[i * D + d]);
    O[row * D + d] = __float2half(total > 0.0f ? number / total : 0.0f);  // no keys, no sum
}
