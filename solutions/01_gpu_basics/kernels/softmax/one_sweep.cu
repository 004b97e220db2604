// softmax/one_sweep: y[r, c] = exp(x[r, c] - max) / sum in float32, rows of any length, through DRAM once.
//
// Against long_rows: one kernel does both halves, the second of them a little later, while the L2 still has the row.
// A block takes tickets. With ticket t it reads chunk t and leaves its pair (largest, sum), and it writes chunk
// t - LAG, whose row is complete by then. Who leaves the last pair of a row merges them all and raises the row's flag.
// A block waits only for the pairs of tickets before its own, so the one with the earliest never waits: all blocks end,
// however few run at once.
// Watch: DRAM bytes read fall to one pass; the second read is answered by the L2.
//
// workspace pairs float32 (rows * CHUNKS, 2)
// workspace totals float32 (rows, 2)
// workspace state int32 (2 * rows + 1)
// launch softmax_one_sweep_clear<<<((2 * rows + 256) / 256), (256), 0>>>(state, 2 * rows + 1)
// launch softmax_one_sweep<<<(min(BLOCKS, rows * CHUNKS)), (THREADS), 0>>>(
//     y, x, pairs, totals, state, rows, cols, CHUNKS, LAG)

#define CHUNKS ((cols + 4095) / 4096)                      // of a row
#define LAG (min(CHUNKS + BLOCKS, rows * CHUNKS))          // a row, and a chunk for each block
constexpr int BLOCKS = 528;                 // 4 for each of 132 multiprocessors
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

__device__ Pair from_lane(Pair p, int d)
{
    return {__shfl_xor_sync(0xffffffff, p.m, d), __shfl_xor_sync(0xffffffff, p.s, d)};
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

extern "C" __global__ void softmax_one_sweep_clear(int *state, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        state[i] = 0;
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
softmax_one_sweep(float *y, const float *x, float *pairs, float *totals, int *state, int rows, int cols, int chunks,
                  int lag)
{
    __shared__ Pair slots[2][WARPS];  // of this ticket, and of the one before, which some may still read
    __shared__ int tickets[2];
    int t = threadIdx.x, units = rows * chunks;
    int *arrived = state + 1, *ready = state + 1 + rows;  // of each row: how many pairs are there; whether all are
    bool aligned = cols % 4 == 0 && (size_t)x % 16 == 0 && (size_t)y % 16 == 0;
    // BEGIN SOLUTION
    if (t == 0)
        tickets[0] = atomicAdd(state, 1);  // less than the number of blocks, so less than LAG: nothing to write yet
    __syncthreads();  // all know it
    int turn = 0, ticket = tickets[0];
    while (ticket < units + lag) {
        int unit = ticket - lag;  // to write
        float4 a[PIECES], b[PIECES];
        int row_a = ticket / chunks, begin_a = ticket % chunks * CHUNK;
        int own_a = ticket < units ? min(CHUNK, cols - begin_a) : 0;
        for (int k = 0; k < PIECES; ++k) {
            int c = 4 * (t + k * THREADS);
            a[k] = load4(x + (size_t)row_a * cols + begin_a + c, own_a - c, aligned);
        }
        int row_b = max(unit, 0) / chunks, begin_b = max(unit, 0) % chunks * CHUNK;
        int own_b = unit >= 0 ? min(CHUNK, cols - begin_b) : 0;
        size_t at_b = (size_t)row_b * cols + begin_b;
        for (int k = 0; k < PIECES; ++k) {
            int c = 4 * (t + k * THREADS);
            b[k] = load4(x + at_b + c, own_b - c, aligned);
        }
        if (t == 32)
            tickets[turn ^ 1] = atomicAdd(state, 1);  // the next one
        // The pair of chunk `ticket`, in every thread of warp 0.
        Pair p = {LOWEST, 0.0f};
        for (int k = 0; k < PIECES; ++k)
            p.m = fmaxf(p.m, fmaxf(fmaxf(a[k].x, a[k].y), fmaxf(a[k].z, a[k].w)));
        for (int k = 0; k < PIECES; ++k)
            p.s += (__expf(a[k].x - p.m) + __expf(a[k].y - p.m)) + (__expf(a[k].z - p.m) + __expf(a[k].w - p.m));
        for (int d = 16; d > 0; d /= 2)
            p = merge(p, from_lane(p, d));
        if (t % 32 == 0)
            slots[turn][t / 32] = p;
        __syncthreads();  // all warps' pairs are there, the next ticket, and the total of the row to write
        if (t < 32 && ticket < units) {
            p = slots[turn][t % WARPS];
            for (int d = WARPS / 2; d > 0; d /= 2)
                p = merge(p, from_lane(p, d));
            int last = 0;
            if (t == 0) {
                ((Pair *)pairs)[ticket] = p;
                __threadfence();  // the pair is seen by all before it is counted
                last = atomicAdd(&arrived[row_a], 1) == chunks - 1;
                __threadfence();  // what follows sees what came before the other counts
            }
            __syncwarp();  // and so does what the other lanes read
            if (__shfl_sync(0xffffffff, last, 0)) {
                p = {LOWEST, 0.0f};
                #pragma unroll 8
                for (int k = t; k < chunks; k += 32)
                    p = merge(p, pair_of(pairs, (size_t)row_a * chunks + k));
                for (int d = 16; d > 0; d /= 2)
                    p = merge(p, from_lane(p, d));
                if (t == 0) {
                    ((Pair *)totals)[row_a] = {p.m, 1.0f / p.s};
                    __threadfence();  // the total is seen by all before the flag is
                    atomicExch(&ready[row_a], 1);
                }
            }
        }
        if (unit >= 0) {
            Pair total = pair_of(totals, row_b);  // the largest, and the inverse of the sum
            float m = total.m, f = total.s;
            for (int k = 0; k < PIECES; ++k) {
                int c = 4 * (t + k * THREADS);
                float4 e = make_float4(__expf(b[k].x - m), __expf(b[k].y - m), __expf(b[k].z - m), __expf(b[k].w - m));
                store4(y + at_b + c, make_float4(e.x * f, e.y * f, e.z * f, e.w * f), own_b - c, aligned);
            }
        }
        turn ^= 1;
        ticket = tickets[turn];
        if (t == 32 && ticket >= lag && ticket < units + lag) {  // the row to write next: complete?
            while (atomicAdd(&ready[(ticket - lag) / chunks], 0) == 0) {}
            __threadfence();  // who passes the next barrier sees the row's total
        }
    }
    // END SOLUTION
}
