// int4_gqa/opt01_unroll_k: O[b, h] = softmax(Q[b, h] K[b]^T / sqrt(128)) V[b], K and V in 4 bits; tensor cores.
//
// Against cu_baseline: 8 words of a row of K are loaded before the first of them is used, not 2. A warp has four times
// the bytes on their way, and waits for memory a quarter as often. That takes registers.
// Watch: stalls on the long scoreboard at the dequantization of K.
//
// A row of the cache is GROUPS x (float16 scale, float16 shift), then 64 bytes; byte i has number 2 i in its low bits.
//
// workspace parts float32 (split_k * B * ((HQ + 7) / 8 * 8) * 128)
// workspace stats float32 (split_k * B * ((HQ + 7) / 8 * 8) * 2)
// launch opt01_unroll_k<<<(B, (HQ + 7) / 8, split_k), (32, 4), (
//     ((T + split_k - 1) / split_k + 31) / 32 * 32 * 48 + 6464)>>>(parts, stats, Q, K, V, lengths, T, HQ, split_k)
// launch combine<<<(HQ, B), (128)>>>(O, parts, stats, split_k)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;
using bf16 = __nv_bfloat16;

#ifndef GROUPS
#define GROUPS 1  // scales and shifts of a row
#endif
constexpr int D = 128, HEADS = 8, WARPS = 4, THREADS = 32 * WARPS;
constexpr int Q_ROW = D + 8;           // numbers from row to row of Q in shared memory: no two meet in a bank
constexpr int TOKENS = 32, STEP = 16;  // of a tile of scores; numbers of K, or tokens of V, of one product
constexpr int UNROLL = 4;              // steps of K whose words are loaded together
constexpr int HEADER = 4 * GROUPS, ROW = HEADER + D / 2, GROUP = D / GROUPS;
constexpr float SCALE = 1.44269504f / 11.3137085f;  // exp(s / sqrt(128)) = 2^(s * SCALE)
constexpr float LEAST = -3.4e38f;  // no score is smaller

// 8 numbers of a packed word, as bfloat16, by stores of 4 bytes as in the document's pictures: `volatile`, for a
// compiler of today would make one store of 16 bytes of four.
__device__ void dequantize(bf16 *to, unsigned word, __half2 by)
{
    float scale = __low2float(by), shift = __high2float(by);
    #pragma unroll
    for (int i = 0; i < 8; i += 2) {
        float low = word >> 4 * i & 15, high = word >> (4 * i + 4) & 15;
        __nv_bfloat162 two = __floats2bfloat162_rn(low * scale + shift, high * scale + shift);
        ((volatile unsigned *)to)[i / 2] = *(unsigned *)&two;
    }
}

// The `at`-th word of a row, and the scale and shift of its numbers.
__device__ unsigned word_of(const unsigned char *row, int at)
{
    return ((const unsigned *)(row + HEADER))[at];
}

__device__ __half2 scale_of(const unsigned char *row, int at)
{
    return ((const __half2 *)row)[8 * at / GROUP];
}

extern "C" __global__ void __launch_bounds__(THREADS)
opt01_unroll_k(float *parts, float *stats, const bf16 *Q, const unsigned char *__restrict__ K,
               const unsigned char *__restrict__ V, const int *lengths, int T, int HQ, int split_k)
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
    K += ((size_t)b * T + first) * ROW;
    V += ((size_t)b * T + first) * ROW;
    for (int i = tid; i < HEADS * D; i += THREADS)
        sQ[i / D * Q_ROW + i % D] = i / D < heads ? Q[((size_t)b * HQ + head0) * D + i] : bf16(0.0f);
    __syncthreads();  // Q is there

    // S = Q K^T: the lane brings the row of token t.
    for (int t0 = TOKENS * warp; t0 < n; t0 += TOKENS * WARPS) {
        int t = t0 + lane;
        wmma::fragment<wmma::accumulator, HEADS, TOKENS, STEP, float> s;
        wmma::fill_fragment(s, 0.0f);
        // BEGIN SOLUTION
        #pragma unroll 1
        for (int d0 = 0; d0 < D; d0 += UNROLL * STEP) {
            const unsigned char *row = K + (size_t)t * ROW;
            unsigned word[2 * UNROLL] = {};
            __half2 by[UNROLL] = {};
            if (t < n)
                for (int i = 0; i < 2 * UNROLL; ++i) {
                    word[i] = word_of(row, d0 / 8 + i);
                    by[i / 2] = scale_of(row, d0 / 8 + i);
                }
            #pragma unroll
            for (int i = 0; i < UNROLL; ++i) {
                dequantize(tile + lane * STEP, word[2 * i], by[i]);
                dequantize(tile + lane * STEP + 8, word[2 * i + 1], by[i]);
                __syncwarp();  // the tile is there
                wmma::fragment<wmma::matrix_a, HEADS, TOKENS, STEP, bf16, wmma::row_major> q;
                wmma::fragment<wmma::matrix_b, HEADS, TOKENS, STEP, bf16, wmma::col_major> k;
                wmma::load_matrix_sync(q, sQ + d0 + i * STEP, Q_ROW);
                wmma::load_matrix_sync(k, tile, STEP);
                wmma::mma_sync(s, q, k, s);
                __syncwarp();  // and has been read
            }
        }
        // END SOLUTION
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

    // O = P V: the lane brings 16 of the warp's 32 columns of token t.
    wmma::fragment<wmma::accumulator, HEADS, TOKENS, STEP, float> o;
    wmma::fill_fragment(o, 0.0f);
    #pragma unroll 1
    for (int t0 = 0; t0 < n; t0 += STEP) {
        int t = t0 + lane / 2, at = 4 * warp + lane % 2 * 2;
        const unsigned char *row = V + (size_t)t * ROW;
        unsigned word[2] = {};
        __half2 by = __float2half2_rn(0.0f);
        if (t < n) {
            word[0] = word_of(row, at), word[1] = word_of(row, at + 1);
            by = scale_of(row, at);
        }
        dequantize(tile + 16 * lane, word[0], by);
        dequantize(tile + 16 * lane + 8, word[1], by);
        __syncwarp();  // the tile is there
        wmma::fragment<wmma::matrix_a, HEADS, TOKENS, STEP, bf16, wmma::row_major> p;
        wmma::fragment<wmma::matrix_b, HEADS, TOKENS, STEP, bf16, wmma::row_major> v;
        wmma::load_matrix_sync(p, P + t0, room);
        wmma::load_matrix_sync(v, tile, TOKENS);
        wmma::mma_sync(o, p, v, o);
        __syncwarp();  // and has been read
    }
    wmma::store_matrix_sync(parts + part * D + 32 * warp, o, D, wmma::mem_row_major);
    if (tid < heads) {
        stats[2 * (part + tid)] = maxima[tid];
        stats[2 * (part + tid) + 1] = sums[tid];
    }
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
