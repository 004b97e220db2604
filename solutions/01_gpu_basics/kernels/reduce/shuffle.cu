// reduce/shuffle: y[0] = sum of x[N] in float32, one number per thread, added in registers.
//
// Against sequential: the lanes of a warp read each other's registers (`__shfl_down_sync`), without shared memory
// and without barriers. Only the sums of the 8 warps meet in shared memory, and warp 0 adds them.
// Watch: shared wavefronts and barriers fall; instructions do not, for all warps add in all lanes.
//
// workspace p1 float32 ((N + 255) / 256)
// workspace p2 float32 ((N + 65535) / 65536)
// workspace p3 float32 ((N + 16777215) / 16777216)
// launch reduce_shuffle<<<((N + 255) / 256), (BLOCK), 0>>>(p1, x, N)
// launch reduce_shuffle<<<((N + 65535) / 65536), (BLOCK), 0>>>(p2, p1, (N + 255) / 256)
// launch reduce_shuffle<<<((N + 16777215) / 16777216), (BLOCK), 0>>>(p3, p2, (N + 65535) / 65536)
// launch reduce_shuffle<<<(1), (BLOCK), 0>>>(y, p3, (N + 16777215) / 16777216)

constexpr int BLOCK = 256;
constexpr int WARPS = BLOCK / 32;

// The sum over the lanes of the warp, in lane 0; the other lanes hold sums of less.
__device__ float warp_sum(float value)
{
    // BEGIN SOLUTION
    for (int d = 16; d > 0; d /= 2)
        value += __shfl_down_sync(0xffffffff, value, d);
    // END SOLUTION
    return value;
}

extern "C" __global__ void reduce_shuffle(float *partial, const float *x, int N)
{
    __shared__ float sums[WARPS];
    int t = threadIdx.x;
    size_t i = (size_t)blockIdx.x * BLOCK + t;
    float value = i < N ? x[i] : 0.0f;
    // BEGIN SOLUTION
    value = warp_sum(value);
    if (t % 32 == 0)
        sums[t / 32] = value;
    __syncthreads();  // warp 0 reads what the others wrote
    if (t < 32)  // all of warp 0: a shuffle needs its lanes together
        value = warp_sum(t < WARPS ? sums[t] : 0.0f);
    // END SOLUTION
    if (t == 0)
        partial[blockIdx.x] = value;
}
