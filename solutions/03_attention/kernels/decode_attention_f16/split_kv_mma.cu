// decode_attention_f16/split_kv_mma: O[b, h] = softmax(Q[b, h] K[b, :, g]^T / sqrt(D)) V[b, :, g] in float16 (or
// bfloat16, -DBF16), scores and sums in float32; up to 16 query heads that share a head of the cache at once.
//
// Against split_kv: the query heads of a group are the 16 rows of mma.m16n8k16, so that K and V are read once for all
// of them; with fewer heads some rows idle, which costs nothing where memory is the limit. Each warp has tiles of 16
// tokens on their way by cp.async. The tiles of all sequences and heads of the cache stand in one line, which is cut
// evenly among the blocks that the GPU holds: no wave is ever half full, however long or short the sequences are. What
// a block has whole it stores; what is cut, a second kernel puts together, one block per cut and head.
// Watch: load sectors; DRAM throughput; bytes in flight.
//
// workspace parts float32 ((HQ / HKV + 15) / 16 * (2 * WORKERS) * ROWS * D)
// workspace stats float32 ((HQ / HKV + 15) / 16 * (2 * WORKERS) * ROWS * 2)
// workspace cuts int32 (2 * WORKERS)
// launch split_kv_mma<<<(min(WORKERS, max(splits * B * HKV,
//     (splits == 0) * ((B * HKV * ((T + 15) / 16) + 7) / 8))), (HQ / HKV + 15) / 16), (32, WARPS), SHARED>>>(O, parts,
//     stats, cuts, Q, K, V, lengths, B, T, HQ, HKV, D, (splits == 0) * 7 + 1)
// launch split_kv_mma_combine<<<(min(WORKERS, max(splits * B * HKV,
//     (splits == 0) * ((B * HKV * ((T + 15) / 16) + 7) / 8))), HQ / HKV), (32, ACROSS), 0>>>(O, parts, stats, cuts,
//     HQ / HKV, D)

#ifdef BF16
#include <cuda_bf16.h>
using T16 = __nv_bfloat16;
#define KIND "bf16"
#else
#include <cuda_fp16.h>
using T16 = __half;
#define KIND "f16"
#endif

constexpr int WORKERS = 264;  // blocks that share all tiles, at most: 2 on each of 132 multiprocessors
constexpr int WARPS = 4, TOKENS = 16, ROWS = 16;
constexpr int SHARED = 98304;  // WARPS * STAGES * (K and V) * TOKENS * D * 2 bytes, whatever D
constexpr int ACROSS = 8;      // warps that add up the parts of a head
constexpr float LOWEST = -1e30f;  // below any score; and not -inf: -inf - -inf is NaN
constexpr unsigned ALL = 0xffffffff;
#define INF __int_as_float(0x7f800000)

// Tiles of a sequence: an empty one has one without tokens, for somebody must store its zeros.
__device__ int tiles_of(int length)
{
    return max(1, (length + TOKENS - 1) / TOKENS);
}

// 2 to the power of x; 0 for -inf.
__device__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// c += a @ b, 16 x 16 by 16 x 8. Lane 4 g + q holds of c rows g and g + 8, columns 2 q and 2 q + 1.
__device__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32." KIND "." KIND ".f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two numbers rounded to 16 bits, the first one in the low half.
__device__ unsigned pack(float low, float high)
{
    unsigned both;
    asm("cvt.rn." KIND "x2.f32 %0, %2, %1;" : "=r"(both) : "f"(low), "f"(high));
    return both;
}

// Start copying 16 bytes to shared memory, or fill them with zeros.
__device__ void copy16(unsigned to, const T16 *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
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

// Where 16-byte piece c of row r of a tile lies: 8 rows at the same c fill the 128 bytes of the banks once.
template <int D>
__device__ int place(int r, int c)
{
    return r * D * 2 + (c ^ r % 8) * 16;
}

template <int D>
__device__ void attend(T16 *O, float *parts, float *stats, int *cuts, const T16 *Q, const T16 *K, const T16 *V,
                       const int *lengths, int B, int T, int HQ, int HKV, int fewest)
{
    extern __shared__ __align__(128) unsigned char shared[];
    constexpr int TILE = TOKENS * D * 2, STAGES = SHARED / (WARPS * 2 * TILE), ROOM = STAGES * 2 * TILE;  // bytes
    constexpr int LINE = D + 8;  // floats of a row of results in a room: rows start 8 banks apart
    static_assert((ROWS * LINE + 2 * ROWS) * 4 <= ROOM, "a room holds a warp's results");
    int lane = threadIdx.x, warp = threadIdx.y, g = lane / 4, q = lane % 4;
    int worker = blockIdx.x, group = HQ / HKV, head0 = ROWS * blockIdx.y, rows = min(ROWS, group - head0);
    unsigned char *room = shared + warp * ROOM;  // this warp's own: K and V of each stage
    unsigned base = __cvta_generic_to_shared(room);
    float scale2 = rsqrtf(D) * 1.4426950408889634f;  // exp(x) is exp2(x log2(e))

    // Where this block begins: each lane counts the tiles of `per` sequences, a scan adds them up.
    int per = (B + 31) / 32, mine = 0;
    for (int i = lane * per; i < min(B, (lane + 1) * per); ++i)
        mine += HKV * tiles_of(lengths[i]);
    int upto = mine;
    for (int far = 1; far < 32; far *= 2) {
        int more = __shfl_up_sync(ALL, upto, far);
        upto += lane >= far ? more : 0;
    }
    long long all = __shfl_sync(ALL, upto, 31), workers = min((long long)gridDim.x, max(1ll, all / fewest));
    bool speaks = threadIdx.x == 0 && threadIdx.y == 0 && blockIdx.y == 0;  // for the block, about cuts
    if (worker >= workers) {
        if (speaks)
            cuts[2 * worker] = -1;
        return;
    }
    int first = all * worker / workers, last = all * (worker + 1) / workers;
    int owner = __popc(__ballot_sync(ALL, upto <= first)), b = owner * per;  // lanes whose sequences end before
    int begin = __shfl_sync(ALL, upto - mine, owner);                       // the first tile of sequence b
    while (begin + HKV * tiles_of(lengths[b]) <= first)
        begin += HKV * tiles_of(lengths[b++]);
    int length = lengths[b], tiles = tiles_of(length), head = (first - begin) / tiles;
    begin += head * tiles;  // from here on, of head `head` of sequence b
    if (speaks) {
        // Tile x belongs to worker ((x + 1) * workers - 1) / all. The second of those that share a head tells which.
        bool second = begin < first && ((begin + 1) * workers - 1) / all == worker - 1;
        cuts[2 * worker] = second ? b * HKV + head : -1;
        cuts[2 * worker + 1] = ((long long)(begin + tiles) * workers - 1) / all;
    }

    while (begin < last) {
        int tile0 = max(first - begin, 0), end = min(tiles, last - begin);
        int turns = (end - tile0 - warp + WARPS - 1) / WARPS;  // tiles of this warp, if positive
        bool whole = tile0 == 0 && end == tiles;

        // Q as the left factor: rows g and g + 8 are query heads, zeros where there is none.
        unsigned a[D / 16][4];
        const unsigned *from = (const unsigned *)(Q + ((size_t)b * HQ + (size_t)head * group + head0) * D);
        #pragma unroll
        for (int j = 0; j < D / 16; ++j)
            for (int e = 0; e < 4; ++e) {
                int row = g + e % 2 * 8;
                a[j][e] = row < rows ? from[row * (D / 2) + 8 * j + q + e / 2 * 4] : 0;
            }

        // Of rows g and g + 8: the largest score, the sum of this lane's weights, the weighted sums of V.
        float m[2] = {LOWEST, LOWEST}, l[2] = {}, o[D / 8][4] = {};
        size_t row0 = (size_t)b * T * HKV + head, step = (size_t)HKV * D;
        const T16 *keys = K + row0 * D, *values = V + row0 * D;
        auto start = [&](int i, int stage) {
            if (i < turns) {
                int t = TOKENS * (tile0 + warp + WARPS * i) + lane / (D / 8), c = lane % (D / 8);
                unsigned to = base + stage * 2 * TILE;
                size_t at = (size_t)t * step + 8 * c;  // of row lane / (D / 8); a turn of all lanes is 256 / D rows
                #pragma unroll
                for (int r = 0; r < TOKENS; r += 256 / D) {
                    bool inside = t + r < length;
                    unsigned there = to + place<D>(r + lane / (D / 8), c);
                    copy16(there, inside ? keys + at : K, inside);
                    copy16(there + TILE, inside ? values + at : V, inside);
                    at += 256 / D * step;
                }
            }
            asm volatile("cp.async.commit_group;" ::: "memory");  // an empty group keeps the count
        };
        // BEGIN SOLUTION
        for (int i = 0; i < STAGES - 1; ++i)
            start(i, i);
        int stage = 0, next = STAGES - 1;
        for (int i = 0; i < turns; ++i) {
            asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
            __syncwarp();  // this tile is there, and nobody reads the last one any more: the next copy goes over it
            start(i + STAGES - 1, next);
            unsigned k = base + stage * 2 * TILE, v = k + TILE, x[4];
            int t0 = TOKENS * (tile0 + warp + WARPS * i);
            next = stage, stage = stage + 1 == STAGES ? 0 : stage + 1;

            // Scores of heads g (s[n][0], s[n][1]) and g + 8 for tokens 8 n + 2 q and the next.
            float s[2][4] = {};
            #pragma unroll
            for (int j = 0; j < D / 16; ++j) {  // tokens 0 to 7 at 16 j and 16 j + 8, then tokens 8 to 15
                ldmatrix(x, k + place<D>(lane / 16 * 8 + lane % 8, 2 * j + lane / 8 % 2));
                mma(s[0], a[j], x[0], x[1]);
                mma(s[1], a[j], x[2], x[3]);
            }
            if (t0 + TOKENS > length)
                #pragma unroll
                for (int n = 0; n < 2; ++n)
                    for (int e = 0; e < 4; ++e)
                        s[n][e] = t0 + 8 * n + 2 * q + e % 2 < length ? s[n][e] : -INF;

            // Online softmax: sums so far shrink where a larger score has come.
            float top[2];
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                top[half] = fmaxf(fmaxf(s[0][2 * half], s[0][2 * half + 1]), fmaxf(s[1][2 * half], s[1][2 * half + 1]));
                top[half] = fmaxf(top[half], __shfl_xor_sync(ALL, top[half], 1));  // the 4 lanes that share a row
                top[half] = fmaxf(top[half], __shfl_xor_sync(ALL, top[half], 2));
            }
            if (__any_sync(ALL, top[0] > m[0] || top[1] > m[1])) {
                #pragma unroll
                for (int half = 0; half < 2; ++half) {
                    top[half] = fmaxf(top[half], m[half]);
                    float shrink = exp2_fast((m[half] - top[half]) * scale2);
                    m[half] = top[half], l[half] *= shrink;
                    #pragma unroll
                    for (int j = 0; j < D / 8; ++j)
                        o[j][2 * half] *= shrink, o[j][2 * half + 1] *= shrink;
                }
            }

            // What a lane holds of the scores is what it has to hold of the weights to multiply by V.
            unsigned p[4];
            #pragma unroll
            for (int n = 0; n < 2; ++n)
                #pragma unroll
                for (int half = 0; half < 2; ++half) {
                    float p0 = exp2_fast(s[n][2 * half] * scale2 - m[half] * scale2);
                    float p1 = exp2_fast(s[n][2 * half + 1] * scale2 - m[half] * scale2);
                    l[half] += p0 + p1;
                    p[2 * n + half] = pack(p0, p1);
                }
            #pragma unroll
            for (int j = 0; j < D / 16; ++j) {
                ldmatrix_transposed(x, v + place<D>(lane % 16, 2 * j + lane / 16));
                mma(o[2 * j], p, x[0], x[1]);
                mma(o[2 * j + 1], p, x[2], x[3]);
            }
        }
        // END SOLUTION

        // The warps' results, put together through their own rooms.
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncwarp();  // nobody reads this warp's tiles any more
        float *out = (float *)room, *stat = out + ROWS * LINE;
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            l[half] += __shfl_xor_sync(ALL, l[half], 1);
            l[half] += __shfl_xor_sync(ALL, l[half], 2);
            int row = g + 8 * half;
            if (row >= rows)
                continue;
            #pragma unroll
            for (int j = 0; j < D / 8; ++j)
                *(float2 *)(out + row * LINE + 8 * j + 2 * q) = make_float2(o[j][2 * half], o[j][2 * half + 1]);
            if (q == 0)
                stat[2 * row] = m[half], stat[2 * row + 1] = l[half];
        }
        __syncthreads();  // each warp's are there
        // Places of parts: 2 * worker where somebody before has begun with this head, else 2 * worker + 1.
        size_t part = ((size_t)blockIdx.y * (2 * WORKERS) + 2 * worker + (tile0 == 0)) * ROWS;
        for (int i = 32 * warp + lane; i < rows * (D / 4); i += 32 * WARPS) {
            int row = i / (D / 4), d = i % (D / 4) * 4;
            float most = LOWEST, total = 0.0f;
            float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            #pragma unroll
            for (int w = 0; w < WARPS; ++w)
                most = fmaxf(most, ((const float *)(shared + w * ROOM))[ROWS * LINE + 2 * row]);
            #pragma unroll
            for (int w = 0; w < WARPS; ++w) {
                const float *its = (const float *)(shared + w * ROOM);
                float times = exp2_fast((its[ROWS * LINE + 2 * row] - most) * scale2);
                float4 more = *(const float4 *)(its + row * LINE + d);
                total += times * its[ROWS * LINE + 2 * row + 1];
                sum.x += times * more.x, sum.y += times * more.y, sum.z += times * more.z, sum.w += times * more.w;
            }
            if (whole) {
                float inverse = total > 0.0f ? 1.0f / total : 0.0f;  // a head without keys has no sum
                *(uint2 *)(O + ((size_t)b * HQ + (size_t)head * group + head0 + row) * D + d) =
                    make_uint2(pack(sum.x * inverse, sum.y * inverse), pack(sum.z * inverse, sum.w * inverse));
            } else {
                *(float4 *)(parts + (part + row) * D + d) = sum;
                if (d == 0)
                    stats[2 * (part + row)] = most * scale2, stats[2 * (part + row) + 1] = total;
            }
        }
        __syncthreads();  // before copies go over the rooms again
        begin += tiles;
        if (++head == HKV && begin < last)
            head = 0, length = lengths[++b], tiles = tiles_of(length);
    }
    // (The head that is cut at `last` goes on in the next block.)
}

// All tensors begin on 16 bytes. fewest: tiles that a block has at least, where there are as many.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)
split_kv_mma(T16 *O, float *parts, float *stats, int *cuts, const T16 *Q, const T16 *K, const T16 *V,
             const int *lengths, int B, int T, int HQ, int HKV, int D, int fewest)
{
    if (D == 64)
        attend<64>(O, parts, stats, cuts, Q, K, V, lengths, B, T, HQ, HKV, fewest);
    else
        attend<128>(O, parts, stats, cuts, Q, K, V, lengths, B, T, HQ, HKV, fewest);
}

// Put together what was cut: block (w, h) does query head h of the group whose second part worker w has, if there is
// one. Its warps take the parts in turn, a lane 4 numbers of each; then their sums meet in shared memory.
extern "C" __global__ void __launch_bounds__(32 * ACROSS)
split_kv_mma_combine(T16 *O, const float *parts, const float *stats, const int *cuts, int group, int D)
{
    __shared__ float4 sums[ACROSS][32];
    __shared__ float mosts[ACROSS], totals[ACROSS];
    int w = blockIdx.x, h = blockIdx.y, lane = threadIdx.x, warp = threadIdx.y, unit = cuts[2 * w];
    if (unit < 0)
        return;
    int count = cuts[2 * w + 1] - w + 2, d = 4 * lane;  // parts: worker w - 1's second, then the first of w and on
    size_t part0 = ((size_t)(h / ROWS) * (2 * WORKERS) + 2 * w) * ROWS + h % ROWS;
    float most = LOWEST, total = 0.0f;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    #pragma unroll 4
    for (int i = warp; i < count; i += ACROSS) {
        size_t part = i == 0 ? part0 - ROWS : part0 + (size_t)2 * (i - 1) * ROWS;
        float4 more = d < D ? *(const float4 *)(parts + part * D + d) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        float2 its = *(const float2 *)(stats + 2 * part);
        float top = fmaxf(most, its.x), old = exp2_fast(most - top), now = exp2_fast(its.x - top);
        total = total * old + its.y * now;
        sum = make_float4(sum.x * old + more.x * now, sum.y * old + more.y * now, sum.z * old + more.z * now,
                          sum.w * old + more.w * now);
        most = top;
    }
    sums[warp][lane] = sum;
    if (lane == 0)
        mosts[warp] = most, totals[warp] = total;
    __syncthreads();  // each warp's are there
    if (warp > 0 || d >= D)
        return;
    for (int i = 1; i < ACROSS; ++i) {
        float top = fmaxf(most, mosts[i]), old = exp2_fast(most - top), now = exp2_fast(mosts[i] - top);
        float4 more = sums[i][lane];
        total = total * old + totals[i] * now;
        sum = make_float4(sum.x * old + more.x * now, sum.y * old + more.y * now, sum.z * old + more.z * now,
                          sum.w * old + more.w * now);
        most = top;
    }
    float inverse = total > 0.0f ? 1.0f / total : 0.0f;  // a head without keys has no sum
    *(uint2 *)(O + ((size_t)unit * group + h) * D + d) =
        make_uint2(pack(sum.x * inverse, sum.y * inverse), pack(sum.z * inverse, sum.w * inverse));
}
