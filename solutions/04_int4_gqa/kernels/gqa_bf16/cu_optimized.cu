// gqa_bf16/cu_optimized: O[b, h] = softmax(Q[b, h] K[b]^T / sqrt(128)) V[b], K and V in bfloat16; tensor cores.
//
// Against cu_baseline: what int4_gqa climbs in rungs, as far as it concerns a cache that needs no dequantizing. The
// steps of K are unrolled, so that loads run ahead; maximum and sum have no array in local memory; the maximum comes
// out of the fragments, P is rounded on its way into one, and S lies in shared memory as fragments are read, 8 heads
// by 16 tokens after each other. Of wmma's fragments, lane 4 g + q holds the scores of heads 2 q and 2 q + 1 for
// tokens g, g + 8, g + 16 and g + 24, and P of head g for tokens 2 q, 2 q + 1, 2 q + 8 and 2 q + 9: on sm_80 and
// sm_90, which CUDA does not promise. Elsewhere all that goes through shared memory.
// Watch: long scoreboard stalls; barriers; shared bank conflicts.
//
// workspace parts float32 (split_k * B * ((HQ + 7) / 8 * 8) * 128)
// workspace stats float32 (split_k * B * ((HQ + 7) / 8 * 8) * 2)
// launch cu_optimized<<<(B, (HQ + 7) / 8, split_k), (32, 4), (
//     ((T + split_k - 1) / split_k + 31) / 32 * 32 * 32 + 6464)>>>(parts, stats, Q, K, V, lengths, T, HQ, split_k)
// launch combine<<<(HQ, B), (128)>>>(O, parts, stats, split_k)

#include <cuda_bf16.h>
#include <mma.h>
using namespace nvcuda;
using bf16 = __nv_bfloat16;

#ifndef KNOWN_LAYOUT
#define KNOWN_LAYOUT (__CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900)  // of wmma's fragments
#endif
constexpr int D = 128, HEADS = 8, WARPS = 4, THREADS = 32 * WARPS;
constexpr int Q_ROW = D + 8;           // numbers from row to row of Q in shared memory: no two meet in a bank
constexpr int TOKENS = 32, STEP = 16;  // of a tile of scores; numbers of K, or tokens of V, of one product
constexpr int CASTS = 4;               // pairs of P that a thread rounds between two barriers
constexpr float SCALE = 1.44269504f / 11.3137085f;  // exp(s / sqrt(128)) = 2^(s * SCALE)
constexpr float LEAST = -3.4e38f;  // no score is smaller

// Where the score of head h and token t lies.
__device__ int place(int h, unsigned t, int room)
{
    return KNOWN_LAYOUT ? t / STEP * STEP * HEADS + h * STEP + t % STEP : h * room + t;
}

// Rows t to t + rows - 1 of the cache, numbers d to d + width - 1, in the warp's tile: zeros where there is no token.
__device__ void stage(bf16 *tile, const bf16 *cache, int t, int rows, int d, int width, int n)
{
    for (int i = threadIdx.x; i < rows * width; i += 32)
        tile[i] = t + i / width < n ? cache[(size_t)(t + i / width) * D + d + i % width] : bf16(0.0f);
}

extern "C" __global__ void __launch_bounds__(THREADS)
cu_optimized(float *parts, float *stats, const bf16 *Q, const bf16 *K, const bf16 *V, const int *lengths,
             int T, int HQ, int split_k)
{
    extern __shared__ float shared[];
    int room = ((T + split_k - 1) / split_k + TOKENS - 1) / TOKENS * TOKENS;  // tokens of a block, at most
    float *S = shared;                               // [HEADS][room]
    bf16 *P = (bf16 *)S;                             // [HEADS][2 * room], the first half of each row
    bf16 *sQ = (bf16 *)(S + HEADS * room);           // [HEADS][Q_ROW]
    bf16 *tiles = sQ + HEADS * Q_ROW;                 // [WARPS][TOKENS * STEP]
    float *across = (float *)(tiles + WARPS * TOKENS * STEP);                   // [WARPS][HEADS]
    float *maxima = across + WARPS * HEADS, *sums = maxima + HEADS;             // [HEADS]
    int b = blockIdx.x, head0 = HEADS * blockIdx.y, warp = threadIdx.y, lane = threadIdx.x, tid = 32 * warp + lane;
    bf16 *tile = tiles + warp * TOKENS * STEP;       // the warp's own: of K [32][16], of V [16][32]

    int heads = min(HEADS, HQ - head0), length = lengths[b];
    int piece = ((length + split_k - 1) / split_k + TOKENS - 1) / TOKENS * TOKENS, first = piece * blockIdx.z;
    int n = min(piece, length - first), padded = (n + TOKENS - 1) / TOKENS * TOKENS;  // tokens of this block
    size_t part = ((size_t)blockIdx.z * gridDim.x + b) * gridDim.y * HEADS + head0;  // of the block's first head
    if (n <= 0) {
        if (tid < HEADS)
            stats[2 * (part + tid) + 1] = 0.0f;  // nothing to add
        return;
    }
    K += ((size_t)b * T + first) * D;
    V += ((size_t)b * T + first) * D;
    for (int i = tid; i < HEADS * D; i += THREADS)
        sQ[i / D * Q_ROW + i % D] = i / D < heads ? Q[((size_t)b * HQ + head0) * D + i] : bf16(0.0f);
    __syncthreads();  // Q is there

    // BEGIN SOLUTION
    // S = Q K^T: whole tiles straight from global memory.
    float best[2] = {LEAST, LEAST};  // of heads 2 q and 2 q + 1
    for (int t0 = TOKENS * warp; t0 < n; t0 += TOKENS * WARPS) {
        wmma::fragment<wmma::accumulator, HEADS, TOKENS, STEP, float> s;
        wmma::fill_fragment(s, 0.0f);
        #pragma unroll
        for (int d = 0; d < D; d += STEP) {
            wmma::fragment<wmma::matrix_a, HEADS, TOKENS, STEP, bf16, wmma::row_major> q;
            wmma::fragment<wmma::matrix_b, HEADS, TOKENS, STEP, bf16, wmma::col_major> k;
            wmma::load_matrix_sync(q, sQ + d, Q_ROW);
            if (t0 + TOKENS <= n)
                wmma::load_matrix_sync(k, K + (size_t)t0 * D + d, D);
            else {
                stage(tile, K, t0, TOKENS, d, STEP, n);
                __syncwarp();  // the tile is there
                wmma::load_matrix_sync(k, tile, STEP);
                __syncwarp();  // and has been read
            }
            wmma::mma_sync(s, q, k, s);
        }
        if (KNOWN_LAYOUT)
            for (int e = 0; e < s.num_elements; ++e) {
                int h = lane % 4 * 2 + e % 2, t = t0 + lane / 4 + e / 2 * 8;
                S[place(h, t, room)] = s.x[e];
                if (t < n)
                    best[e % 2] = fmaxf(best[e % 2], s.x[e]);
            }
        else
            wmma::store_matrix_sync(S + t0, s, room, wmma::mem_row_major);
    }
    if (KNOWN_LAYOUT)
        for (int e = 0; e < 2; ++e) {
            for (int far = 16; far > 2; far /= 2)  // the lanes with the same q
                best[e] = fmaxf(best[e], __shfl_xor_sync(0xffffffff, best[e], far));
            if (lane < 4)
                across[warp * HEADS + 2 * lane + e] = best[e];
        }
    __syncthreads();  // all scores are there, and each warp's maxima

    // The largest score of each head.
    if (KNOWN_LAYOUT && tid < HEADS)
        maxima[tid] = fmaxf(fmaxf(across[tid], across[HEADS + tid]),
                            fmaxf(across[2 * HEADS + tid], across[3 * HEADS + tid]));
    for (int h = warp; h < HEADS && !KNOWN_LAYOUT; h += WARPS) {
        float best = LEAST;
        for (int t = lane; t < n; t += 32)
            best = fmaxf(best, S[h * room + t]);
        for (int far = 16; far > 0; far /= 2)
            best = fmaxf(best, __shfl_xor_sync(0xffffffff, best, far));
        if (lane == 0)
            maxima[h] = best;
    }
    __syncthreads();  // all maxima are there

    // P, not divided by its sum yet; zeros for the heads and tokens that are not there.
    constexpr int SHARE = THREADS / HEADS;  // threads of a head
    int mine = tid / SHARE;
    float sum = 0.0f;
    for (int t = tid % SHARE; t < padded; t += SHARE) {
        float &s = S[place(mine, t, room)];
        s = t < n ? exp2f((s - maxima[mine]) * SCALE) : 0.0f;
        sum += s;
    }
    for (int far = SHARE / 2; far > 0; far /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, far);
    if (tid % SHARE == 0)
        sums[mine] = sum;
    __syncthreads();  // P is there in float32, and its sums

    // P in bfloat16, over S: what is written at t lies over the scores of t / 2, which have been read by then.
    for (int h = 0; h < HEADS && !KNOWN_LAYOUT; ++h)
        for (int t0 = 2 * tid; t0 - 2 * tid < padded; t0 += 2 * THREADS * CASTS) {
            float2 two[CASTS];
            #pragma unroll
            for (int i = 0; i < CASTS; ++i)
                if (int t = t0 + 2 * THREADS * i; t < padded)
                    two[i] = *(const float2 *)(S + h * room + t);
            __syncthreads();  // all have read
            #pragma unroll
            for (int i = 0; i < CASTS; ++i)
                if (int t = t0 + 2 * THREADS * i; t < padded)
                    *(__nv_bfloat162 *)(P + h * 2 * room + t) = __float22bfloat162_rn(two[i]);
        }
    if (!KNOWN_LAYOUT)
        __syncthreads();  // P is there

    // O = P V: the warp has 32 of the 128 columns.
    wmma::fragment<wmma::accumulator, HEADS, TOKENS, STEP, float> o;
    wmma::fill_fragment(o, 0.0f);
    #pragma unroll 2
    for (int t0 = 0; t0 < n; t0 += STEP) {
        wmma::fragment<wmma::matrix_a, HEADS, TOKENS, STEP, bf16, wmma::row_major> p;
        wmma::fragment<wmma::matrix_b, HEADS, TOKENS, STEP, bf16, wmma::row_major> v;
        if (KNOWN_LAYOUT)
            for (int e = 0; e < 4; e += 2) {
                float2 two = *(const float2 *)(S + place(lane / 4, t0 + lane % 4 * 2 + e * 4, room));
                p.x[e] = __float2bfloat16(two.x), p.x[e + 1] = __float2bfloat16(two.y);
            }
        else
            wmma::load_matrix_sync(p, P + t0, 2 * room);
        if (t0 + STEP <= n)
            wmma::load_matrix_sync(v, V + (size_t)t0 * D + TOKENS * warp, D);
        else {
            stage(tile, V, t0, STEP, TOKENS * warp, TOKENS, n);
            __syncwarp();  // the tile is there
            wmma::load_matrix_sync(v, tile, TOKENS);
        }
        wmma::mma_sync(o, p, v, o);
    }
    wmma::store_matrix_sync(parts + part * D + 32 * warp, o, D, wmma::mem_row_major);
    if (tid < heads) {
        stats[2 * (part + tid)] = maxima[tid];
        stats[2 * (part + tid) + 1] = sums[tid];
    }
    // END SOLUTION
}

// Put the pieces of a head together, one thread per column: each is scaled to the largest maximum of all.
extern "C" __global__ void __launch_bounds__(D)
combine(bf16 *O, const float *parts, const float *stats, int split_k)
{
    int h = blockIdx.x, b = blockIdx.y, HQ = gridDim.x, heads = (HQ + HEADS - 1) / HEADS * HEADS;
    float best = LEAST, sum = 0.0f, o = 0.0f;
    for (int s = 0; s < split_k; ++s) {
        size_t part = ((size_t)s * gridDim.y + b) * heads + h;
        float more = stats[2 * part + 1];
        if (more == 0.0f)
            continue;  // a piece without tokens
        float its = stats[2 * part], top = fmaxf(best, its);
        float old = exp2f((best - top) * SCALE), mine = exp2f((its - top) * SCALE);
        sum = sum * old + more * mine;
        o = o * old + parts[part * D + threadIdx.x] * mine;
        best = top;
    }
    O[((size_t)b * HQ + h) * D + threadIdx.x] = __float2bfloat16(o / sum);
}
