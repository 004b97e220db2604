// gqa_bf16/cuda_core: O[b, h] = softmax(Q[b, h] K[b]^T / sqrt(128)) V[b], K and V in bfloat16; no tensor cores.
//
// The bottom rung: a block has one head of a sequence and 1 of split_k pieces of its tokens, and 4 warps take turns at
// the tokens. A lane has 4 of the 128 numbers: 8 bytes of a row. The score of a token is a sum over the lanes, after
// which all of them know it; the softmax is kept online, so that one walk over the tokens does. The warps' results,
// and in a second kernel those of the pieces, are put together at the end.
// Watch: instructions per number; each of the 8 heads reads all of K and V.
//
// workspace parts float32 (split_k * B * HQ * 128)
// workspace stats float32 (split_k * B * HQ * 2)
// launch cuda_core<<<(HQ, B, split_k), (32, 4), 0>>>(parts, stats, Q, K, V, lengths, T, split_k)
// launch combine<<<(HQ, B), (128)>>>(O, parts, stats, split_k)

#include <cuda_bf16.h>

constexpr int D = 128, WARPS = 4;
constexpr float SCALE = 1.44269504f / 11.3137085f;  // exp(s / sqrt(128)) = 2^(s * SCALE)
constexpr float LEAST = -3.4e38f;                   // no score is smaller

// Numbers 4 lane to 4 lane + 3 of a row.
__device__ float4 numbers(const __nv_bfloat16 *row, int lane)
{
    uint2 four = ((const uint2 *)row)[lane];
    float2 low = __bfloat1622float2(*(__nv_bfloat162 *)&four.x), high = __bfloat1622float2(*(__nv_bfloat162 *)&four.y);
    return make_float4(low.x, low.y, high.x, high.y);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
cuda_core(float *parts, float *stats, const __nv_bfloat16 *Q, const __nv_bfloat16 *K, const __nv_bfloat16 *V,
          const int *lengths, int T, int split_k)
{
    __shared__ float4 o_of[WARPS][32];
    __shared__ float best_of[WARPS], sum_of[WARPS];
    int h = blockIdx.x, b = blockIdx.y, HQ = gridDim.x, warp = threadIdx.y, lane = threadIdx.x;
    int piece = (lengths[b] + split_k - 1) / split_k, first = piece * blockIdx.z;
    int last = min(first + piece, lengths[b]);
    size_t part = ((size_t)blockIdx.z * gridDim.y + b) * HQ + h;
    const __nv_bfloat16 *q_of = Q + ((size_t)b * HQ + h) * D + 4 * lane;
    float4 q = make_float4(q_of[0], q_of[1], q_of[2], q_of[3]), o = {};
    float best = LEAST, sum = 0.0f;
    // BEGIN SOLUTION
    for (int t = first + warp; t < last; t += WARPS) {
        float4 k = numbers(K + ((size_t)b * T + t) * D, lane);
        float4 v = numbers(V + ((size_t)b * T + t) * D, lane);
        float s = q.x * k.x + q.y * k.y + q.z * k.z + q.w * k.w;
        for (int far = 16; far > 0; far /= 2)
            s += __shfl_xor_sync(0xffffffff, s, far);
        float top = fmaxf(best, s), old = exp2f((best - top) * SCALE), p = exp2f((s - top) * SCALE);
        sum = sum * old + p;
        o = make_float4(o.x * old + p * v.x, o.y * old + p * v.y, o.z * old + p * v.z, o.w * old + p * v.w);
        best = top;
    }
    // END SOLUTION
    o_of[warp][lane] = o;
    if (lane == 0)
        best_of[warp] = best, sum_of[warp] = sum;
    __syncthreads();  // each warp's are there
    if (warp > 0)
        return;
    for (int w = 1; w < WARPS; ++w) {
        float top = fmaxf(best, best_of[w]), old = exp2f((best - top) * SCALE), its = exp2f((best_of[w] - top) * SCALE);
        float4 more = o_of[w][lane];
        sum = sum * old + sum_of[w] * its;
        o = make_float4(o.x * old + more.x * its, o.y * old + more.y * its, o.z * old + more.z * its,
                        o.w * old + more.w * its);
        best = top;
    }
    ((float4 *)parts)[part * (D / 4) + lane] = o;
    if (lane == 0)
        stats[2 * part] = best, stats[2 * part + 1] = sum;
}

// Put the pieces of a head together, one thread per column: each is scaled to the largest maximum of all.
extern "C" __global__ void __launch_bounds__(D)
combine(__nv_bfloat16 *O, const float *parts, const float *stats, int split_k)
{
    size_t row = (size_t)blockIdx.y * gridDim.x + blockIdx.x, rows = (size_t)gridDim.x * gridDim.y;
    float best = LEAST, sum = 0.0f, o = 0.0f;
    for (int s = 0; s < split_k; ++s) {
        size_t part = s * rows + row;
        float its = stats[2 * part], top = fmaxf(best, its);
        float old = exp2f((best - top) * SCALE), mine = exp2f((its - top) * SCALE);
        sum = sum * old + stats[2 * part + 1] * mine;
        o = o * old + parts[part * D + threadIdx.x] * mine;
        best = top;
    }
    O[row * D + threadIdx.x] = __float2bfloat16(o / sum);
}
