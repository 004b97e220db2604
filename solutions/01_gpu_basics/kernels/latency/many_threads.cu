// latency/many_threads: W walks of `steps` hops through a table, a thread for each walk.
//
// Against one_thread: while one warp waits for memory, the multiprocessor runs others that need not wait. This is
// thread-level parallelism, what GPUs are built for.
// Watch: warps; the time, now that tens of thousands of loads are in flight.
//
// launch walk_many_threads<<<((W + 255) / 256), (256), 0>>>(place, table, start, N, W, steps)

extern "C" __global__ void walk_many_threads(int *place, const int *table, const int *start, int N, int W, int steps)
{
    // BEGIN SOLUTION
    int w = blockIdx.x * blockDim.x + threadIdx.x;
    if (w < W) {
        int p = start[w] % N;
        #pragma unroll 1
        for (int s = 0; s < steps; ++s)
            p = table[p];
        place[w] = p;
    }
    // END SOLUTION
}
