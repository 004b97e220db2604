"""latency/both: W walks of `steps` hops through a table, a thread for every four walks.

Against many_threads: a quarter of the threads, each with four independent loads. In flight are threads times
loads per thread, and memory does not care which of the two it is.
Watch: warps fall; the time stays.
"""

from numba import cuda, int32

THREADS = 256
EACH = 4  # walks per thread


@cuda.jit
def walk_both(place, table, start, steps):
    W = place.shape[0]
    first = cuda.blockIdx.x * EACH * cuda.blockDim.x + cuda.threadIdx.x  # then one block's width further on
    ### BEGIN SOLUTION
    p = cuda.local.array(EACH, int32)  # indexed by constants once the loops are unrolled: registers
    for k in range(EACH):
        p[k] = start[min(first + k * THREADS, W - 1)] % table.shape[0]  # past the end: the last walk once more
    for _ in range(steps):
        for k in range(EACH):
            p[k] = table[p[k]]
    for k in range(EACH):
        if first + k * THREADS < W:
            place[first + k * THREADS] = p[k]
    ### END SOLUTION


def launch(place, table, start, steps=16):
    blocks = (place.shape[0] + EACH * THREADS - 1) // (EACH * THREADS)
    walk_both[blocks, THREADS](place, table, start, steps)
