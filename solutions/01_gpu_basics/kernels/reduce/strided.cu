// reduce/strided: y[0] = sum of x[N] in float32, one number per thread, a tree in shared memory.
//
// Against interleaved: the same additions, given to other threads. In the step s, the first 128 / s threads add, side
// by side, so that whole warps work and whole warps rest; thread t takes the pair that begins at 2 s t.
// Watch: divergent branches fall; the words that a warp reads at once now lie 2 s apart, and bank conflicts appear.
//
// workspace p1 float32 ((N + 255) / 256)
// workspace p2 float32 ((N + 65535) / 65536)
// workspace p3 float32 ((N + 16777215) / 16777216)
// launch reduce_strided<<<((N + 255) / 256), (BLOCK), 0>>>(p1, x, N)
// launch reduce_strided<<<((N + 65535) / 65536), (BLOCK), 0>>>(p2, p1, (N + 255) / 256)
// launch reduce_strided<<<((N + 16777215) / 16777216), (BLOCK), 0>>>(p3, p2, (N + 65535) / 65536)
// launch reduce_strided<<<(1), (BLOCK), 0>>>(y, p3, (N + 16777215) / 16777216)

constexpr int BLOCK = 256;

extern "C" __global__ void reduce_strided(float *partial, const float *x, int N)
{
    __shared__ float sums[BLOCK];
    int t = threadIdx.x;
    size_t i = (size_t)blockIdx.x * BLOCK + t;
    sums[t] = i < N ? x[i] : 0.0f;
    __syncthreads();  // nobody adds before all numbers are there
    // BEGIN SOLUTION
    for (int s = 1; s < BLOCK; s *= 2) {
        // Thread t owns the t-th pair of this step.
        int j = 2 * s * t;
        if (j < BLOCK)
            sums[j] += sums[j + s];
        __syncthreads();  // the next step reads what this one wrote
    }
    // END SOLUTION
    if (t == 0)
        partial[blockIdx.x] = sums[0];
}
