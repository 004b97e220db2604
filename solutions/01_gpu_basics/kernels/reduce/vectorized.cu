// reduce/vectorized: y[0] = sum of x[N] in float32, many numbers per thread.
//
// Against shuffle: there are at most 1056 blocks, 8 for each of 132 multiprocessors. They stride over x together, and
// a thread adds what it meets in a register; shuffles are needed only once, at the end. A thread asks for 4 pieces of
// 16 bytes before it uses the first. A second launch of one block adds the blocks' sums; the order depends on N alone.
// Watch: instructions per number fall far; bytes in flight rise, and with them the bandwidth.
//
// workspace partial float32 (min(BLOCKS, (N + 4095) / 4096))
// launch reduce_vectorized<<<(min(BLOCKS, (N + 4095) / 4096)), (BLOCK), 0>>>(partial, x, N)
// launch reduce_vectorized<<<(1), (BLOCK), 0>>>(y, partial, min(BLOCKS, (N + 4095) / 4096))

constexpr int BLOCK = 256;
constexpr int WARPS = BLOCK / 32;
constexpr int PIECES = 4;                  // of 4 numbers, asked for at once
constexpr int BLOCKS = 1056;
constexpr int EACH = 4 * PIECES * BLOCK;   // numbers that a block takes per turn

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

extern "C" __global__ void __launch_bounds__(BLOCK, 8) reduce_vectorized(float *partial, const float *x, int N)
{
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
    if (t == 0)
        partial[blockIdx.x] = value;
}
