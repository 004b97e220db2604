"""divergence/sorted: y[i] = x[i] after rounds[i] rounds of the formula of kind[i]; float32, kind and rounds int32.

Against select: a block of 256 threads takes 1024 items and sorts their numbers by length, by counting, in shared
memory. Then neighboring lanes take neighbors of the sorted list, and their loops end nearly together.
Watch: active lanes per instruction; the price is the sort, and loads of x and kind that are no longer in order.
"""

from numba import cuda, float32, int32

STEP = float32(1 / 1024)
THREADS = 256
ITEMS = 1024
BINS = 256  # one per length; all that are longer share the last


@cuda.jit
def divergence_sorted(y, x, kind, rounds):
    N = y.shape[0]
    start = cuda.shared.array(BINS, int32)
    order = cuda.shared.array(ITEMS, int32)
    t = cuda.threadIdx.x
    first = cuda.blockIdx.x * ITEMS
    count = min(ITEMS, N - first)
    start[t] = 0
    cuda.syncthreads()  # nobody counts before all bins are zero
    for j in range(t, count, THREADS):
        cuda.atomic.add(start, min(rounds[first + j], BINS - 1), 1)
    cuda.syncthreads()  # all items are counted
    # Thread t owns bin t. Its sum of the bins up to t grows by doubling distances.
    mine = start[t]
    below = int32(0)
    distance = 1
    while distance < BINS:
        if t >= distance:
            below = start[t - distance]
        cuda.syncthreads()  # everybody has read this round's sums
        if t >= distance:
            start[t] += below
        cuda.syncthreads()  # and written the next round's
        distance *= 2
    start[t] -= mine  # where the bin begins in the sorted list
    cuda.syncthreads()  # everybody's bin has its place
    ### BEGIN SOLUTION
    for j in range(t, count, THREADS):
        place = cuda.atomic.add(start, min(rounds[first + j], BINS - 1), 1)
        order[place] = first + j
    cuda.syncthreads()  # the list is complete
    for place in range(t, count, THREADS):
        i = order[place]
        z = x[i]
        p = STEP if kind[i] == 0 else float32(0)
        q = float32(0) if kind[i] == 0 else -STEP
        for _ in range(rounds[i]):
            z += z * (p + q * z)
        y[i] = z
    ### END SOLUTION


def launch(y, x, kind, rounds):
    divergence_sorted[(y.shape[0] + ITEMS - 1) // ITEMS, THREADS](y, x, kind, rounds)
