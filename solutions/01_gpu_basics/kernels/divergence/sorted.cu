// divergence/sorted: y[i] = x[i] after rounds[i] rounds of the formula of kind[i]; float32, kind and rounds int32.
//
// Against select: a block of 256 threads takes 1024 items and sorts their numbers by length, by counting, in shared
// memory. Then neighboring lanes take neighbors of the sorted list, and their loops end nearly together.
// Watch: active lanes per instruction; the price is the sort, and loads of x and kind that are no longer in order.
//
// launch divergence_sorted<<<((N + ITEMS - 1) / ITEMS), (THREADS), 0>>>(y, x, kind, rounds, N)

constexpr float STEP = 1.0f / 1024.0f;
constexpr int THREADS = 256;
constexpr int ITEMS = 1024;
constexpr int BINS = 256;  // one per length; all that are longer share the last

extern "C" __global__ void divergence_sorted(float *y, const float *x, const int *kind, const int *rounds, int N)
{
    __shared__ int start[BINS];
    __shared__ int order[ITEMS];
    int t = threadIdx.x;
    int first = blockIdx.x * ITEMS;
    int count = min(ITEMS, N - first);
    start[t] = 0;
    __syncthreads();  // nobody counts before all bins are zero
    for (int j = t; j < count; j += THREADS)
        atomicAdd(&start[min(rounds[first + j], BINS - 1)], 1);
    __syncthreads();  // all items are counted
    // Thread t owns bin t. Its sum of the bins up to t grows by doubling distances.
    int mine = start[t];
    for (int distance = 1; distance < BINS; distance *= 2) {
        int below = t >= distance ? start[t - distance] : 0;
        __syncthreads();  // everybody has read this round's sums
        start[t] += below;
        __syncthreads();  // and written the next round's
    }
    start[t] -= mine;  // where the bin begins in the sorted list
    __syncthreads();   // everybody's bin has its place
    // BEGIN SOLUTION
    for (int j = t; j < count; j += THREADS) {
        int place = atomicAdd(&start[min(rounds[first + j], BINS - 1)], 1);
        order[place] = first + j;
    }
    __syncthreads();  // the list is complete
    for (int place = t; place < count; place += THREADS) {
        int i = order[place];
        float z = x[i];
        int n = rounds[i];
        float p = kind[i] == 0 ? STEP : 0.0f;
        float q = kind[i] == 0 ? 0.0f : -STEP;
        for (int k = 0; k < n; ++k)
            z += z * (p + q * z);
        y[i] = z;
    }
    // END SOLUTION
}
