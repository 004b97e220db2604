"""latency/interleaved: W walks of `steps` hops through a table, one thread, eight walks side by side.

Against one_thread: eight loads that do not depend on each other are started before any of them is needed. This
is instruction-level parallelism; it costs registers, and no thread.
Watch: the time per hop; the number of loads stays.
"""

from numba import cuda, int32

SIDE_BY_SIDE = 8


@cuda.jit
def walk_interleaved(place, table, start, steps):
    W = place.shape[0]
    p = cuda.local.array(SIDE_BY_SIDE, int32)  # indexed by constants once the loops are unrolled: registers
    for w in range(0, W, SIDE_BY_SIDE):
        for k in range(SIDE_BY_SIDE):
            p[k] = start[min(w + k, W - 1)] % table.shape[0]  # past the end: the last walk once more
        ### BEGIN SOLUTION
        for _ in range(steps):
            for k in range(SIDE_BY_SIDE):
                p[k] = table[p[k]]
        for k in range(SIDE_BY_SIDE):
            if w + k < W:
                place[w + k] = p[k]
        ### END SOLUTION


def launch(place, table, start, steps=16):
    walk_interleaved[1, 1](place, table, start, steps)
