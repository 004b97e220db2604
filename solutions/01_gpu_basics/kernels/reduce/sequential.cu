// reduce/sequential: y[0] = sum of x[N] in float32, one number per thread, a tree in shared memory.
//
// Against strided: other pairs. In the step s = 128, 64 ... 1, the second half of what is left is added to the first
// half, so that neighboring threads read neighboring words.
// Watch: bank conflicts are gone, and divergent branches stay few.
//
// workspace p1 float32 ((N + 255) / 256)
// workspace p2 float32 ((N + 65535) / 65536)
// workspace p3 float32 ((N + 16777215) / 16777216)
// launch reduce_sequential<<<((N + 255) / 256), (BLOCK), 0>>>(p1, x, N)
// launch reduce_sequential<<<((N + 65535) / 65536), (BLOCK), 0>>>(p2, p1, (N + 255) / 256)
// launch reduce_sequential<<<((N + 16777215) / 16777216), (BLOCK), 0>>>(p3, p2, (N + 65535) / 65536)
// launch reduce_sequential<<<(1), (BLOCK), 0>>>(y, p3, (N + 16777215) / 16777216)

constexpr int BLOCK = 256;

extern "C" __global__ void reduce_sequential(float *partial, const float *x, int N)
{
    __shared__ float sums[BLOCK];
    int t = threadIdx.x;
    size_t i = (size_t)blockIdx.x * BLOCK + t;
    sums[t] = i < N ? x[i] : 0.0f;
    __syncthreads();  // nobody adds before all numbers are there
    // BEGIN SOLUTION
    for (int s = BLOCK / 2; s > 0; s /= 2) {
        // Thread t owns sums[t], and adds the number that lies half of the rest further on.
        if (t < s)
            sums[t] += sums[t + s];
        __syncthreads();  // the next step reads what this one wrote
    }
    // END SOLUTION
    if (t == 0)
        partial[blockIdx.x] = sums[0];
}
