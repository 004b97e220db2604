// attention/tiled: O = softmax(scale Q K^T) V and L in float32, both products from tiles in shared memory.
//
// Against naive: a block owns 16 x 16 elements of a product and takes its factors by tiles: each number that it loads
// from global memory serves 16 threads. The scores still go through memory.
// Watch: global load requests fall; sectors of the softmax stay.
//
// workspace S float32 (B, H, N, NK)
// launch attention_tiled_scores<<<((NK + 15) / 16 * (B * H), (N + 15) / 16), (16, 16), 0>>>(S, Q, K,
//     H / HK, N, NK, D, scale, causal)
// launch attention_tiled_softmax<<<(B * H * N), (32), 0>>>(S, L, NK)
// launch attention_tiled_values<<<(D / 16 * (B * H), (N + 15) / 16), (16, 16), 0>>>(O, S, V, H / HK, N, NK, D)

constexpr int TILE = 16;
#define INF __int_as_float(0x7f800000)

// group: query heads per key head. D is a multiple of TILE.
extern "C" __global__ void attention_tiled_scores(float *S, const float *Q, const float *K, int group, int N, int NK,
                                                  int D, float scale, int causal)
{
    __shared__ float tQ[TILE][TILE + 1], tK[TILE][TILE + 1];  // a column of tK is read across rows: 17 banks apart
    int tiles = (NK + TILE - 1) / TILE, head = blockIdx.x / tiles, x = threadIdx.x, y = threadIdx.y;
    int i = blockIdx.y * TILE + y, j0 = blockIdx.x % tiles * TILE;
    Q += (size_t)head * N * D;
    K += (size_t)(head / group) * NK * D;
    float s = 0.0f;
    // BEGIN SOLUTION
    for (int d0 = 0; d0 < D; d0 += TILE) {
        tQ[y][x] = i < N ? Q[(size_t)i * D + d0 + x] : 0.0f;
        tK[y][x] = j0 + y < NK ? K[(size_t)(j0 + y) * D + d0 + x] : 0.0f;
        __syncthreads();  // the tiles are there
        for (int d = 0; d < TILE; ++d)
            s += tQ[y][d] * tK[x][d];
        __syncthreads();  // nobody reads them any more
    }
    // END SOLUTION
    int j = j0 + x;
    s *= scale == 0.0f ? 1.0f / sqrtf(D) : scale;
    if (i < N && j < NK)
        S[((size_t)head * N + i) * NK + j] = causal && j > i ? -INF : s;
}

extern "C" __global__ void attention_tiled_softmax(float *S, float *L, int NK)
{
    float *s = S + (size_t)blockIdx.x * NK;
    float m = -3.402823466e38f, l = 0.0f;  // and not -inf: exp(-inf - -inf) is NaN
    for (int j = threadIdx.x; j < NK; j += 32)
        m = fmaxf(m, s[j]);
    for (int d = 16; d > 0; d /= 2)
        m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, d));
    for (int j = threadIdx.x; j < NK; j += 32)
        l += expf(s[j] - m);
    for (int d = 16; d > 0; d /= 2)
        l += __shfl_xor_sync(0xffffffff, l, d);
    for (int j = threadIdx.x; j < NK; j += 32)
        s[j] = l > 0.0f ? expf(s[j] - m) / l : 0.0f;  // a row of -inf has no sum
    if (threadIdx.x == 0)
        L[blockIdx.x] = m + logf(l);
}

extern "C" __global__ void attention_tiled_values(float *O, const float *S, const float *V, int group, int N, int NK,
                                                  int D)
{
    __shared__ float tP[TILE][TILE], tV[TILE][TILE];
    int tiles = D / TILE, head = blockIdx.x / tiles, x = threadIdx.x, y = threadIdx.y;
    int i = blockIdx.y * TILE + y, d = blockIdx.x % tiles * TILE + x;
    S += (size_t)head * N * NK;
    V += (size_t)(head / group) * NK * D;
    float o = 0.0f;
    // BEGIN SOLUTION
    for (int j0 = 0; j0 < NK; j0 += TILE) {
        tP[y][x] = i < N && j0 + x < NK ? S[(size_t)i * NK + j0 + x] : 0.0f;
        tV[y][x] = j0 + y < NK ? V[(size_t)(j0 + y) * D + d] : 0.0f;
        __syncthreads();  // the tiles of P and V are there
        for (int j = 0; j < TILE; ++j)
            o += tP[y][j] * tV[j][x];
        __syncthreads();  // nobody reads P and V any more
    }
    // END SOLUTION
    if (i < N)
        O[((size_t)head * N + i) * D + d] = o;
}
