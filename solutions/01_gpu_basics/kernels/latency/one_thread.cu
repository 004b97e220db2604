// latency/one_thread: W walks of `steps` hops through a table, one thread, one walk after the other.
//
// The first rung: at any moment one load is in flight, and everything waits for it.
// Watch: the time per hop. It is the latency of memory.
//
// launch walk_one_thread<<<(1), (1), 0>>>(place, table, start, N, W, steps)

extern "C" __global__ void walk_one_thread(int *place, const int *table, const int *start, int N, int W, int steps)
{
    // BEGIN SOLUTION
    for (int w = 0; w < W; ++w) {
        int p = start[w] % N;
        #pragma unroll 1
        for (int s = 0; s < steps; ++s)
            p = table[p];  // the next hop cannot begin before this one has arrived
        place[w] = p;
    }
    // END SOLUTION
}
