// gqa_bf16/cu_baseline: O[b, h] = softmax(Q[b, h] K[b]^T / sqrt(128)) V[b], K and V in bfloat16; tensor cores.
//
// Against cuda_core: all 8 heads at once. A block has 8 heads of a sequence and 1 of split_k pieces of its tokens, and
// 4 warps. First each warp takes every 4th tile of 32 tokens and multiplies Q with it (wmma m8n32k16), 16 numbers at a
// time. The scores of the block, S, lie in shared memory in float32; the softmax makes P of them, and a copy of it in
// bfloat16 goes into the second product: each warp has 32 of the 128 columns of V and walks over all tokens, 16 at a
// time. A second kernel puts the pieces together. The document's first version, for a cache that needs no
// dequantizing.
// Watch: tensor operations in place of FFMA; stalls at loads; local memory.
//
// workspace parts float32 (split_k * B * ((HQ + 7) / 8 * 8) * 128)
// workspace stats float32 (split_k * B * ((HQ + 7) / 8 * 8) * 2)
// launch cu_baseline<<<(B, (HQ + 7) / 8, split_k), (32, 4), (
//     ((T + split_k - 1) / split_k + 31) / 32 * 32 * 48 + 6464)>>>(parts, stats, Q, K, V, lengths, T, HQ, split_k)
// launch combine<<<(HQ, B), (128)>>>(O, parts, stats, split_k)

#include <cuda_bf16.h>
#include <mma.h>
using namespace nvcuda;
using bf16 = __nv_bfloat16;

constexpr int D = 128, HEADS = 8, WARPS = 4, THREADS = 32 * WARPS;
constexpr int Q_ROW = D + 8;           // numbers from row to row of Q in shared memory: no two meet in a bank
constexpr int TOKENS = 32, STEP = 16;  // of a tile of scores; numbers of K, or tokens of V, of one product
constexpr float SCALE = 1.44269504f / 11.3137085f;  // exp(s / sqrt(128)) = 2^(s * SCALE)
constexpr float LEAST = -3.4e38f;  // no score is smaller

// Rows t to t + rows - 1 of the cache, numbers d to d + width - 1, in the warp's tile: zeros where there is no token.
__device__ void stage(bf16 *tile, const bf16 *cache, int t, int rows, int d, int width, int n)
{
    for (int i = threadIdx.x; i < rows * width; i += 32)
        tile[i] = t + i / width < n ? cache[(size_t)(t + i / width) * D + d + i % width] : bf16(0.0f);
}

extern "C" __global__ void __launch_bounds__(THREADS)
cu_baseline(float *parts, float *stats, const bf16 *Q, const bf16 *K, const bf16 *V, const int *lengths,
            int T, int HQ, int split_k)
{
    extern __shared__ float shared[];
    int room = ((T + split_k - 1) / split_k + TOKENS - 1) / TOKENS * TOKENS;  // tokens of a block, at most
    float *S = shared;                               // [HEADS][room]
    bf16 *P = (bf16 *)(S + HEADS * room);            // [HEADS][room]
    bf16 *sQ = P + HEADS * room;                     // [HEADS][Q_ROW]
    bf16 *tiles = sQ + HEADS * Q_ROW;                 // [WARPS][TOKENS * STEP]
    float *across = (float *)(tiles + WARPS * TOKENS * STEP), *maxima = across + WARPS * HEADS, *sums = maxima + HEADS;
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
    for (int t0 = TOKENS * warp; t0 < n; t0 += TOKENS * WARPS) {
        wmma::fragment<wmma::accumulator, HEADS, TOKENS, STEP, float> s;
        wmma::fill_fragment(s, 0.0f);
        #pragma unroll 1
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
        wmma::store_matrix_sync(S + t0, s, room, wmma::mem_row_major);
    }
    __syncthreads();  // all scores are there

    // The largest score of each head. `heads` is not known when this is compiled: best lies in local memory.
    float best[HEADS];
    for (int h = 0; h < heads; ++h)
        best[h] = LEAST;
    #pragma unroll 1
    for (int t = tid; t < n; t += THREADS)
        #pragma unroll 1
        for (int h = 0; h < heads; ++h)
            best[h] = fmaxf(best[h], S[h * room + t]);
    #pragma unroll 1
    for (int h = 0; h < heads; ++h) {
        for (int far = 16; far > 0; far /= 2)
            best[h] = fmaxf(best[h], __shfl_xor_sync(0xffffffff, best[h], far));
        if (lane == 0)
            across[warp * HEADS + h] = best[h];
    }
    __syncthreads();  // each warp's are there
    if (tid < heads)
        for (int w = 0; w < WARPS; ++w)
            maxima[tid] = fmaxf(w ? maxima[tid] : LEAST, across[w * HEADS + tid]);
    __syncthreads();

    // P, not divided by its sum yet; zeros for the heads and tokens that are not there.
    float sum[HEADS];
    for (int h = 0; h < heads; ++h)
        sum[h] = 0.0f;
    #pragma unroll 1
    for (int t = tid; t < padded; t += THREADS)
        #pragma unroll 1
        for (int h = 0; h < heads; ++h) {
            float p = t < n ? exp2f((S[h * room + t] - maxima[h]) * SCALE) : 0.0f;
            S[h * room + t] = p;
            sum[h] += p;
        }
    #pragma unroll 1
    for (int h = 0; h < heads; ++h) {
        for (int far = 16; far > 0; far /= 2)
            sum[h] += __shfl_xor_sync(0xffffffff, sum[h], far);
        if (lane == 0)
            across[warp * HEADS + h] = sum[h];
    }
    __syncthreads();
    if (tid < heads)
        for (int w = 0; w < WARPS; ++w)
            sums[tid] = (w ? sums[tid] : 0.0f) + across[w * HEADS + tid];

    // P in bfloat16, one number at a time.
    for (int h = 0; h < HEADS; ++h)
        for (int t = tid; t < padded; t += THREADS)
            P[h * room + t] = h < heads ? __float2bfloat16(S[h * room + t]) : bf16(0.0f);
    __syncthreads();  // P is there, and its sums

    // O = P V: the warp has 32 of the 128 columns.
    wmma::fragment<wmma::accumulator, HEADS, TOKENS, STEP, float> o;
    wmma::fill_fragment(o, 0.0f);
    #pragma unroll 1
    for (int t0 = 0; t0 < n; t0 += STEP) {
        wmma::fragment<wmma::matrix_a, HEADS, TOKENS, STEP, bf16, wmma::row_major> p;
        wmma::fragment<wmma::matrix_b, HEADS, TOKENS, STEP, bf16, wmma::row_major> v;
        wmma::load_matrix_sync(p, P + t0, room);
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
