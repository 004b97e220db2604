// attention_backward/mma: dQ, dK, dV of attention, float16 (or bfloat16, -DBF16), on tensor cores.
//
// Against recompute: five products in place of seven, all on the tensor cores. A block owns 128 keys and walks over
// tiles of 64 queries, the next of which is on its way by cp.async. Two warps share 32 keys. Of the scores each has
// half of the queries, turned round, keys down and queries across: so what a lane holds of P and dS, rounded to 16
// bits, is what it has to hold to multiply by dO and Q. Of dV and dK each has half of the columns, in registers from
// the first query to the last, and reads the other warp's P and dS from shared memory. So all that a warp reads of Q
// and dO serves 32 keys. Exponentials overlap the product dP. Only dQ needs sums over all keys: every warp reads dS of
// all of them, and a block adds its share of dQ to a tensor in float32 by atomics, in the order in which lanes hold it:
// a lane adds 16 bytes in a row, a warp 512. Sums of dQ depend on the order of blocks in their last bits.
// Watch: tensor operations; shared wavefronts per tensor operation; atomic sectors.
//
// workspace R float32 (B, H, (N + BM - 1) / BM * BM, 2)
// workspace S float32 (B, H, (N + BM - 1) / BM * BM, D)
// launch attention_backward_mma_rows<<<((N + BM - 1) / BM * (B * H)), (THREADS), 0>>>(R, S, O, dO, L, N, D)
// launch attention_backward_mma<D: 32, 64, 128><<<((NK + BN - 1) / BN * (B * HK)), (THREADS), 2 * (2 * BN * D
//     + STAGES * 2 * BM * D + 2 * BN * BM) + STAGES * BM * 8>>>(S, dK, dV, Q, K, V, dO, R, H / HK, N, NK, scale, causal)
// launch attention_backward_mma_queries<D: 32, 64, 128><<<((N + BM - 1) / BM * (B * H)), (THREADS), 0>>>(dQ, S, N,
//     scale)

#ifdef BF16
#include <cuda_bf16.h>
using T = __nv_bfloat16;
#define KIND "bf16"
#else
#include <cuda_fp16.h>
using T = __half;
#define KIND "f16"
#endif

constexpr int BM = 64, BN = 128;  // queries and keys of a tile
constexpr int STAGES = 2;         // tiles of Q and dO in shared memory: one is used, one is on its way
constexpr int WARPS = BN / 16;    // 2 for each 32 keys
constexpr int THREADS = WARPS * 32;
constexpr float LOG2_E = 1.4426950408889634f;
#define INF __int_as_float(0x7f800000)

// Where element (r, c) of a tile with COLS columns lies. 8 rows at the same c fill the 128 bytes of the banks once.
template <int COLS>
__device__ int place(int r, int c)
{
    constexpr int ROWS_PER_LINE = COLS < 64 ? 64 / COLS : 1;  // a line is 128 bytes
    constexpr int PIECES = COLS < 64 ? COLS / 8 : 8;
    return r * COLS + ((c / 8) ^ (r / ROWS_PER_LINE % PIECES)) * 8 + c % 8;
}

// The address of the element c columns on, a multiple of 16: within 64 columns the swizzle turns bits of it round.
__device__ unsigned across(unsigned at, int c)
{
    return (at ^ c % 64 * 2) + c / 64 * 128;
}

// Start copying 16 bytes to shared memory; zeros instead where they lie outside.
__device__ void copy(unsigned to, const void *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

__device__ void store(unsigned to, unsigned x)
{
    asm volatile("st.shared.u32 [%0], %1;" :: "r"(to), "r"(x) : "memory");
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

// c += a @ b, 16 x 16 by 16 x 8. Lane 4 * g + q holds of c rows g and g + 8, columns 2 * q and 2 * q + 1.
__device__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32." KIND "." KIND ".f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Columns 16 * j .. 16 * j + 15 of c += a @ b.
template <int M, int N>
__device__ void mma(float (&c)[M][N][4], int j, const unsigned (&a)[M][4], const unsigned (&b)[4])
{
    for (int i = 0; i < M; ++i) {
        mma(c[i][2 * j], a[i], b[0], b[1]);
        mma(c[i][2 * j + 1], a[i], b[2], b[3]);
    }
}

// Two numbers rounded to 16 bits, the first one in the low half.
__device__ unsigned pack(float low, float high)
{
    unsigned both;
    asm("cvt.rn." KIND "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Add 4 numbers to 16 bytes of memory; Hopper does so at once.
__device__ void add(float *to, const float (&x)[4])
{
#if __CUDA_ARCH__ >= 900
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 :: "l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
#else
    for (int e = 0; e < 4; ++e)
        atomicAdd(to + e, x[e]);
#endif
}

// How a block's warps share its tile of dQ: DOWN x ACROSS warps of ROWS x COLS.
template <int D>
struct Share {
    static constexpr int ACROSS = D == 128 ? 4 : 2, DOWN = WARPS / ACROSS, ROWS = BM / DOWN, COLS = D / ACROSS;
    static constexpr int MM = ROWS / 16, MN = COLS / 8;
};

// R: of each query L in powers of 2, and the sum of dO O; past the last query 0, for its Q and dO are 0 as well.
// S, the sums of dQ: 0.
extern "C" __global__ void attention_backward_mma_rows(float *R, float *S, const T *O, const T *dO, const float *L,
                                                       int N, int D)
{
    int tiles = (N + BM - 1) / BM, head = blockIdx.x / tiles, row0 = blockIdx.x % tiles * BM, lanes = D / 8;
    for (int at = threadIdx.x; at < BM * lanes; at += THREADS) {  // 8 elements at a time
        int i = at / lanes, c = at % lanes * 8;
        size_t row = (size_t)head * N + row0 + i, to = (size_t)blockIdx.x * BM + i;
        bool inside = row0 + i < N;
        float sum = 0.0f;
        if (inside) {
            uint4 o = *(const uint4 *)(O + row * D + c), g = *(const uint4 *)(dO + row * D + c);
            const T *x = (const T *)&o, *y = (const T *)&g;
            #pragma unroll
            for (int e = 0; e < 8; ++e)
                sum += (float)x[e] * (float)y[e];
        }
        float4 *zeros = (float4 *)(S + (size_t)blockIdx.x * BM * D);
        zeros[at] = zeros[at + BM * lanes] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (int d = lanes / 2; d > 0; d /= 2)
            sum += __shfl_xor_sync(0xffffffff, sum, d);
        if (c == 0)
            *(float2 *)(R + 2 * to) = make_float2(inside ? L[row] * LOG2_E : 0.0f, sum);
    }
}

// The sums of dQ, which lie in the order of the lanes that added them, times scale.
template <int D>
__global__ void attention_backward_mma_queries(T *dQ, const float *S, int N, float scale)
{
    using W = Share<D>;
    scale = scale == 0.0f ? 1.0f / sqrtf(D) : scale;
    int tiles = (N + BM - 1) / BM, head = blockIdx.x / tiles, row0 = blockIdx.x % tiles * BM;
    const float4 *s = (const float4 *)(S + (size_t)blockIdx.x * BM * D);
    for (int at = threadIdx.x; at < BM * D / 16; at += THREADS) {  // 64 bytes of 4 lanes: 8 columns of 2 rows
        int j = at / 8 % W::MN, i = at / 8 / W::MN % W::MM, warp = at / 8 / W::MN / W::MM;
        int row = row0 + warp / W::ACROSS * W::ROWS + 16 * i + at % 8, col = warp % W::ACROSS * W::COLS + 8 * j;
        uint4 low, high;
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            float4 from = s[at * 4 + e];
            (&low.x)[e] = pack(from.x * scale, from.y * scale);
            (&high.x)[e] = pack(from.z * scale, from.w * scale);
        }
        if (row < N)
            *(uint4 *)(dQ + ((size_t)head * N + row) * D + col) = low;
        if (row + 8 < N)
            *(uint4 *)(dQ + ((size_t)head * N + row + 8) * D + col) = high;
    }
}

// group: query heads per key head. All tensors begin on 16 bytes.
template <int D>
__global__ void __launch_bounds__(THREADS, 1)
attention_backward_mma(float *S, T *dK, T *dV, const T *Q, const T *K, const T *V, const T *dO, const float *R,
                       int group, int N, int NK, float scale, int causal)
{
    using W = Share<D>;
    scale = scale == 0.0f ? 1.0f / sqrtf(D) : scale;
    constexpr int STAGE = 2 * BM * D * 2, KEYS = BN * D * 2, PS = BN * BM * 2;  // bytes of Q and dO, K, P
    extern __shared__ __align__(128) T shared[];
    int tiles = (NK + BN - 1) / BN, head = blockIdx.x / tiles, col0 = blockIdx.x % tiles * BN;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int blocks = (N + BM - 1) / BM;  // tiles of queries of a head
    int keys = warp / 2 * 32, side = warp % 2;  // two warps share 32 keys: each half of the queries, half of D
    float k[2][D / 16][4] = {}, v[2][D / 16][4] = {};  // dK and dV of this warp's keys and columns
    float scale2 = scale * LOG2_E;
    size_t of_keys = (size_t)head * NK * D;
    // BEGIN SOLUTION
    constexpr int ROWS = THREADS / (D / 8);
    static_assert(ROWS % 8 == 0, "the swizzle repeats after 8 rows");
    unsigned base = __cvta_generic_to_shared(shared), tQ = base + 2 * KEYS, tS = tQ + STAGES * STAGE;
    unsigned tR = tS + 2 * PS;
    int r = threadIdx.x / (D / 8), c = threadIdx.x % (D / 8) * 8;
    unsigned to = base + 2 * place<D>(r, c);
    #pragma unroll
    for (int j = 0; j < BN / ROWS; ++j) {
        size_t from = of_keys + (size_t)(col0 + r + ROWS * j) * D + c;
        copy(to + ROWS * j * D * 2, K + from, col0 + r + ROWS * j < NK);
        copy(to + KEYS + ROWS * j * D * 2, V + from, col0 + r + ROWS * j < NK);
    }
    int first = causal ? min(col0 / BM, blocks) : 0;  // queries before col0 see none of these keys
    int end = (head + 1) * group;
    int h_next = first < blocks ? head * group : end, next = first;  // what is copied next: a query head's tile
    auto start = [&](int s) {                                        // into stage s
        if (h_next == end)
            return;
        unsigned at = to + 2 * KEYS + s * STAGE;
        size_t from = ((size_t)h_next * N + next * BM + r) * D + c;
        #pragma unroll
        for (int j = 0; j < BM / ROWS; ++j) {
            bool inside = next * BM + r + ROWS * j < N;
            copy(at + ROWS * j * D * 2, Q + from + ROWS * j * D, inside);
            copy(at + STAGE / 2 + ROWS * j * D * 2, dO + from + ROWS * j * D, inside);
        }
        if (threadIdx.x < BM / 2)
            copy(tR + s * BM * 8 + threadIdx.x * 16, R + (((size_t)h_next * blocks + next) * BM + threadIdx.x * 2) * 2,
                 true);
    };
    // Where this lane's rows lie. As left factors K and V are read as they stand; as right factors Q and dO are too
    // where their rows are columns to the multiplication, and turned round where they are rows.
    unsigned lane_k = base + 2 * place<D>(keys + lane % 16, lane / 16 * 8);
    unsigned lane_across = 2 * place<D>(side * (BM / 2) + lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
    unsigned lane_down = 2 * place<D>(lane % 16, lane / 16 * 8), lane_half = across(lane_down, side * (D / 2));
    // dS, and PS further on P: where this lane puts its own, and where it finds the other warp's.
    unsigned put = tS + 2 * place<BM>(keys + lane / 4, side * (BM / 2) + lane % 4 * 2);
    unsigned theirs = tS + 2 * place<BM>(keys + lane % 16, (side ^ 1) * (BM / 2) + lane / 16 * 8);
    int wm = warp / W::ACROSS * W::ROWS, wn = warp % W::ACROSS * W::COLS;  // this warp's share of dQ
    unsigned lane_own = across(base + lane_down, wn);
    unsigned get = tS + 2 * place<BM>(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
    // This warp's share of the scores, K by Q, or of dP, V by dO.
    auto multiply = [&](float (&sum)[2][BM / 16][4], unsigned stage, bool values) {
        #pragma unroll
        for (int d = 0; d < D; d += 16) {
            unsigned a[2][4], b[4];
            for (int i = 0; i < 2; ++i)
                ldmatrix(a[i], across(lane_k, d) + values * KEYS + 16 * i * D * 2);
            for (int j = 0; j < BM / 32; ++j) {
                ldmatrix(b, across(stage + lane_across, d) + values * STAGE / 2 + 16 * j * D * 2);
                mma(sum, j, a, b);
            }
        }
    };
    start(0);
    for (int now = 0; h_next < end; now ^= 1) {  // the stage that is used
        int row0 = next * BM;
        size_t tile = (size_t)h_next * blocks + next;
        if (++next == blocks) {
            next = first;
            ++h_next;
        }
        asm volatile("" : "+r"(put));  // places that follow from it are found anew, not kept in registers
        unsigned stage = tQ + now * STAGE;
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();  // this step's tiles are there; nobody reads the last one's, or its P and dS, any more
        start(now ^ 1);
        float s[2][BM / 16][4] = {}, dp[2][BM / 16][4] = {};
        multiply(s, stage, false);
        if (col0 + BN > NK || causal && col0 + BN - 1 > row0) {
            for (int i = 0; i < 2; ++i)
                for (int e = 0; e < 4; ++e) {
                    int key = col0 + keys + 16 * i + 8 * (e / 2) + lane / 4;
                    int row = row0 + side * (BM / 2) + lane % 4 * 2 + e % 2;
                    int before = key >= NK ? BM : causal ? key - row : 0;  // queries that do not see the key
                    for (int j = 0; j < BM / 16; ++j)
                        s[i][j][e] = 8 * j < before ? -INF : s[i][j][e];
                }
        }
        auto of_rows = [&](int j) {  // L and the sum of dO O, of two queries
            float4 rows;
            asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(rows.x), "=f"(rows.y), "=f"(rows.z), "=f"(rows.w)
                         : "r"(tR + now * BM * 8 + side * BM * 4 + j * 64 + lane % 4 * 16) : "memory");
            return rows;
        };
        unsigned p[BM / 32][2][4], ds[BM / 32][2][4];  // P and dS as left factors of dO and Q
        #pragma unroll
        for (int j = 0; j < BM / 16; ++j) {
            float4 rows = of_rows(j);
            for (int i = 0; i < 2; ++i)
                for (int e = 0; e < 4; e += 2) {
                    s[i][j][e] = exp2_fast(s[i][j][e] * scale2 - rows.x);
                    s[i][j][e + 1] = exp2_fast(s[i][j][e + 1] * scale2 - rows.z);
                    p[j / 2][i][j % 2 * 2 + e / 2] = pack(s[i][j][e], s[i][j][e + 1]);
                }
        }
        multiply(dp, stage, true);
        #pragma unroll
        for (int j = 0; j < BM / 16; ++j) {
            float4 rows = of_rows(j);
            for (int i = 0; i < 2; ++i)
                for (int e = 0; e < 4; e += 2) {
                    float x = s[i][j][e] * (dp[i][j][e] - rows.y), y = s[i][j][e + 1] * (dp[i][j][e + 1] - rows.w);
                    unsigned at = (put ^ 16 * j) + (16 * i + 4 * e) * BM * 2;
                    store(at, ds[j / 2][i][j % 2 * 2 + e / 2] = pack(x, y));
                    store(at + PS, p[j / 2][i][j % 2 * 2 + e / 2]);
                }
        }
        // dV and dK: over this warp's queries, whose P and dS it holds, then over the other's.
        #pragma unroll
        for (int other = 0; other < 2; ++other) {
            if (other)  // P and dS of both warps are there
                asm volatile("bar.sync %0, 64;" :: "r"(1 + warp / 2) : "memory");
            unsigned rows = stage + lane_half + (side ^ other) * (BM / 2) * D * 2;
            #pragma unroll
            for (int i = 0; i < BM / 32; ++i) {
                unsigned b[4];
                if (other)
                    for (int m = 0; m < 2; ++m) {
                        ldmatrix(ds[i][m], (theirs ^ 32 * i) + 16 * m * BM * 2);
                        ldmatrix(p[i][m], (theirs ^ 32 * i) + 16 * m * BM * 2 + PS);
                    }
                #pragma unroll
                for (int j = 0; j < D / 32; ++j) {
                    ldmatrix_transposed(b, across(rows, 16 * j) + STAGE / 2 + 16 * i * D * 2);
                    mma(v, j, p[i], b);
                }
                #pragma unroll
                for (int j = 0; j < D / 32; ++j) {
                    ldmatrix_transposed(b, across(rows, 16 * j) + 16 * i * D * 2);
                    mma(k, j, ds[i], b);
                }
            }
        }
        __syncthreads();  // dS of all warps is there
        float q[W::MM][W::MN][4] = {};
        #pragma unroll
        for (int j = 0; j < BN; j += 16) {
            unsigned a[W::MM][4], b[4];
            for (int i = 0; i < W::MM; ++i)
                ldmatrix_transposed(a[i], (get ^ 2 * (wm + 16 * i)) + j * BM * 2);
            for (int n = 0; n < W::MN / 2; ++n) {
                ldmatrix_transposed(b, across(lane_own, 16 * n) + j * D * 2);
                mma(q, n, a, b);
            }
        }
        float *sums = S + (tile * WARPS + warp) * W::ROWS * W::COLS + lane * 4;
        #pragma unroll
        for (int i = 0; i < W::MM; ++i)
            #pragma unroll
            for (int j = 0; j < W::MN; ++j)
                add(sums + (i * W::MN + j) * 128, q[i][j]);
    }
    // END SOLUTION
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        int key = col0 + keys + 8 * i + lane / 4;
        if (key >= NK)
            continue;
        #pragma unroll
        for (int j = 0; j < D / 16; ++j) {
            size_t at = of_keys + (size_t)key * D + side * (D / 2) + 8 * j + lane % 4 * 2;
            float *of_k = k[i / 2][j] + i % 2 * 2, *of_v = v[i / 2][j] + i % 2 * 2;
            *(unsigned *)(dK + at) = pack(of_k[0] * scale, of_k[1] * scale);
            *(unsigned *)(dV + at) = pack(of_v[0], of_v[1]);
        }
    }
}
