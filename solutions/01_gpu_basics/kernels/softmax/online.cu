// softmax/online: y[r, c] = exp(x[r, c] - max) / sum in float32, one block per row.
//
// Against three_pass: the largest and the sum are found in one pass. A thread keeps the largest number so far, and the
// sum of exponentials relative to it; when a larger one comes, the sum is corrected. Two such pairs merge likewise.
// Watch: global load sectors fall; instructions rise, for every number now takes two exponentials in the first pass.
//
// launch softmax_online<<<(rows), (THREADS), 0>>>(y, x, cols)

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr float LOWEST = -3.402823466e38f;  // and not -inf: exp(-inf - -inf) is NaN

// The largest of some numbers, and the sum of their exponentials relative to it.
struct Pair {
    float m, s;
};

__device__ Pair merge(Pair a, Pair b)
{
    float largest = fmaxf(a.m, b.m), s = a.s;
    // BEGIN SOLUTION
    s = a.s * expf(a.m - largest) + b.s * expf(b.m - largest);
    // END SOLUTION
    return {largest, s};
}

__device__ Pair from_lane(Pair p, int d)
{
    return {__shfl_xor_sync(0xffffffff, p.m, d), __shfl_xor_sync(0xffffffff, p.s, d)};
}

extern "C" __global__ void softmax_online(float *y, const float *x, int cols)
{
    __shared__ Pair slots[WARPS];
    const float *from = x + (size_t)blockIdx.x * cols;
    float *to = y + (size_t)blockIdx.x * cols;
    int t = threadIdx.x;
    Pair p = {LOWEST, 0.0f};
    // BEGIN SOLUTION
    for (int c = t; c < cols; c += THREADS)
        p = merge(p, {from[c], 1.0f});  // a number by itself: the largest, and exp(0)
    // END SOLUTION
    for (int d = 16; d > 0; d /= 2)
        p = merge(p, from_lane(p, d));
    if (t % 32 == 0)
        slots[t / 32] = p;
    __syncthreads();  // all warps' pairs are there
    p = slots[t % WARPS];
    for (int d = WARPS / 2; d > 0; d /= 2)
        p = merge(p, from_lane(p, d));
    for (int c = t; c < cols; c += THREADS)
        to[c] = expf(from[c] - p.m) / p.s;
}
