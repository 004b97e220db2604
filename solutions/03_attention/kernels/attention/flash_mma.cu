// attention/flash_mma: O = softmax(scale Q K^T) V, float16 (or bfloat16, -DBF16), and L in float32, on tensor cores.
//
// Against flash_double_buffered: both products move to the tensor cores, and weights never leave their registers. What
// a lane holds of the scores after Q K^T, rounded to 16 bits in pairs, is what it has to hold of P to multiply by V. A
// warp has 32 queries, so that each fragment of K and V serves two multiplications; it reads Q again for each tile,
// since scores and O take most of the registers. cp.async fills two stages of K and V, one ahead. scale * log2(e) goes
// into one multiply-add before exp2, and sums are corrected only when a row's maximum has grown 256-fold: until then
// they are relative to an older one, by which all is divided in the end. Tiles of which every query sees every key have
// a loop of their own, without checks.
// Watch: tensor operations; shared wavefronts per tensor operation; stalls on exp2 (MUFU) between the products.
//
// launch attention_flash_mma<D: 32, 64, 128><<<((N + BM - 1) / BM * (B * H)), (THREADS), 2 * (BM * D
//     + 2 * STAGES * min(BM * D, TILE))>>>(O, L, Q, K, V, H / HK, N, NK, scale, causal)

#ifdef BF16
#include <cuda_bf16.h>
using T = __nv_bfloat16;
#define KIND "bf16"
#else
#include <cuda_fp16.h>
using T = __half;
#define KIND "f16"
#endif

constexpr int BM = 128;           // queries of a tile
constexpr int TILE = 8192;        // numbers in a tile of K or V: 64 keys at D = 128, and never more than BM
constexpr int WM = 32;            // queries of a warp
constexpr int STAGES = 2;         // tiles of K and V in shared memory: one is used, one is on its way
constexpr int THREADS = BM / WM * 32;
constexpr float LOWEST = -1e30f;  // below any score; and not -inf: -inf - -inf is NaN
constexpr float GROWTH = 8.0f;    // of a row's maximum in powers of 2 that its sums bear; P in float16 bears 15
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
__device__ void copy(unsigned to, const T *from, bool inside)
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

// c += a @ b, 16 x 16 by 16 x 8. Lane 4 * g + q holds of c rows g and g + 8, columns 2 * q and 2 * q + 1.
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
    asm("cvt.rn." KIND "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

__device__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// group: query heads per key head. Q, K, V and O begin on 16 bytes.
template <int D>
__global__ void __launch_bounds__(THREADS, 2)
attention_flash_mma(T *O, float *L, const T *Q, const T *K, const T *V, int group, int N, int NK, float scale,
                    int causal)
{
    constexpr int BN = TILE / D < BM ? TILE / D : BM;    // keys of a tile
    constexpr int MM = WM / 16, STAGE = 2 * BN * D * 2;  // fragments down a warp; bytes of K and V
    extern __shared__ __align__(128) T shared[];
    int tiles = (N + BM - 1) / BM, head = blockIdx.x / tiles, row0 = (tiles - 1 - blockIdx.x % tiles) * BM;
    int lane = threadIdx.x % 32, wm = threadIdx.x / 32 * WM;
    float o[MM][D / 8][4] = {}, m[MM][2], l[MM][2] = {};  // rows lane / 4 and 8 further, of each fragment
    for (int i = 0; i < MM; ++i)
        m[i][0] = m[i][1] = LOWEST;  // the largest score, times scale2
    float scale2 = (scale == 0.0f ? 1.0f / sqrtf(D) : scale) * 1.4426950408889634f;  // exp(x) is exp2(x log2(e))
    // BEGIN SOLUTION
    // This thread copies 16 bytes of every ROWS-th row of a tile, at the same place in the row, for the swizzle repeats
    // after 8 rows.
    constexpr int ROWS = THREADS / (D / 8);
    static_assert(ROWS % 8 == 0, "the swizzle repeats after 8 rows");
    int r = threadIdx.x / (D / 8), c = threadIdx.x % (D / 8) * 8;
    unsigned base = __cvta_generic_to_shared(shared), to = base + 2 * place<D>(r, c), first = base + 2 * BM * D;
    const T *from_q = Q + ((size_t)head * N + row0 + r) * D + c;
    #pragma unroll
    for (int j = 0; j < BM / ROWS; ++j)
        copy(to + ROWS * j * D * 2, from_q + ROWS * j * D, row0 + r + ROWS * j < N);
    auto start = [&](int step, bool edge) {  // the copies of a step, into its stage
        size_t from = ((size_t)(head / group) * NK + step * BN + r) * D + c;
        unsigned at = to + 2 * BM * D + step % STAGES * STAGE;
        #pragma unroll
        for (int j = 0; j < BN / ROWS; ++j) {
            bool inside = !edge || step * BN + r + ROWS * j < NK;
            copy(at + ROWS * j * D * 2, K + from + ROWS * j * D, inside);
            copy(at + STAGE / 2 + ROWS * j * D * 2, V + from + ROWS * j * D, inside);
        }
    };
    // Where this lane's rows lie: lanes 0 to 15 name 16 rows of Q or V, lanes 16 to 31 the same rows 8 columns further;
    // of K, whose rows are columns to the multiplication, two groups of 8 lanes name the same 8 rows.
    unsigned lane_q = base + 2 * place<D>(wm + lane % 16, lane / 16 * 8);
    unsigned lane_k = first + 2 * place<D>(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
    unsigned lane_v = first + STAGE / 2 + 2 * place<D>(lane % 16, lane / 16 * 8);
    start(0, true);
    int step = 0;
    // Two loops of one text, the first without checks: its steps have nothing to mask, and start copying a whole tile.
    #pragma unroll
    for (int edge = 0; edge < 2; ++edge) {
        int end = edge ? ((causal ? min(NK, row0 + BM) : NK) + BN - 1) / BN : min(causal ? row0 : NK, NK - BN) / BN;
        for (; step < end; ++step) {
            int col0 = step * BN;
            asm volatile("cp.async.wait_all;" ::: "memory");
            __syncthreads();  // this step's tiles are there, and nobody reads those of the last one any more
            if (!edge || step + 1 < end)
                start(step + 1, edge);
            if (edge && causal && col0 > row0 + wm + WM - 1)
                continue;  // this warp's queries see none of these keys
            unsigned stage = step % STAGES * STAGE;
            float s[MM][BN / 8][4] = {};
            #pragma unroll
            for (int k = 0; k < D; k += 16) {
                unsigned a[MM][4], b[4];
                for (int i = 0; i < MM; ++i)
                    ldmatrix(a[i], across(lane_q, k) + 16 * i * D * 2);
                for (int j = 0; j < BN / 16; ++j) {
                    ldmatrix(b, across(lane_k + stage, k) + 16 * j * D * 2);
                    for (int i = 0; i < MM; ++i) {
                        mma(s[i][2 * j], a[i], b[0], b[1]);
                        mma(s[i][2 * j + 1], a[i], b[2], b[3]);
                    }
                }
            }
            if (edge && (col0 + BN > NK || causal && col0 + BN - 1 > row0 + wm)) {
                #pragma unroll
                for (int i = 0; i < MM; ++i)
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        int row = row0 + wm + 16 * i + 8 * (e / 2) + lane / 4;
                        int seen = (causal ? min(NK, row + 1) : NK) - (col0 + lane % 4 * 2 + e % 2);  // from here on
                        for (int j = 0; j < BN / 8; ++j)
                            s[i][j][e] = 8 * j < seen ? s[i][j][e] : -INF;
                    }
            }
            float largest[MM][2];  // times scale2, as m
            bool grown = false;
            #pragma unroll
            for (int i = 0; i < MM; ++i)
                #pragma unroll
                for (int half = 0; half < 2; ++half) {
                    float most = fmaxf(s[i][0][2 * half], s[i][0][2 * half + 1]);
                    for (int j = 1; j < BN / 8; ++j)
                        most = fmaxf(most, fmaxf(s[i][j][2 * half], s[i][j][2 * half + 1]));
                    most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 1));  // the 4 lanes that share a row
                    most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 2));
                    largest[i][half] = most * scale2;
                    grown |= largest[i][half] > m[i][half] + GROWTH;
                }
            if (__any_sync(0xffffffff, grown)) {
                #pragma unroll
                for (int i = 0; i < MM; ++i)
                    #pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        float most = fmaxf(m[i][half], largest[i][half]);
                        float correction = exp2_fast(m[i][half] - most);
                        m[i][half] = most;
                        l[i][half] *= correction;
                        for (int j = 0; j < D / 8; ++j) {
                            o[i][j][2 * half] *= correction;
                            o[i][j][2 * half + 1] *= correction;
                        }
                    }
            }
            // The weights of 16 keys at a time, as left factors of V: the next ones' exponentials go on beside this.
            #pragma unroll
            for (int k = 0; k < BN; k += 16) {
                unsigned p[MM][4];
                #pragma unroll
                for (int i = 0; i < MM; ++i)
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        int half = e % 2, j = k / 8 + e / 2;
                        float x = exp2_fast(s[i][j][2 * half] * scale2 - m[i][half]);
                        float y = exp2_fast(s[i][j][2 * half + 1] * scale2 - m[i][half]);
                        l[i][half] += x + y;  // of this lane's keys; the 4 lanes of a row add up at the end
                        p[i][e] = pack(x, y);
                    }
                #pragma unroll
                for (int j = 0; j < D / 16; ++j) {
                    unsigned b[4];
                    ldmatrix_transposed(b, across(lane_v + stage, 16 * j) + k * D * 2);
                    for (int i = 0; i < MM; ++i) {
                        mma(o[i][2 * j], p[i], b[0], b[1]);
                        mma(o[i][2 * j + 1], p[i], b[2], b[3]);
                    }
                }
            }
        }
    }
    // END SOLUTION
    O += (size_t)head * N * D;
    L += (size_t)head * N;
    #pragma unroll
    for (int i = 0; i < MM; ++i)
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            float sum = l[i][half];
            sum += __shfl_xor_sync(0xffffffff, sum, 1);
            sum += __shfl_xor_sync(0xffffffff, sum, 2);
            int row = row0 + wm + 16 * i + 8 * half + lane / 4;
            float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;  // a row of -inf has no sum
            if (row >= N)
                continue;
            for (int j = 0; j < D / 8; ++j)
                *(unsigned *)(O + (size_t)row * D + 8 * j + lane % 4 * 2) =
                    pack(o[i][j][2 * half] * inverse, o[i][j][2 * half + 1] * inverse);
            if (lane % 4 == 0)
                L[row] = (m[i][half] + log2f(sum)) * 0.6931471805599453f;
        }
}
