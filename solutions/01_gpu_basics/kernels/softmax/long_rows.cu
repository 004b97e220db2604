// softmax/long_rows: y[r, c] = exp(x[r, c] - max) / sum in float32, several blocks per row.
//
// Against vectorized: a few long rows would keep only a few multiprocessors busy. Here a row is cut into chunks of
// 4096 numbers, one block each. Each leaves the pair (largest, sum relative to it) of its chunk; a second kernel merges
// the pairs of the row, each block for itself, and writes its chunk.
// Watch: multiprocessors in use; the row is read twice again, and a long one is not in the L2 any more by then.
//
// workspace pairs float32 (rows * CHUNKS, 2)
// launch softmax_long_rows_pairs<<<(rows * CHUNKS), (THREADS), 0>>>(pairs, x, cols, CHUNKS)
// launch softmax_long_rows<<<(rows * CHUNKS), (THREADS), 0>>>(y, x, pairs, cols, CHUNKS)

#define CHUNKS ((cols + 4095) / 4096)       // of a row
constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int PIECES = 4;                   // of 4 numbers per thread
constexpr int CHUNK = THREADS * 4 * PIECES;
constexpr float LOWEST = -3.402823466e38f;  // and not -inf: exp(-inf - -inf) is NaN

// The largest of some numbers, and the sum of their exponentials relative to it.
struct Pair {
    float m, s;
};

__device__ Pair merge(Pair a, Pair b)
{
    float largest = fmaxf(a.m, b.m);
    return {largest, a.s * __expf(a.m - largest) + b.s * __expf(b.m - largest)};
}

// The pair of all threads of the block, in every one of them.
__device__ Pair over_block(Pair p)
{
    __shared__ Pair slots[WARPS];
    auto from_lane = [&](int d) -> Pair {
        return {__shfl_xor_sync(0xffffffff, p.m, d), __shfl_xor_sync(0xffffffff, p.s, d)};
    };
    for (int d = 16; d > 0; d /= 2)
        p = merge(p, from_lane(d));
    if (threadIdx.x % 32 == 0)
        slots[threadIdx.x / 32] = p;
    __syncthreads();  // all warps' pairs are there
    p = slots[threadIdx.x % WARPS];
    for (int d = WARPS / 2; d > 0; d /= 2)
        p = merge(p, from_lane(d));
    return p;
}

// 4 numbers from p on, of which the first `left` exist; -inf, which adds nothing, in place of the others.
__device__ __forceinline__ float4 load4(const float *p, int left, bool aligned)
{
    float none = -__int_as_float(0x7f800000);
    if (aligned && left >= 4)
        return *(const float4 *)p;
    return make_float4(left > 0 ? p[0] : none, left > 1 ? p[1] : none, left > 2 ? p[2] : none, left > 3 ? p[3] : none);
}

__device__ __forceinline__ void store4(float *p, float4 v, int left, bool aligned)
{
    if (aligned && left >= 4) {
        *(float4 *)p = v;
        return;
    }
    if (left > 0) p[0] = v.x;
    if (left > 1) p[1] = v.y;
    if (left > 2) p[2] = v.z;
    if (left > 3) p[3] = v.w;
}

extern "C" __global__ void softmax_long_rows_pairs(float *pairs, const float *x, int cols, int chunks)
{
    int row = blockIdx.x / chunks, begin = blockIdx.x % chunks * CHUNK, own = min(CHUNK, cols - begin);
    const float *from = x + (size_t)row * cols + begin;
    bool aligned = cols % 4 == 0 && (size_t)x % 16 == 0;
    Pair p = {LOWEST, 0.0f};
    // BEGIN SOLUTION
    float4 v[PIECES];
    for (int k = 0; k < PIECES; ++k) {
        int c = 4 * (threadIdx.x + k * THREADS);
        v[k] = load4(from + c, own - c, aligned);
    }
    for (int k = 0; k < PIECES; ++k)
        p.m = fmaxf(p.m, fmaxf(fmaxf(v[k].x, v[k].y), fmaxf(v[k].z, v[k].w)));
    for (int k = 0; k < PIECES; ++k)
        p.s += (__expf(v[k].x - p.m) + __expf(v[k].y - p.m)) + (__expf(v[k].z - p.m) + __expf(v[k].w - p.m));
    p = over_block(p);
    // END SOLUTION
    if (threadIdx.x == 0)
        ((Pair *)pairs)[blockIdx.x] = p;
}

extern "C" __global__ void softmax_long_rows(float *y, const float *x, const float *pairs, int cols, int chunks)
{
    int row = blockIdx.x / chunks, begin = blockIdx.x % chunks * CHUNK, own = min(CHUNK, cols - begin);
    const float *from = x + (size_t)row * cols + begin;
    float *to = y + (size_t)row * cols + begin;
    bool aligned = cols % 4 == 0 && (size_t)x % 16 == 0 && (size_t)y % 16 == 0;
    Pair p = {LOWEST, 0.0f};
    // BEGIN SOLUTION
    for (int k = threadIdx.x; k < chunks; k += THREADS)
        p = merge(p, ((const Pair *)pairs)[(size_t)row * chunks + k]);
    p = over_block(p);
    // END SOLUTION
    float f = 1.0f / p.s;
    float4 v[PIECES];
    for (int k = 0; k < PIECES; ++k) {
        int c = 4 * (threadIdx.x + k * THREADS);
        v[k] = load4(from + c, own - c, aligned);
    }
    for (int k = 0; k < PIECES; ++k) {
        int c = 4 * (threadIdx.x + k * THREADS);
        float4 e = make_float4(__expf(v[k].x - p.m), __expf(v[k].y - p.m), __expf(v[k].z - p.m), __expf(v[k].w - p.m));
        store4(to + c, make_float4(e.x * f, e.y * f, e.z * f, e.w * f), own - c, aligned);
    }
}
