// gqa_bf16/direct_mma: O[b, h] = softmax(Q[b, h] K[b]^T / sqrt(128)) V[b], K and V in bfloat16; tensor cores.
//
// Against cu_optimized: int4_gqa/direct_mma without what 4 bits need. Each warp has tiles of 16 tokens of its own on
// their way by cp.async, ldmatrix makes fragments of them (of V turned round), 16 tokens as rows and the 8 heads as
// columns of mma.m16n8k16; movmatrix turns the scores into the operand of the second product, with 16 numbers as rows.
// The softmax is kept online. The 16-byte pieces of a row change places, so that the 8 rows of a matrix find 32 banks.
// The tokens of all sequences are cut evenly among the blocks; a second kernel puts the pieces together.
// Watch: DRAM throughput; bytes in flight.
//
// workspace parts float32 ((HQ + 7) / 8 * (WORKERS + B) * 8 * 128)
// workspace stats float32 ((HQ + 7) / 8 * (WORKERS + B) * 8 * 2)
// launch direct_mma<<<(min(WORKERS, (B * ((T + 15) / 16) + 7) / 8), (HQ + 7) / 8), (32, 4), SHARED>>>(
//     parts, stats, Q, K, V, lengths, B, T, HQ)
// launch combine<<<(HQ, B), (128), 0>>>(O, parts, stats, lengths, min(WORKERS, (B * ((T + 15) / 16) + 7) / 8))

#include <cuda_bf16.h>
using bf16 = __nv_bfloat16;

#ifndef WORKERS
#define WORKERS 264  // blocks that share all tokens, at most: 2 on each of 132 multiprocessors
#endif
constexpr int D = 128, HEADS = 8, WARPS = 4, TOKENS = 16;
constexpr int TILE = TOKENS * D * 2, STAGES = 3, SHARED = WARPS * STAGES * 2 * TILE;  // bytes
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

// Start copying 16 bytes to shared memory, `bytes` of them; zeros instead of the others.
__device__ void copy16(unsigned to, const unsigned char *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory");
}

// Where 16-byte piece c of row r of a tile lies.
__device__ int place(int r, int c)
{
    return r * D * 2 + (c ^ r % 8) * 16;
}

// Start copying `rows` rows of a tile, zeros for the others.
__device__ void copy(unsigned to, const bf16 *from, int rows, int lane)
{
    #pragma unroll
    for (int i = 0; i < TOKENS; i += 2) {
        int r = i + lane / 16, c = lane % 16;
        copy16(to + place(r, c), (const unsigned char *)(from + (r < rows ? r * D : 0) + 8 * c), r < rows ? 16 : 0);
    }
}

// Four 8 x 8 matrices: lane n says where row n % 8 of matrix n / 8 lies, and receives two elements of each.
__device__ void ldmatrix(unsigned (&to)[4], unsigned at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}

__device__ void ldmatrix_transposed(unsigned (&to)[4], unsigned at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)
direct_mma(float *parts, float *stats, const bf16 *Q, const bf16 *K, const bf16 *V, const int *lengths, int B, int T,
           int HQ)
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

        // Q as the second operand: of head g, numbers 16 j + 2 q and the next, and those 8 further.
        unsigned fragment[8][2] = {};
        if (head0 + g < HQ)
            for (int j = 0; j < 8; ++j)
                for (int e = 0; e < 2; ++e)
                    fragment[j][e] = ((const unsigned *)(Q + ((size_t)b * HQ + head0 + g) * D))[8 * j + q + 4 * e];

        // Of heads 2 q and 2 q + 1: the largest score, the sum of p of this lane's tokens, and p v for 8 x 16 numbers.
        float best[2] = {LEAST, LEAST}, sum[2] = {}, o[8][4] = {};
        size_t row0 = (size_t)b * T;
        unsigned to = __cvta_generic_to_shared(rooms);
        auto start = [&](int i, int stage) {
            if (i < tiles) {
                int t = TOKENS * (tile0 + WARPS * i), rows = min(TOKENS, length - t);
                copy(to + stage * 2 * TILE, K + (row0 + t) * D, rows, lane);
                copy(to + stage * 2 * TILE + TILE, V + (row0 + t) * D, rows, lane);
            }
            asm volatile("cp.async.commit_group;" ::: "memory");  // an empty group keeps the count
        };
        // BEGIN SOLUTION
        for (int i = 0; i < STAGES - 1; ++i)
            start(i, i);
        int stage = 0, next = STAGES - 1;
        for (int i = 0; i < tiles; ++i) {
            asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
            __syncwarp();  // this tile is there, and nobody reads the last one any more: the next copy goes over it
            start(i + STAGES - 1, next);
            int t0 = TOKENS * (tile0 + WARPS * i);
            unsigned k = to + stage * 2 * TILE, v = k + TILE, a[4];
            next = stage, stage = stage + 1 == STAGES ? 0 : stage + 1;

            // Scores of heads 2 q and 2 q + 1 for tokens g (s[0], s[1]) and g + 8.
            float s[4] = {};
            #pragma unroll
            for (int j = 0; j < 8; ++j) {  // rows 0 to 15 at 16 j, then the same at 16 j + 8
                ldmatrix(a, k + place(lane % 16, 2 * j + lane / 16));
                mma(s, a[0], a[1], a[2], a[3], fragment[j][0], fragment[j][1]);
            }
            if (t0 + TOKENS > length)
                for (int e = 0; e < 4; ++e)
                    if (t0 + g + e / 2 * 8 >= length)
                        s[e] = LEAST;

            // Online softmax: sums so far shrink where a larger score has come.
            float top[2], shrink[2];
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                top[e] = fmaxf(s[e], s[2 + e]);
                for (int far = 4; far < 32; far *= 2)  // the lanes with the same heads
                    top[e] = fmaxf(top[e], __shfl_xor_sync(ALL, top[e], far));
            }
            if (__any_sync(ALL, top[0] > best[0] || top[1] > best[1])) {
                #pragma unroll
                for (int e = 0; e < 2; ++e) {
                    top[e] = fmaxf(top[e], best[e]);
                    shrink[e] = exp2_fast((best[e] - top[e]) * SCALE);
                    best[e] = top[e], sum[e] *= shrink[e];
                }
                for (int i = 0; i < 8; ++i)
                    for (int e = 0; e < 4; ++e)
                        o[i][e] *= shrink[e % 2];
            }

            // p of heads 2 q, 2 q + 1 for one token in a register: turned round, of head g for tokens 2 q, 2 q + 1.
            unsigned p[2];
            #pragma unroll
            for (int m = 0; m < 2; ++m) {
                float p0 = exp2_fast(s[2 * m] * SCALE - best[0] * SCALE);
                float p1 = exp2_fast(s[2 * m + 1] * SCALE - best[1] * SCALE);
                sum[0] += p0, sum[1] += p1;
                __nv_bfloat162 two = __floats2bfloat162_rn(p0, p1);
                p[m] = transpose(*(unsigned *)&two);
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {  // tokens 0 to 7 at 16 i and 16 i + 8, then tokens 8 to 15
                ldmatrix_transposed(a, v + place(lane % 8 + lane / 16 * 8, 2 * i + lane / 8 % 2));
                mma(o[i], a[0], a[1], a[2], a[3], p[0], p[1]);
            }
        }
        // END SOLUTION

        // The 4 warps' parts of this sequence, put together through their own rooms.
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncwarp();  // nobody reads this warp's tiles any more
        float *out = (float *)rooms, *stat = out + HEADS * D;
        for (int e = 0; e < 2; ++e)
            for (int far = 4; far < 32; far *= 2)
                sum[e] += __shfl_xor_sync(ALL, sum[e], far);
        for (int i = 0; i < 8; ++i)
            for (int e = 0; e < 4; ++e)
                out[(2 * q + e % 2) * D + 16 * i + g + e / 2 * 8] = o[i][e];
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
