"""latency/one_thread: W walks of `steps` hops through a table, one thread, one walk after the other.

The first rung: at any moment one load is in flight, and everything waits for it.
Watch: the time per hop. It is the latency of memory.
"""

from numba import cuda


@cuda.jit
def walk_one_thread(place, table, start, steps):
    ### BEGIN SOLUTION
    for w in range(place.shape[0]):
        p = start[w] % table.shape[0]
        for _ in range(steps):
            p = table[p]  # the next hop cannot begin before this one has arrived
        place[w] = p
    ### END SOLUTION


def launch(place, table, start, steps=16):
    walk_one_thread[1, 1](place, table, start, steps)
