"""vector_add/one_thread: C[i] = A[i] + B[i] in float32, all of it by one thread.

The first rung: a program as for a CPU, with one loop. One lane of one warp of one multiprocessor works.
Watch: how long it takes, and how many lanes are active per instruction.
"""

from numba import cuda


@cuda.jit
def add_one_thread(C, A, B):
    ### BEGIN SOLUTION
    for i in range(C.shape[0]):
        C[i] = A[i] + B[i]
    ### END SOLUTION


def launch(C, A, B):
    add_one_thread[1, 1](C, A, B)
