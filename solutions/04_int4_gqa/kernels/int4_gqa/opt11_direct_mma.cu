// int4_gqa/opt11_direct_mma: O[b, h] = softmax(Q[b, h] K[b]^T / sqrt(128)) V[b], K and V in 4 bits.
//
// Against opt10_pad_dequant: nothing dequantized goes through shared memory. A packed word becomes fragments where it
// is: nibbles, masked out and put by one LOP3 into the low bits of bfloat16 128 (0x4300), are 128 + q. Scales, shifts
// and the 128 stay outside the products:
//     q . k = scale * sum q (128 + n) + (shift - 128 scale) * sum q,         n the nibbles of a row of K
//     sum p v = sum p' (128 + n) - 136 sum p' + sum p (shift + 8 scale),     n those of V, p' = p * scale
// and sum p' comes from one more product with ones, for p' must be the rounded one. mma.m16n8k16 has 16 tokens as rows
// and the 8 heads as columns, so that no row is wasted; its scores, turned round by movmatrix, are the operand of the
// second product, with 16 numbers as rows. Which number or token takes which place is free as long as both operands
// agree: so a lane takes whole words, and banks do not collide. Each warp has tiles of 32 tokens of its own on their
// way by cp.async and keeps the softmax online; nobody waits for anybody but at the end of a sequence. The tokens of
// all sequences are cut evenly among the blocks, wherever one sequence ends; a second kernel puts the pieces together.
// Watch: instructions per number; DRAM throughput.
//
// A row of the cache is GROUPS x (float16 scale, float16 shift), then 64 bytes; byte i has number 2 i in its low bits.
//
// workspace parts float32 ((HQ + 7) / 8 * (WORKERS + B) * 8 * 128)
// workspace stats float32 ((HQ + 7) / 8 * (WORKERS + B) * 8 * 2)
// launch opt11_direct_mma<<<(min(WORKERS, (B * ((T + 31) / 32) + 7) / 8), (HQ + 7) / 8), (32, 4), SHARED>>>(
//     parts, stats, Q, K, V, lengths, B, T, HQ)
// launch combine<<<(HQ, B), (128), 0>>>(O, parts, stats, lengths, min(WORKERS, (B * ((T + 31) / 32) + 7) / 8))

#include <cuda_bf16.h>
#include <cuda_fp16.h>
using bf16 = __nv_bfloat16;

#ifndef GROUPS
#define GROUPS 1  // scales and shifts of a row
#endif
constexpr int BLOCKS = 4 - GROUPS / 4;  // of a multiprocessor; with 4 groups a fourth one leaves too few registers
#ifndef WORKERS
#define WORKERS (132 * BLOCKS)  // blocks that share all tokens, at most: what 132 multiprocessors hold
#endif
constexpr int D = 128, HEADS = 8, WARPS = 4, TOKENS = 32;
constexpr int ROW = 64 + 4 * GROUPS, TILE = TOKENS * ROW + 16;  // bytes; a copy begins on 16 bytes, a tile may not
constexpr int STAGES = 2 + GROUPS / 4;                          // tiles of K and V on their way or in use
constexpr int SHARED = WARPS * STAGES * 2 * TILE;
constexpr int WORDS = ROW / 4;
// Row r of the m-th of 4 matrices of 8 tokens is token R_STEP * r + M_STEP * m of a tile: lanes then find 32 banks,
// with rows of 17 words as with rows of 20.
constexpr int R_STEP = GROUPS == 1 ? 4 : 1, M_STEP = GROUPS == 1 ? 1 : 8;
constexpr float SCALE = 1.44269504f / 11.3137085f;  // exp(s / sqrt(128)) = 2^(s * SCALE)
constexpr float LEAST = -3.4e38f;                   // no score is smaller
constexpr unsigned ALL = 0xffffffff;

__device__ int tiles_of(int length)
{
    return (length + TOKENS - 1) / TOKENS;
}

__device__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Nibbles i and i + 4 of a word, as the bfloat16 pair 128 + n: word & 0x000f000f | 0x43004300 in one instruction, of
// which the compiler would make two.
__device__ unsigned pair(unsigned word, int i)
{
    unsigned two;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(two) : "r"(word >> 4 * i), "r"(0x000f000f), "r"(0x43004300));
    return two;
}

// c += a @ b, 16 x 16 by 16 x 8. Lane 4 g + q holds of c rows g and g + 8, columns 2 q and 2 q + 1; of a the same rows,
// k 2 q, 2 q + 1 (a0, a1) and 8 more (a2, a3); of b column g, the same k.
__device__ void mma(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// An 8 x 8 matrix of 16-bit numbers turned round: lane 4 g + q gives 2 q and 2 q + 1 of row g, and gets those of column
// g.
__device__ unsigned transpose(unsigned x)
{
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(x));
    return x;
}

// Scales and shifts of a row in shared memory.
__device__ void header(float2 (&by)[GROUPS], const unsigned *row)
{
    if constexpr (GROUPS == 4) {
        uint4 four = *(const uint4 *)row;
        by[0] = __half22float2(*(__half2 *)&four.x), by[1] = __half22float2(*(__half2 *)&four.y);
        by[2] = __half22float2(*(__half2 *)&four.z), by[3] = __half22float2(*(__half2 *)&four.w);
    } else
        by[0] = __half22float2(*(const __half2 *)row);
}

// Start copying 16 bytes to shared memory, `bytes` of them; zeros instead of the others.
__device__ void copy16(unsigned to, const unsigned char *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");
}

// Start copying `bytes` of a tile's rows, zeros for the rest. This lane takes 16 bytes from `at` on, and every 512
// bytes; the rows begin `lead` bytes behind the first lane's `at`.
__device__ void copy(unsigned to, const unsigned char *at, int lead, int bytes, int lane)
{
    constexpr int BYTES = TOKENS * ROW, SURE = BYTES / 512 * 512;
    int left = lead + bytes - 16 * lane;
    if (bytes == BYTES) {
        #pragma unroll
        for (int i = 0; i < SURE; i += 512)
            copy16(to + i, at + i, 16);
        if (BYTES > SURE && left > SURE)
            copy16(to + SURE, at + SURE, min(16, left - SURE));
    } else
        #pragma unroll 1
        for (int i = 0; i < TILE - 16 * lane; i += 512)
            copy16(to + i, left > i ? at + i : at - 16 * lane, max(0, min(16, left - i)));
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
opt11_direct_mma(float *parts, float *stats, const bf16 *Q, const unsigned char *K, const unsigned char *V,
                 const int *lengths, int B, int T, int HQ)
{
    extern __shared__ __align__(128) unsigned char shared[];
    int lane = threadIdx.x, warp = threadIdx.y, g = lane / 4, q = lane % 4;
    int worker = blockIdx.x, workers = gridDim.x, head0 = HEADS * blockIdx.y;
    unsigned char *rooms = shared + warp * STAGES * 2 * TILE;  // the warp's own: K and V of each stage

    // Where this block begins: each lane counts the tiles of `per` sequences, a scan makes sums of them.
    int per = (B + 31) / 32, mine = 0;
    for (int i = lane * per; i < min(B, (lane + 1) * per); ++i)
        mine += tiles_of(lengths[i]);
    int upto = mine;
    for (int far = 1; far < 32; far *= 2) {
        int more = __shfl_up_sync(ALL, upto, far);
        upto += lane >= far ? more : 0;
    }
    long long all = __shfl_sync(ALL, upto, 31);
    int first = all * worker / workers, last = all * (worker + 1) / workers;
    if (first == last)
        return;
    int owner = __popc(__ballot_sync(ALL, upto <= first)), b = owner * per;  // lanes whose sequences end before
    int before = __shfl_sync(ALL, upto - mine, owner);                      // tiles of all sequences before b
    while (before + tiles_of(lengths[b]) <= first)
        before += tiles_of(lengths[b++]);

    for (; before < last; before += tiles_of(lengths[b++])) {
        int length = lengths[b], tile0 = max(first - before, 0) + warp;
        int tiles = (min(tiles_of(length), last - before) - tile0 + WARPS - 1) / WARPS;  // of this warp, if positive

        // Q as the second operand: of word q + 4 j of head g, numbers 0 and 4, 1 and 5, 2 and 6, 3 and 7. And the sums
        // of Q of heads 2 q and 2 q + 1.
        unsigned fragment[4][4];
        float sum_q[GROUPS][2] = {};
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            uint4 w = {};
            if (head0 + g < HQ)
                w = ((const uint4 *)(Q + ((size_t)b * HQ + head0 + g) * D))[q + 4 * j];
            fragment[j][0] = __byte_perm(w.x, w.z, 0x5410), fragment[j][1] = __byte_perm(w.x, w.z, 0x7632);
            fragment[j][2] = __byte_perm(w.y, w.w, 0x5410), fragment[j][3] = __byte_perm(w.y, w.w, 0x7632);
            // BEGIN SOLUTION
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                float2 two = __bfloat1622float2(*(__nv_bfloat162 *)&fragment[j][i]);
                sum_q[j * GROUPS / 4][0] += two.x + two.y;
            }
            // END SOLUTION
        }
        #pragma unroll
        for (int group = 0; group < GROUPS; ++group) {
            float sum = sum_q[group][0];
            sum += __shfl_xor_sync(ALL, sum, 1);
            sum += __shfl_xor_sync(ALL, sum, 2);
            sum_q[group][0] = __shfl_sync(ALL, sum, 8 * q), sum_q[group][1] = __shfl_sync(ALL, sum, 8 * q + 4);
        }

        // Of heads 2 q and 2 q + 1: the largest score, the sum of p of this lane's tokens, that of p (shift + 8 scale);
        // sums of p' of group g % GROUPS; and p' (128 + n) for the numbers of 8 tiles of 16 rows.
        float best[2] = {LEAST, LEAST}, sum[2] = {}, shifted[GROUPS][2] = {}, ones[4] = {}, o[8][4] = {};
        // Rows of 68 bytes begin on 4 only, copies on 16: `lead` bytes before. 32 rows further on it is the same.
        size_t row0 = (size_t)b * T * ROW;
        int lead_k = (size_t)(K + row0) % 16, lead_v = (size_t)(V + row0) % 16;
        const unsigned char *from_k = K + row0 - lead_k + 16 * lane, *from_v = V + row0 - lead_v + 16 * lane;
        unsigned to = __cvta_generic_to_shared(rooms) + 16 * lane;
        auto start = [&](int i, int stage) {
            if (i < tiles) {
                int t = TOKENS * (tile0 + WARPS * i), bytes = min(TOKENS, length - t) * ROW;
                copy(to + stage * 2 * TILE, from_k + t * ROW, lead_k, bytes, lane);
                copy(to + stage * 2 * TILE + TILE, from_v + t * ROW, lead_v, bytes, lane);
            }
            asm volatile("cp.async.commit_group;" ::: "memory");  // an empty group keeps the count
        };
        for (int i = 0; i < STAGES - 1; ++i)
            start(i, i);
        int stage = 0, next = STAGES - 1;
        for (int i = 0; i < tiles; ++i) {
            asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
            __syncwarp();  // this tile is there, and nobody reads the last one any more: the next copy goes over it
            start(i + STAGES - 1, next);
            int t0 = TOKENS * (tile0 + WARPS * i);
            const unsigned *k = (const unsigned *)(rooms + stage * 2 * TILE + lead_k);
            const unsigned *v = (const unsigned *)(rooms + stage * 2 * TILE + TILE + lead_v);
            next = stage, stage = stage + 1 == STAGES ? 0 : stage + 1;

            // Scores s[m] of this lane's 4 tokens, row g of matrix m.
            float s[4][2] = {};
            #pragma unroll
            for (int m = 0; m < 4; m += 2) {
                const unsigned *row[2];
                float2 by[2][GROUPS];
                for (int e = 0; e < 2; ++e) {
                    row[e] = k + (R_STEP * g + M_STEP * (m + e)) * WORDS;
                    header(by[e], row[e]);
                }
                #pragma unroll
                for (int group = 0; group < GROUPS; ++group) {
                    float c[4] = {};
                    #pragma unroll
                    for (int j = 4 / GROUPS * group; j < 4 / GROUPS * (group + 1); ++j) {
                        unsigned w0 = row[0][GROUPS + q + 4 * j], w1 = row[1][GROUPS + q + 4 * j];
                        mma(c, pair(w0, 0), pair(w1, 0), pair(w0, 1), pair(w1, 1), fragment[j][0], fragment[j][1]);
                        mma(c, pair(w0, 2), pair(w1, 2), pair(w0, 3), pair(w1, 3), fragment[j][2], fragment[j][3]);
                    }
                    #pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        float scale = by[e][group].x, shift = by[e][group].y - 128 * scale;
                        for (int h = 0; h < 2; ++h)
                            s[m + e][h] = fmaf(scale, c[2 * e + h], fmaf(shift, sum_q[group][h], s[m + e][h]));
                    }
                }
            }
            if (t0 + TOKENS > length)
                for (int m = 0; m < 4; ++m)
                    if (t0 + R_STEP * g + M_STEP * m >= length)
                        s[m][0] = s[m][1] = LEAST;

            // Online softmax: sums so far shrink where a larger score has come.
            float top[2], shrink[2];
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                top[e] = fmaxf(fmaxf(s[0][e], s[1][e]), fmaxf(s[2][e], s[3][e]));
                for (int far = 4; far < 32; far *= 2)  // the lanes with the same heads
                    top[e] = fmaxf(top[e], __shfl_xor_sync(ALL, top[e], far));
            }
            if (__any_sync(ALL, top[0] > best[0] || top[1] > best[1])) {
                #pragma unroll
                for (int e = 0; e < 2; ++e) {
                    top[e] = fmaxf(top[e], best[e]);
                    shrink[e] = exp2_fast((best[e] - top[e]) * SCALE);
                    best[e] = top[e], sum[e] *= shrink[e];
                    for (int group = 0; group < GROUPS; ++group)
                        shifted[group][e] *= shrink[e];
                }
                for (int e = 0; e < 4; ++e) {
                    ones[e] *= shrink[e % 2];
                    for (int i = 0; i < 8; ++i)
                        o[i][e] *= shrink[e % 2];
                }
            }

            // p' of heads 2 q and 2 q + 1 for one token in a register: turned round, of head g for the tokens of rows
            // 2 q and 2 q + 1.
            unsigned p[GROUPS][4];
            // BEGIN SOLUTION
            #pragma unroll
            for (int m = 0; m < 4; ++m) {
                float2 by[GROUPS];
                header(by, v + (R_STEP * g + M_STEP * m) * WORDS);
                float p0 = exp2_fast(s[m][0] * SCALE - best[0] * SCALE);
                float p1 = exp2_fast(s[m][1] * SCALE - best[1] * SCALE);
                sum[0] += p0, sum[1] += p1;
                #pragma unroll
                for (int group = 0; group < GROUPS; ++group) {
                    float scale = by[group].x, shift = by[group].y + 8 * scale;
                    shifted[group][0] += p0 * shift, shifted[group][1] += p1 * shift;
                    __nv_bfloat162 two = __floats2bfloat162_rn(p0 * scale, p1 * scale);
                    p[group][m] = transpose(*(unsigned *)&two);
                }
            }
            // END SOLUTION
            // The second product, 16 tokens at a time: matrices m and m + 1, of each the rows 2 q and 2 q + 1.
            #pragma unroll
            for (int m = 0; m < 4; m += 2) {
                const unsigned *row[4];
                for (int e = 0; e < 4; ++e)
                    row[e] = v + (R_STEP * (2 * q + e % 2) + M_STEP * (m + e / 2)) * WORDS + GROUPS;
                #pragma unroll
                for (int group = 0; group < GROUPS; ++group) {
                    unsigned one = g % GROUPS == group ? 0x3f803f80 : 0;  // two of them in bfloat16
                    mma(ones, one, one, one, one, p[group][m], p[group][m + 1]);
                }
                if constexpr (GROUPS == 1) {
                    // Rows g and g + 8 of product i are numbers i of words g and g + 8.
                    unsigned w[4][2];
                    for (int e = 0; e < 4; ++e)
                        w[e][0] = row[e][g], w[e][1] = row[e][g + 8];
                    #pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        unsigned a[4];  // 4 nibbles of one token and 4 of the next
                        for (int e = 0; e < 4; ++e)
                            a[e] = __byte_perm(w[e / 2 * 2][e % 2], w[e / 2 * 2 + 1][e % 2], half ? 0x7632 : 0x5410);
                        #pragma unroll
                        for (int i = 0; i < 4; ++i)
                            mma(o[4 * half + i], pair(a[0], i), pair(a[1], i), pair(a[2], i), pair(a[3], i), p[0][m],
                                p[0][m + 1]);
                    }
                } else {
                    // All rows of a product are of one group: g and g + 8 are numbers 2 i and 2 i + 1 of half a word.
                    #pragma unroll
                    for (int group = 0; group < GROUPS; ++group) {
                        unsigned a[2];
                        for (int e = 0; e < 2; ++e)
                            a[e] = __byte_perm(row[2 * e][4 * group + g % 4], row[2 * e + 1][4 * group + g % 4],
                                               g < 4 ? 0x5410 : 0x7632);
                        #pragma unroll
                        for (int i = 0; i < 2; ++i)
                            mma(o[2 * group + i], pair(a[0], 2 * i), pair(a[0], 2 * i + 1), pair(a[1], 2 * i),
                                pair(a[1], 2 * i + 1), p[group][m], p[group][m + 1]);
                    }
                }
            }
        }

        // The 4 warps' parts of this sequence, put together through their own rooms.
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncwarp();  // nobody reads this warp's tiles any more
        float *out = (float *)rooms, *stat = out + HEADS * D;
        for (int e = 0; e < 2; ++e)
            for (int far = 4; far < 32; far *= 2) {
                sum[e] += __shfl_xor_sync(ALL, sum[e], far);
                for (int group = 0; group < GROUPS; ++group)
                    shifted[group][e] += __shfl_xor_sync(ALL, shifted[group][e], far);
            }
        for (int i = 0; i < 8; ++i)
            for (int e = 0; e < 4; ++e) {
                float all_p = __shfl_sync(ALL, ones[e], 4 * (i * GROUPS / 8) + q);
                int group = i * GROUPS / 8, h = 2 * q + e % 2;
                int d = GROUPS == 1 ? 8 * (g + e / 2 * 8) + i : 32 * group + g % 4 * 8 + g / 4 * 4 + i % 2 * 2 + e / 2;
                out[h * D + d] = o[i][e] - 136 * all_p + shifted[group][e % 2];
            }
        if (g == 0)
            for (int e = 0; e < 2; ++e)
                stat[2 * (2 * q + e)] = best[e], stat[2 * (2 * q + e) + 1] = sum[e];
        __syncthreads();  // each warp's are there
        // Pieces of a block and pieces of a sequence follow each other: no two have the same worker + b.
        size_t part = ((size_t)blockIdx.y * (WORKERS + B) + worker + b) * HEADS;
        for (int h = 0; h < HEADS; ++h) {
            float most = LEAST, total = 0.0f, number = 0.0f;
            const float *outs = (const float *)shared;
            constexpr int NEXT = STAGES * 2 * TILE / 4;  // from warp to warp
            for (int w = 0; w < WARPS; ++w)
                most = fmaxf(most, outs[w * NEXT + HEADS * D + 2 * h]);
            for (int w = 0; w < WARPS; ++w) {
                float times = exp2_fast((outs[w * NEXT + HEADS * D + 2 * h] - most) * SCALE);
                total += times * outs[w * NEXT + HEADS * D + 2 * h + 1];
                number += times * outs[w * NEXT + h * D + 32 * warp + lane];
            }
            parts[(part + h) * D + 32 * warp + lane] = number;
            if (warp == 0 && lane == 0)
                stats[2 * (part + h)] = most, stats[2 * (part + h) + 1] = total;
        }
        __syncthreads();  // before copies go over the rooms again
    }
}

// Put the pieces of a head together, one thread per column. Tile x belongs to worker ((x + 1) * workers - 1) / all.
extern "C" __global__ void __launch_bounds__(D)
combine(bf16 *O, const float *parts, const float *stats, const int *lengths, int workers)
{
    int h = blockIdx.x, b = blockIdx.y, HQ = gridDim.x, B = gridDim.y, before = 0, sum_all = 0;
    for (int i = threadIdx.x % 32; i < B; i += 32) {
        int tiles = tiles_of(lengths[i]);
        sum_all += tiles;
        before += i < b ? tiles : 0;
    }
    for (int far = 16; far > 0; far /= 2) {
        before += __shfl_xor_sync(ALL, before, far);
        sum_all += __shfl_xor_sync(ALL, sum_all, far);
    }
    long long all = sum_all, end = before + tiles_of(lengths[b]);
    float best = LEAST, sum = 0.0f, o = 0.0f;
    for (int w = ((before + 1ll) * workers - 1) / all; w <= (end * workers - 1) / all; ++w) {
        if (all * w / workers == all * (w + 1) / workers)
            continue;  // more workers than tiles: this one had none
        size_t part = ((size_t)(h / HEADS) * (WORKERS + B) + w + b) * HEADS + h % HEADS;
        float its = stats[2 * part], top = fmaxf(best, its);
        float old = exp2_fast((best - top) * SCALE), mine = exp2_fast((its - top) * SCALE);
        sum = sum * old + stats[2 * part + 1] * mine;
        o = o * old + parts[part * D + threadIdx.x] * mine;
        best = top;
    }
    O[((size_t)b * HQ + h) * D + threadIdx.x] = __float2bfloat16(o / sum);
}
