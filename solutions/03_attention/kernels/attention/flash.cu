// attention/flash: O = softmax(scale Q K^T) V and L in float32, tiles of queries and keys.
//
// Against online_softmax: a block of 64 queries shares what it loads. Tiles of 32 keys and values come into shared
// memory; each thread computes 4 x 4 scores in registers, corrects its rows once per tile and not once per key, and
// adds the tile's share to its 4 rows of O, of which it keeps D / 8 columns in registers. The 8 threads of a row are
// neighbors in a warp: they find the row's maximum by shuffles, and pass weights on through shared memory. With
// causal, keys past the block's last query are not even loaded, and blocks with most keys start first.
// Watch: global load sectors fall; shared wavefronts per multiply-add.
//
// launch attention_flash<<<((N + BM - 1) / BM * (B * H)), (THREADS), 4 * (BM * (D + 4) + BN * (D + 4) + BN * D +
//     BM * (BN + 4))>>>(O, L, Q, K, V, H / HK, N, NK, D, scale, causal)

constexpr int BM = 64, BN = 32;  // queries and keys of a tile
constexpr int THREADS = 128;     // 16 down, with 4 queries each, and 8 across
#define INF __int_as_float(0x7f800000)

// Rows row0 .. of a matrix with D columns, ld apart in the tile; zeros past its last row.
template <int ROWS, int D>
__device__ void load_tile(float *to, int ld, const float *from, int row0, int rows)
{
    for (int i = threadIdx.x; i < ROWS * D / 4; i += THREADS) {
        int r = i / (D / 4), c = i % (D / 4) * 4;
        float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (row0 + r < rows)
            x = *(const float4 *)(from + (size_t)(row0 + r) * D + c);
        *(float4 *)(to + r * ld + c) = x;
    }
}

// group: query heads per key head.
template <int D>
__device__ void attend(float *O, float *L, const float *Q, const float *K, const float *V, int group, int N, int NK,
                       float scale, int causal)
{
    // Rows are padded by 16 bytes: 8 rows at the same column then fill the banks once.
    constexpr int LD = D + 4, LP = BN + 4;
    extern __shared__ __align__(16) float shared[];
    float *tQ = shared, *tK = tQ + BM * LD, *tV = tK + BN * LD, *tP = tV + BN * D;
    int tiles = (N + BM - 1) / BM, head = blockIdx.x / tiles, row0 = (tiles - 1 - blockIdx.x % tiles) * BM;
    int y = threadIdx.x / 8 * 4, x = threadIdx.x % 8;  // queries y .. y + 3, keys x + 8 j, columns 4 x + 32 c ..
    O += (size_t)head * N * D;
    L += (size_t)head * N;
    K += (size_t)(head / group) * NK * D;
    V += (size_t)(head / group) * NK * D;
    scale = scale == 0.0f ? 1.0f / sqrtf(D) : scale;
    float o[4][D / 32][4] = {}, m[4], l[4] = {};
    for (int i = 0; i < 4; ++i)
        m[i] = -3.402823466e38f;  // and not -inf: exp(-inf - -inf) is NaN
    load_tile<BM, D>(tQ, LD, Q + (size_t)head * N * D, row0, N);
    int keys = causal ? min(NK, row0 + BM) : NK;
    for (int col0 = 0; col0 < keys; col0 += BN) {
        __syncthreads();  // nobody reads the last tiles any more
        load_tile<BN, D>(tK, LD, K, col0, NK);
        load_tile<BN, D>(tV, D, V, col0, NK);
        __syncthreads();  // the tiles are there
        float s[4][4] = {};
        #pragma unroll 4
        for (int d = 0; d < D; d += 4) {
            float4 q[4], k[4];
            for (int i = 0; i < 4; ++i)
                q[i] = *(float4 *)(tQ + (y + i) * LD + d);
            for (int j = 0; j < 4; ++j)
                k[j] = *(float4 *)(tK + (x + 8 * j) * LD + d);
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j)
                    s[i][j] += q[i].x * k[j].x + q[i].y * k[j].y + q[i].z * k[j].z + q[i].w * k[j].w;
        }
        // BEGIN SOLUTION
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            float largest = m[i], sum = 0.0f;
            for (int j = 0; j < 4; ++j) {
                int col = col0 + x + 8 * j;
                s[i][j] = col >= NK || causal && col > row0 + y + i ? -INF : s[i][j] * scale;
                largest = fmaxf(largest, s[i][j]);
            }
            for (int d = 4; d > 0; d /= 2)
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, d));
            float correction = expf(m[i] - largest);
            for (int j = 0; j < 4; ++j) {
                float p = expf(s[i][j] - largest);
                sum += p;
                tP[(y + i) * LP + x + 8 * j] = p;
            }
            m[i] = largest;
            l[i] = l[i] * correction + sum;  // of this thread's keys; the 8 threads of a row add up at the end
            for (int c = 0; c < D / 32; ++c)
                for (int e = 0; e < 4; ++e)
                    o[i][c][e] *= correction;
        }
        __syncwarp();  // a warp reads the weights of its own rows alone
        #pragma unroll 2
        for (int j = 0; j < BN; j += 4) {
            float p[4][4];
            for (int i = 0; i < 4; ++i)
                *(float4 *)p[i] = *(float4 *)(tP + (y + i) * LP + j);
            for (int e = 0; e < 4; ++e)
                for (int c = 0; c < D / 32; ++c) {
                    float4 v = *(float4 *)(tV + (j + e) * D + 4 * x + 32 * c);
                    for (int i = 0; i < 4; ++i) {
                        o[i][c][0] += p[i][e] * v.x;
                        o[i][c][1] += p[i][e] * v.y;
                        o[i][c][2] += p[i][e] * v.z;
                        o[i][c][3] += p[i][e] * v.w;
                    }
                }
        }
        // END SOLUTION
    }
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        for (int d = 4; d > 0; d /= 2)
            l[i] += __shfl_xor_sync(0xffffffff, l[i], d);
        int row = row0 + y + i;
        float inverse = l[i] > 0.0f ? 1.0f / l[i] : 0.0f;  // a row of -inf has no sum
        if (row >= N)
            continue;
        for (int c = 0; c < D / 32; ++c)
            *(float4 *)(O + (size_t)row * D + 4 * x + 32 * c) = make_float4(
                o[i][c][0] * inverse, o[i][c][1] * inverse, o[i][c][2] * inverse, o[i][c][3] * inverse);
        if (x == 0)
            L[row] = m[i] + logf(l[i]);
    }
}

// Q, K, V and O begin on 16 bytes.
extern "C" __global__ void __launch_bounds__(THREADS, 3)
attention_flash(float *O, float *L, const float *Q, const float *K, const float *V, int group, int N, int NK, int D,
                float scale, int causal)
{
    if (D == 32)
        attend<32>(O, L, Q, K, V, group, N, NK, scale, causal);
    else if (D == 64)
        attend<64>(O, L, Q, K, V, group, N, NK, scale, causal);
    else
        attend<128>(O, L, Q, K, V, group, N, NK, scale, causal);
}
