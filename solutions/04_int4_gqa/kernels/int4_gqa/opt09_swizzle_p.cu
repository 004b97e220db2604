// int4_gqa/opt09_swizzle_p: O[b, h] = softmax(Q[b, h] K[b]^T / sqrt(128)) V[b], K and V in 4 bits; tensor cores.
//
// Against opt08_p_into_fragment: S lies in shared memory as the fragments of P will be read, 8 heads by 16 tokens
// after each other, with rows of 16 numbers. Before, heads were `room` numbers apart, a multiple of 32, and all heads
// of a load met in the same banks; and two neighbors are one load of 8 bytes now. The softmax gives thread i the head
// i / 16 and every 16th token: all of it in a row. (Where layouts are not known, as below.)
// Watch: shared bank conflicts of loads.
//
// A row of the cache is GROUPS x (float16 scale, float16 shift), then 64 bytes; byte i has number 2 i in its low bits.
//
// workspace parts float32 (split_k * B * ((HQ + 7) / 8 * 8) * 128)
// workspace stats float32 (split_k * B * ((HQ + 7) / 8 * 8) * 2)
// launch opt09_swizzle_p<<<(B, (HQ + 7) / 8, split_k), (32, 4), (
//     ((T + split_k - 1) / split_k + 31) / 32 * 32 * 32 + 6464)>>>(parts, stats, Q, K, V, lengths, T, HQ, split_k)
// launch combine<<<(HQ, B), (128)>>>(O, parts, stats, split_k)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;
using bf16 = __nv_bfloat16;

#ifndef GROUPS
#define GROUPS 1  // scales and shifts of a row
#endif
#ifndef KNOWN_LAYOUT
#define KNOWN_LAYOUT (__CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900)  // of wmma's fragments
#endif
constexpr int D = 128, HEADS = 8, WARPS = 4, THREADS = 32 * WARPS;
constexpr int Q_ROW = D + 8;           // numbers from row to row of Q in shared memory: no two meet in a bank
constexpr int TOKENS = 32, STEP = 16;  // of a tile of scores; numbers of K, or tokens of V, of one product
constexpr int UNROLL = 4;              // steps of K whose words are loaded together
constexpr int CASTS = 4;               // pairs of P that a thread rounds between two barriers
constexpr int HEADER = 4 * GROUPS, ROW = HEADER + D / 2, GROUP = D / GROUPS;
constexpr float SCALE = 1.44269504f / 11.3137085f;  // exp(s / sqrt(128)) = 2^(s * SCALE)
constexpr float LEAST = -3.4e38f;  // no score is smaller

// Where the score of head h and token t lies.
__device__ int place(int h, unsigned t, int room)
{
    return KNOWN_LAYOUT ? t / STEP * STEP * HEADS + h * STEP + t % STEP : h * room + t;
}

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

// The `at`-th word of a row and the next, and the scale and shift of their numbers.
__device__ uint2 words_of(const unsigned char *row, int at)
{
    const unsigned *words = (const unsigned *)(row + HEADER) + at;
    return ROW % 8 == 0 ? *(const uint2 *)words : make_uint2(words[0], words[1]);
}

__device__ __half2 scale_of(const unsigned char *row, int at)
{
    return ((const __half2 *)row)[8 * at / GROUP];
}

extern "C" __global__ void __launch_bounds__(THREADS)
opt09_swizzle_p(float *parts, float *stats, const bf16 *Q, const unsigned char *__restrict__ K,
                const unsigned char *__restrict__ V, const int *lengths, int T, int HQ, int split_k)
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
    K += ((size_t)b * T + first) * ROW;
    V += ((size_t)b * T + first) * ROW;
    for (int i = tid; i < HEADS * D; i += THREADS)
        sQ[i / D * Q_ROW + i % D] = i / D < heads ? Q[((size_t)b * HQ + head0) * D + i] : bf16(0.0f);
    __syncthreads();  // Q is there

    // S = Q K^T: the lane brings the row of token t.
    float best[2] = {LEAST, LEAST};  // of heads 2 q and 2 q + 1
    for (int t0 = TOKENS * warp; t0 < n; t0 += TOKENS * WARPS) {
        int t = t0 + lane;
        wmma::fragment<wmma::accumulator, HEADS, TOKENS, STEP, float> s;
        wmma::fill_fragment(s, 0.0f);
        #pragma unroll 1
        for (int d0 = 0; d0 < D; d0 += UNROLL * STEP) {
            const unsigned char *row = K + (size_t)t * ROW;
            uint2 words[UNROLL] = {};
            __half2 by[UNROLL] = {};
            if (t < n)
                for (int i = 0; i < UNROLL; ++i) {
                    words[i] = words_of(row, d0 / 8 + 2 * i);
                    by[i] = scale_of(row, d0 / 8 + 2 * i);
                }
            #pragma unroll
            for (int i = 0; i < UNROLL; ++i) {
                dequantize(tile + lane * STEP, words[i].x, by[i]);
                dequantize(tile + lane * STEP + 8, words[i].y, by[i]);
                __syncwarp();  // the tile is there
                wmma::fragment<wmma::matrix_a, HEADS, TOKENS, STEP, bf16, wmma::row_major> q;
                wmma::fragment<wmma::matrix_b, HEADS, TOKENS, STEP, bf16, wmma::col_major> k;
                wmma::load_matrix_sync(q, sQ + d0 + i * STEP, Q_ROW);
                wmma::load_matrix_sync(k, tile, STEP);
                wmma::mma_sync(s, q, k, s);
                __syncwarp();  // and has been read
            }
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
    // BEGIN SOLUTION
    for (int t = tid % SHARE; t < padded; t += SHARE) {
        float &s = S[place(mine, t, room)];
        s = t < n ? exp2f((s - maxima[mine]) * SCALE) : 0.0f;
        sum += s;
    }
    for (int far = SHARE / 2; far > 0; far /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, far);
    // END SOLUTION
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

    // O = P V: the lane brings 16 of the warp's 32 columns of token t.
    wmma::fragment<wmma::accumulator, HEADS, TOKENS, STEP, float> o;
    wmma::fill_fragment(o, 0.0f);
    uint2 words;
    __half2 by;
    auto fetch = [&](int t0) {
        int t = t0 + lane / 2, at = 4 * warp + lane % 2 * 2;
        const unsigned char *row = V + (size_t)t * ROW;
        words = {}, by = {};
        if (t < n)
            words = words_of(row, at), by = scale_of(row, at);
    };
    fetch(0);
    #pragma unroll 1
    for (int t0 = 0; t0 < n; t0 += STEP) {
        dequantize(tile + 16 * lane, words.x, by);
        dequantize(tile + 16 * lane + 8, words.y, by);
        fetch(t0 + STEP);
        __syncwarp();  // the tile is there
        wmma::fragment<wmma::matrix_a, HEADS, TOKENS, STEP, bf16, wmma::row_major> p;
        wmma::fragment<wmma::matrix_b, HEADS, TOKENS, STEP, bf16, wmma::row_major> v;
        // BEGIN SOLUTION
        if (KNOWN_LAYOUT)
            for (int e = 0; e < 4; e += 2) {
                float2 two = *(const float2 *)(S + place(lane / 4, t0 + lane % 4 * 2 + e * 4, room));
                p.x[e] = __float2bfloat16(two.x), p.x[e + 1] = __float2bfloat16(two.y);
            }
        else
            wmma::load_matrix_sync(p, P + t0, 2 * room);
        // END SOLUTION
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
