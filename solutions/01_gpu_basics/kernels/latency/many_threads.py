"""latency/many_threads: W walks of `steps` hops through a table, a thread for each walk.

Against one_thread: while one warp waits for memory, the multiprocessor runs others that need not wait. This is
thread-level parallelism, what GPUs are built for.
Watch: warps; the time, now that tens of thousands of loads are in flight.
"""

from numba import cuda

THREADS = 256


@cuda.jit
def walk_many_threads(place, table, start, steps):
    ### BEGIN SOLUTION
    w = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if w < place.shape[0]:
        p = start[w] % table.shape[0]
        for _ in range(steps):
            p = table[p]
        place[w] = p
    ### END SOLUTION


def launch(place, table, start, steps=16):
    blocks = (place.shape[0] + THREADS - 1) // THREADS
    walk_many_threads[blocks, THREADS](place, table, start, steps)
