// latency/both: W walks of `steps` hops through a table, a thread for every four walks.
//
// Against many_threads: a quarter of the threads, each with four independent loads. In flight are threads times
// loads per thread, and memory does not care which of the two it is.
// Watch: warps fall; the time stays.
//
// launch walk_both<<<((W + 1023) / 1024), (256), 0>>>(place, table, start, N, W, steps)

constexpr int THREADS = 256;
constexpr int EACH = 4;  // walks per thread

extern "C" __global__ void walk_both(int *place, const int *table, const int *start, int N, int W, int steps)
{
    int first = blockIdx.x * EACH * blockDim.x + threadIdx.x;  // then one block's width further on
    // BEGIN SOLUTION
    int p[EACH];  // indexed by constants once the loops are unrolled: registers
    for (int k = 0; k < EACH; ++k)
        p[k] = start[min(first + k * THREADS, W - 1)] % N;  // past the end: the last walk once more
    #pragma unroll 1
    for (int s = 0; s < steps; ++s)
        for (int k = 0; k < EACH; ++k)
            p[k] = table[p[k]];
    for (int k = 0; k < EACH; ++k)
        if (first + k * THREADS < W)
            place[first + k * THREADS] = p[k];
    // END SOLUTION
}
