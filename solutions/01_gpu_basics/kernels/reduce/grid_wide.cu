// reduce/grid_wide: y[0] = sum of x[N] in float32, in one launch.
//
// Against vectorized: no second launch. Each block leaves its sum, then takes a ticket; the one that gets the last
// ticket knows that all sums are there, and adds them. Which block that is differs from run to run, the order of its
// additions does not: the result depends on N and x alone. (An atomic addition per block would be shorter, and not
// repeatable.) The tickets begin at 0 again by themselves; launches that overlap, on two streams, must not share them.
// Watch: launches, and the time of a short x, which is mostly launching.
//
// workspace partial float32 (min(BLOCKS, (N + 4095) / 4096))
// launch reduce_grid_wide<<<(min(BLOCKS, (N + 4095) / 4096)), (BLOCK), 0>>>(y, x, partial, N)

constexpr int BLOCK = 256;
constexpr int WARPS = BLOCK / 32;
constexpr int PIECES = 4;                  // of 4 numbers, asked for at once
constexpr int BLOCKS = 1056;
constexpr int EACH = 4 * PIECES * BLOCK;   // numbers that a block takes per turn

__device__ unsigned int tickets = 0;      // taken in this launch

// The sum over the threads of the block, in thread 0.
__device__ float block_sum(float value)
{
    __shared__ float sums[WARPS];
    int t = threadIdx.x;
    for (int d = 16; d > 0; d /= 2)
        value += __shfl_down_sync(0xffffffff, value, d);
    if (t % 32 == 0)
        sums[t / 32] = value;
    __syncthreads();  // warp 0 reads what the others wrote
    if (t < 32) {
        value = t < WARPS ? sums[t] : 0.0f;
        for (int d = WARPS / 2; d > 0; d /= 2)
            value += __shfl_down_sync(0xffffffff, value, d);
    }
    return value;
}

extern "C" __global__ void __launch_bounds__(BLOCK, 8)
reduce_grid_wide(float *y, const float *x, float *partial, int N)
{
    __shared__ bool last;
    int t = threadIdx.x;
    float value = 0.0f;
    size_t whole = (size_t)x % 16 == 0 ? (size_t)N / EACH * EACH : 0;
    // BEGIN SOLUTION
    // Whole turns in pieces of 16 bytes: thread t owns the pieces t, t + BLOCK ... of its block's turn.
    for (size_t i = (size_t)blockIdx.x * EACH + 4 * t; i < whole; i += (size_t)gridDim.x * EACH) {
        float4 v[PIECES];
        for (int k = 0; k < PIECES; ++k)
            v[k] = *((const float4 *)(x + i) + k * BLOCK);
        for (int k = 0; k < PIECES; ++k)
            value += (v[k].x + v[k].y) + (v[k].z + v[k].w);
    }
    // END SOLUTION
    // What is left is less than a turn, or, where x does not start on 16 bytes, everything.
    for (size_t i = whole + (size_t)blockIdx.x * BLOCK + t; i < N; i += (size_t)gridDim.x * BLOCK)
        value += x[i];
    value = block_sum(value);
    // BEGIN SOLUTION
    if (t == 0) {
        partial[blockIdx.x] = value;
        __threadfence();  // the sum is seen by all before the ticket is
        last = atomicInc(&tickets, gridDim.x - 1) == gridDim.x - 1;  // the last one sets it back to 0
    }
    __syncthreads();  // all threads know; and nobody uses block_sum's memory any more
    if (last) {
        __threadfence();  // what follows sees what came before the other tickets
        value = 0.0f;
        for (int i = t; i < gridDim.x; i += BLOCK)
            value += __ldcg(partial + i);  // from the L2, where other blocks' stores are
        value = block_sum(value);
        if (t == 0)
            y[0] = value;
    }
    // END SOLUTION
}
