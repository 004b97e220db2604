// softmax/one_sweep: y[r, c] = exp(x[r, c] - max) / sum in float32, rows of any length, through DRAM once.
//
// Against long_rows: one kernel does both halves, the second of them a little later. A block takes a ticket t, reads
// chunk t and leaves its pair (largest, sum); then it writes chunk t - LAG, whose row is complete by then, and whose
// numbers the L2 still has. The last block of a row to leave its pair merges them all and raises the row's flag.
// A block waits only for flags that blocks with earlier tickets raise, and these never wait before they have left
// their pairs: so all blocks end, however few run at once.
// Watch: DRAM bytes read fall to one pass; the second read is answered by the L2.
//
// workspace pairs float32 (rows * CHUNKS, 2)
// workspace totals float32 (rows, 2)
// workspace state int32 (2 * rows + 1)
// launch softmax_one_sweep_clear<<<((2 * rows + 256) / 256), (256), 0>>>(state, 2 * rows + 1)
// launch softmax_one_sweep<<<(rows * CHUNKS + LAG), (THREADS), 0>>>(
//     y, x, pairs, totals, state, rows, cols, CHUNKS, LAG)

#define CHUNKS ((cols + 4095) / 4096)                      // of a row
#define LAG (min(CHUNKS + AHEAD, rows * CHUNKS))           // a row, and about as many chunks as blocks run at once
constexpr int AHEAD = 1056;
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

// A pair that another block left: from the L2, where other blocks' stores are.
__device__ Pair pair_of(const float *pairs, size_t k)
{
    float2 p = __ldcg((const float2 *)pairs + k);
    return {p.x, p.y};
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
    __syncthreads();  // nobody reads the slots of an earlier use any more
    if (threadIdx.x % 32 == 0)
        slots[threadIdx.x / 32] = p;
    __syncthreads();  // all warps' pairs are there
    p = slots[threadIdx.x % WARPS];
    for (int d = WARPS / 2; d > 0; d /= 2)
        p = merge(p, from_lane(d));
    return p;
}

// 4 numbers from p on, of which the first `left` exist; -inf, which adds nothing, in place of the others.
template <bool AGAIN> __device__ __forceinline__ float4 load4(const float *p, int left, bool aligned)
{
    float none = -__int_as_float(0x7f800000);
    if (aligned && left >= 4)
        return AGAIN ? __ldcs((const float4 *)p) : __ldcg((const float4 *)p);  // the L2 may drop it : shall keep it
    return make_float4(left > 0 ? p[0] : none, left > 1 ? p[1] : none, left > 2 ? p[2] : none, left > 3 ? p[3] : none);
}

__device__ __forceinline__ void store4(float *p, float4 v, int left, bool aligned)
{
    if (aligned && left >= 4) {
        __stcs((float4 *)p, v);
        return;
    }
    if (left > 0) p[0] = v.x;
    if (left > 1) p[1] = v.y;
    if (left > 2) p[2] = v.z;
    if (left > 3) p[3] = v.w;
}

extern "C" __global__ void softmax_one_sweep_clear(int *state, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        state[i] = 0;
}

extern "C" __global__ void __launch_bounds__(THREADS, 6)
softmax_one_sweep(float *y, const float *x, float *pairs, float *totals, int *state, int rows, int cols, int chunks,
                  int lag)
{
    __shared__ int ticket;
    __shared__ bool last;
    int t = threadIdx.x;
    int *arrived = state + 1, *ready = state + 1 + rows;  // of each row: how many pairs are there; whether all are
    bool aligned = cols % 4 == 0 && (size_t)x % 16 == 0 && (size_t)y % 16 == 0;
    if (t == 0)
        ticket = atomicAdd(state, 1);
    __syncthreads();  // all know the ticket
    // BEGIN SOLUTION
    float4 v[PIECES];
    if (ticket < rows * chunks) {
        int row = ticket / chunks, begin = ticket % chunks * CHUNK, own = min(CHUNK, cols - begin);
        const float *from = x + (size_t)row * cols + begin;
        for (int k = 0; k < PIECES; ++k) {
            int c = 4 * (t + k * THREADS);
            v[k] = load4<false>(from + c, own - c, aligned);
        }
        Pair p = {LOWEST, 0.0f};
        for (int k = 0; k < PIECES; ++k)
            p.m = fmaxf(p.m, fmaxf(fmaxf(v[k].x, v[k].y), fmaxf(v[k].z, v[k].w)));
        for (int k = 0; k < PIECES; ++k)
            p.s += (__expf(v[k].x - p.m) + __expf(v[k].y - p.m)) + (__expf(v[k].z - p.m) + __expf(v[k].w - p.m));
        p = over_block(p);
        if (t == 0) {
            ((Pair *)pairs)[ticket] = p;
            __threadfence();  // the pair is seen by all before it is counted
            last = atomicAdd(&arrived[row], 1) == chunks - 1;
        }
        __syncthreads();  // all know whether the row is complete
        if (last) {
            __threadfence();  // what follows sees what came before the other counts
            p = {LOWEST, 0.0f};
            for (int k = t; k < chunks; k += THREADS)
                p = merge(p, pair_of(pairs, (size_t)row * chunks + k));
            p = over_block(p);
            if (t == 0) {
                ((Pair *)totals)[row] = {p.m, 1.0f / p.s};
                __threadfence();  // the total is seen by all before the flag is
                atomicExch(&ready[row], 1);
            }
        }
    }
    int unit = ticket - lag;
    if (unit >= 0) {
        int row = unit / chunks, begin = unit % chunks * CHUNK, own = min(CHUNK, cols - begin);
        size_t at = (size_t)row * cols + begin;
        for (int k = 0; k < PIECES; ++k) {
            int c = 4 * (t + k * THREADS);
            v[k] = load4<true>(x + at + c, own - c, aligned);
        }
        if (t == 0)
            while (atomicAdd(&ready[row], 0) == 0) {}
        __syncthreads();  // the row's total is there
        __threadfence();  // and seen
        Pair total = pair_of(totals, row);  // the largest, and the inverse of the sum
        float m = total.m, f = total.s;
        for (int k = 0; k < PIECES; ++k) {
            int c = 4 * (t + k * THREADS);
            float4 e = make_float4(__expf(v[k].x - m), __expf(v[k].y - m), __expf(v[k].z - m), __expf(v[k].w - m));
            store4(y + at + c, make_float4(e.x * f, e.y * f, e.z * f, e.w * f), own - c, aligned);
        }
    }
    // END SOLUTION
}
