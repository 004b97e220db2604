// attention_backward/recompute: dQ, dK, dV of attention in float32, with the weights computed again.
//
// Against keeping the weights of the forward pass: they are computed again from Q, K and L, tile by tile, and no tensor
// of N x NK numbers exists. A block that owns keys walks over the queries and sums dK and dV in registers; another
// kernel, whose blocks own queries, walks over the keys for dQ. So nobody adds to what another block adds to, and the
// result is the same each time; the price is that scores and dP are computed twice, seven products in place of five.
// Watch: peak of memory; FFMA against the forward pass.
//
// workspace R float32 (B, H, N)
// launch attention_backward_rows<<<((B * H * N + 3) / 4), (128), 0>>>(R, O, dO, B * H * N, D)
// launch attention_backward_keys<<<((NK + TILE - 1) / TILE * (B * HK)), (THREADS), 4 * (4 * TILE * (D + 4) +
//     2 * TILE * (TILE + 4))>>>(dK, dV, Q, K, V, L, dO, R, H / HK, N, NK, D, scale, causal)
// launch attention_backward_queries<<<((N + TILE - 1) / TILE * (B * H)), (THREADS), 4 * (4 * TILE * (D + 4) +
//     2 * TILE * (TILE + 4))>>>(dQ, Q, K, V, L, dO, R, H / HK, N, NK, D, scale, causal)

constexpr int TILE = 32;      // queries and keys of a tile
constexpr int THREADS = 128;  // 16 down and 8 across: 2 queries, or 2 keys, for each
constexpr int LP = TILE + 4;  // rows of tiles are padded by 16 bytes: 8 rows at the same column fill the banks once

// R = sum of dO O of each row, a warp per row.
extern "C" __global__ void attention_backward_rows(float *R, const float *O, const float *dO, long long rows, int D)
{
    long long row = (long long)blockIdx.x * 4 + threadIdx.x / 32;
    if (row >= rows)
        return;
    float sum = 0.0f;
    for (int d = threadIdx.x % 32; d < D; d += 32)
        sum += O[row * D + d] * dO[row * D + d];
    for (int d = 16; d > 0; d /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, d);
    if (threadIdx.x % 32 == 0)
        R[row] = sum;
}

// Rows row0 .. of a matrix with D columns; zeros past its last row.
template <int D>
__device__ void load_tile(float *to, const float *from, int row0, int rows)
{
    for (int i = threadIdx.x; i < TILE * D / 4; i += THREADS) {
        int r = i / (D / 4), c = i % (D / 4) * 4;
        float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (row0 + r < rows)
            x = *(const float4 *)(from + (size_t)(row0 + r) * D + c);
        *(float4 *)(to + r * (D + 4) + c) = x;
    }
}

// P and dS (with the scale) of the tile at row0, col0 into shared memory; 0 where a query does not see a key.
template <int D>
__device__ void weights(float *tP, float *tS, const float *tQ, const float *tdO, const float *tK, const float *tV,
                        const float *L, const float *R, int row0, int col0, int N, int NK, float scale, int causal)
{
    constexpr int LD = D + 4;
    int y = threadIdx.x / 8 * 2, x = threadIdx.x % 8;  // queries y and y + 1, keys x + 8 j
    float s[2][4] = {}, dp[2][4] = {};
    // BEGIN SOLUTION
    #pragma unroll 2
    for (int d = 0; d < D; d += 4) {
        float4 q[2], o[2], k[4], v[4];
        for (int i = 0; i < 2; ++i) {
            q[i] = *(float4 *)(tQ + (y + i) * LD + d);
            o[i] = *(float4 *)(tdO + (y + i) * LD + d);
        }
        for (int j = 0; j < 4; ++j) {
            k[j] = *(float4 *)(tK + (x + 8 * j) * LD + d);
            v[j] = *(float4 *)(tV + (x + 8 * j) * LD + d);
        }
        for (int i = 0; i < 2; ++i)
            for (int j = 0; j < 4; ++j) {
                s[i][j] += q[i].x * k[j].x + q[i].y * k[j].y + q[i].z * k[j].z + q[i].w * k[j].w;
                dp[i][j] += o[i].x * v[j].x + o[i].y * v[j].y + o[i].z * v[j].z + o[i].w * v[j].w;
            }
    }
    for (int i = 0; i < 2; ++i) {
        int row = row0 + y + i;
        float l = row < N ? L[row] : 0.0f, r = row < N ? R[row] : 0.0f;
        for (int j = 0; j < 4; ++j) {
            int col = col0 + x + 8 * j;
            bool seen = row < N && col < NK && (!causal || col <= row);
            float p = seen ? expf(s[i][j] * scale - l) : 0.0f;
            tP[(y + i) * LP + x + 8 * j] = p;
            tS[(y + i) * LP + x + 8 * j] = p * (dp[i][j] - r) * scale;
        }
    }
    // END SOLUTION
}

// group: query heads per key head.
template <int D>
__device__ void keys(float *dK, float *dV, const float *Q, const float *K, const float *V, const float *L,
                     const float *dO, const float *R, int group, int N, int NK, float scale, int causal)
{
    constexpr int LD = D + 4;
    extern __shared__ __align__(16) float shared[];
    float *tK = shared, *tV = tK + TILE * LD, *tQ = tV + TILE * LD, *tdO = tQ + TILE * LD, *tP = tdO + TILE * LD;
    float *tS = tP + TILE * LP;
    int tiles = (NK + TILE - 1) / TILE, head = blockIdx.x / tiles, col0 = blockIdx.x % tiles * TILE;
    int y = threadIdx.x / 8 * 2, x = threadIdx.x % 8;  // keys y and y + 1, columns 4 x + 32 c ..
    size_t of_head = (size_t)head * NK * D;
    float k[2][D / 32][4] = {}, v[2][D / 32][4] = {};
    load_tile<D>(tK, K + of_head, col0, NK);
    load_tile<D>(tV, V + of_head, col0, NK);
    for (int h = head * group; h < (head + 1) * group; ++h)
        for (int row0 = causal ? col0 : 0; row0 < N; row0 += TILE) {  // queries before col0 see none of these keys
            __syncthreads();  // nobody reads the last tiles any more
            load_tile<D>(tQ, Q + (size_t)h * N * D, row0, N);
            load_tile<D>(tdO, dO + (size_t)h * N * D, row0, N);
            __syncthreads();  // the tiles are there
            weights<D>(tP, tS, tQ, tdO, tK, tV, L + (size_t)h * N, R + (size_t)h * N, row0, col0, N, NK, scale, causal);
            __syncthreads();  // P and dS are there
            // BEGIN SOLUTION
            #pragma unroll 2
            for (int i = 0; i < TILE; ++i) {
                float2 p = *(float2 *)(tP + i * LP + y), s = *(float2 *)(tS + i * LP + y);
                for (int c = 0; c < D / 32; ++c) {
                    float o[4], q[4];
                    *(float4 *)o = *(float4 *)(tdO + i * LD + 4 * x + 32 * c);
                    *(float4 *)q = *(float4 *)(tQ + i * LD + 4 * x + 32 * c);
                    for (int e = 0; e < 4; ++e) {
                        v[0][c][e] += p.x * o[e];
                        v[1][c][e] += p.y * o[e];
                        k[0][c][e] += s.x * q[e];
                        k[1][c][e] += s.y * q[e];
                    }
                }
            }
            // END SOLUTION
        }
    #pragma unroll
    for (int j = 0; j < 2; ++j)
        #pragma unroll
        for (int c = 0; c < D / 32; ++c)
            if (col0 + y + j < NK) {
                size_t at = of_head + (size_t)(col0 + y + j) * D + 4 * x + 32 * c;
                *(float4 *)(dK + at) = *(float4 *)k[j][c];
                *(float4 *)(dV + at) = *(float4 *)v[j][c];
            }
}

template <int D>
__device__ void queries(float *dQ, const float *Q, const float *K, const float *V, const float *L, const float *dO,
                        const float *R, int group, int N, int NK, float scale, int causal)
{
    constexpr int LD = D + 4;
    extern __shared__ __align__(16) float shared[];
    float *tK = shared, *tV = tK + TILE * LD, *tQ = tV + TILE * LD, *tdO = tQ + TILE * LD, *tP = tdO + TILE * LD;
    float *tS = tP + TILE * LP;
    int tiles = (N + TILE - 1) / TILE, head = blockIdx.x / tiles, row0 = (tiles - 1 - blockIdx.x % tiles) * TILE;
    int y = threadIdx.x / 8 * 2, x = threadIdx.x % 8;  // queries y and y + 1, columns 4 x + 32 c ..
    size_t of_head = (size_t)head * N * D, of_keys = (size_t)(head / group) * NK * D;
    float q[2][D / 32][4] = {};
    load_tile<D>(tQ, Q + of_head, row0, N);
    load_tile<D>(tdO, dO + of_head, row0, N);
    int last = causal ? min(NK, row0 + TILE) : NK;
    for (int col0 = 0; col0 < last; col0 += TILE) {
        __syncthreads();  // nobody reads the last tiles of K and V any more
        load_tile<D>(tK, K + of_keys, col0, NK);
        load_tile<D>(tV, V + of_keys, col0, NK);
        __syncthreads();  // the tiles of K and V are there
        weights<D>(tP, tS, tQ, tdO, tK, tV, L + (size_t)head * N, R + (size_t)head * N, row0, col0, N, NK, scale,
                   causal);
        __syncthreads();  // dS is there
        // BEGIN SOLUTION
        #pragma unroll 4
        for (int j = 0; j < TILE; ++j) {
            float s[2] = {tS[y * LP + j], tS[(y + 1) * LP + j]};
            for (int c = 0; c < D / 32; ++c) {
                float k[4];
                *(float4 *)k = *(float4 *)(tK + j * LD + 4 * x + 32 * c);
                for (int e = 0; e < 4; ++e) {
                    q[0][c][e] += s[0] * k[e];
                    q[1][c][e] += s[1] * k[e];
                }
            }
        }
        // END SOLUTION
    }
    #pragma unroll
    for (int i = 0; i < 2; ++i)
        #pragma unroll
        for (int c = 0; c < D / 32; ++c)
            if (row0 + y + i < N)
                *(float4 *)(dQ + of_head + (size_t)(row0 + y + i) * D + 4 * x + 32 * c) = *(float4 *)q[i][c];
}

// All tensors begin on 16 bytes.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
attention_backward_keys(float *dK, float *dV, const float *Q, const float *K, const float *V, const float *L,
                        const float *dO, const float *R, int group, int N, int NK, int D, float scale, int causal)
{
    scale = scale == 0.0f ? 1.0f / sqrtf(D) : scale;
    if (D == 32)
        keys<32>(dK, dV, Q, K, V, L, dO, R, group, N, NK, scale, causal);
    else if (D == 64)
        keys<64>(dK, dV, Q, K, V, L, dO, R, group, N, NK, scale, causal);
    else
        keys<128>(dK, dV, Q, K, V, L, dO, R, group, N, NK, scale, causal);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
attention_backward_queries(float *dQ, const float *Q, const float *K, const float *V, const float *L, const float *dO,
                           const float *R, int group, int N, int NK, int D, float scale, int causal)
{
    scale = scale == 0.0f ? 1.0f / sqrtf(D) : scale;
    if (D == 32)
        queries<32>(dQ, Q, K, V, L, dO, R, group, N, NK, scale, causal);
    else if (D == 64)
        queries<64>(dQ, Q, K, V, L, dO, R, group, N, NK, scale, causal);
    else
        queries<128>(dQ, Q, K, V, L, dO, R, group, N, NK, scale, causal);
}
