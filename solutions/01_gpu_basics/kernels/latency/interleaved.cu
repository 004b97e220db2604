// latency/interleaved: W walks of `steps` hops through a table, one thread, eight walks side by side.
//
// Against one_thread: eight loads that do not depend on each other are started before any of them is needed. This
// is instruction-level parallelism; it costs registers, and no thread.
// Watch: the time per hop; the number of loads stays.
//
// launch walk_interleaved<<<(1), (1), 0>>>(place, table, start, N, W, steps)

constexpr int SIDE_BY_SIDE = 8;

extern "C" __global__ void walk_interleaved(int *place, const int *table, const int *start, int N, int W, int steps)
{
    for (int w = 0; w < W; w += SIDE_BY_SIDE) {
        int p[SIDE_BY_SIDE];  // indexed by constants once the loops are unrolled: registers
        for (int k = 0; k < SIDE_BY_SIDE; ++k)
            p[k] = start[min(w + k, W - 1)] % N;  // past the end: the last walk once more
        // BEGIN SOLUTION
        #pragma unroll 1
        for (int s = 0; s < steps; ++s)
            for (int k = 0; k < SIDE_BY_SIDE; ++k)
                p[k] = table[p[k]];
        for (int k = 0; k < SIDE_BY_SIDE; ++k)
            if (w + k < W)
                place[w + k] = p[k];
        // END SOLUTION
    }
}
