// reduce/interleaved: y[0] = sum of x[N] in float32, one number per thread, a tree in shared memory.
//
// The first rung: a block adds up 256 numbers; the kernel is launched again on the blocks' sums. Four rounds do for
// every N that an int holds; for a short x the last ones copy one number. In the step s = 1, 2, 4 ... every
// (2 s)-th thread adds what lies s further on. The order of the additions depends on N alone.
// Watch: divergent branches; in every step but the last ones, each warp has lanes that add and lanes that do not.
//
// workspace p1 float32 ((N + 255) / 256)
// workspace p2 float32 ((N + 65535) / 65536)
// workspace p3 float32 ((N + 16777215) / 16777216)
// launch reduce_interleaved<<<((N + 255) / 256), (BLOCK), 0>>>(p1, x, N)
// launch reduce_interleaved<<<((N + 65535) / 65536), (BLOCK), 0>>>(p2, p1, (N + 255) / 256)
// launch reduce_interleaved<<<((N + 16777215) / 16777216), (BLOCK), 0>>>(p3, p2, (N + 65535) / 65536)
// launch reduce_interleaved<<<(1), (BLOCK), 0>>>(y, p3, (N + 16777215) / 16777216)

constexpr int BLOCK = 256;

extern "C" __global__ void reduce_interleaved(float *partial, const float *x, int N)
{
    __shared__ float sums[BLOCK];
    int t = threadIdx.x;
    size_t i = (size_t)blockIdx.x * BLOCK + t;
    sums[t] = i < N ? x[i] : 0.0f;
    __syncthreads();  // nobody adds before all numbers are there
    // BEGIN SOLUTION
    for (int s = 1; s < BLOCK; s *= 2) {
        // Thread t owns sums[t], which stands for the 2 s numbers from there on after this step.
        if (t % (2 * s) == 0)
            sums[t] += sums[t + s];
        __syncthreads();  // the next step reads what this one wrote
    }
    // END SOLUTION
    if (t == 0)
        partial[blockIdx.x] = sums[0];
}
