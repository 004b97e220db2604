// softmax/three_pass: y[r, c] = exp(x[r, c] - max) / sum in float32, one block per row.
//
// The first rung, as the formula reads: a pass over the row for the largest number, one for the sum, one to write.
// The largest is subtracted so that no exponential overflows. -inf gives 0.
// Watch: global load sectors; the row is read three times.
//
// launch softmax_three_pass<<<(rows), (THREADS), 0>>>(y, x, cols)

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
#define NOTHING (-__int_as_float(0x7f800000))  // -inf: the largest of no numbers

// `op` over the block's values, in every thread. Each use has slots of its own, by the type of `op`: nothing would
// order the stores of a second use after the loads of the first.
template <typename Op> __device__ float over_block(float value, Op op)
{
    __shared__ float slots[WARPS];
    int t = threadIdx.x;
    for (int d = 16; d > 0; d /= 2)
        value = op(value, __shfl_xor_sync(0xffffffff, value, d));
    if (t % 32 == 0)
        slots[t / 32] = value;
    __syncthreads();  // all warps' results are there
    value = slots[t % WARPS];
    for (int d = WARPS / 2; d > 0; d /= 2)
        value = op(value, __shfl_xor_sync(0xffffffff, value, d));
    return value;
}

extern "C" __global__ void softmax_three_pass(float *y, const float *x, int cols)
{
    const float *from = x + (size_t)blockIdx.x * cols;
    float *to = y + (size_t)blockIdx.x * cols;
    auto larger = [](float a, float b) { return fmaxf(a, b); };
    auto add = [](float a, float b) { return a + b; };
    // BEGIN SOLUTION
    // Thread t owns the columns t, t + THREADS ... in every pass.
    float largest = NOTHING;
    for (int c = threadIdx.x; c < cols; c += THREADS)
        largest = fmaxf(largest, from[c]);
    largest = over_block(largest, larger);
    float total = 0.0f;
    for (int c = threadIdx.x; c < cols; c += THREADS)
        total += expf(from[c] - largest);
    total = over_block(total, add);
    for (int c = threadIdx.x; c < cols; c += THREADS)
        to[c] = expf(from[c] - largest) / total;
    // END SOLUTION
}
