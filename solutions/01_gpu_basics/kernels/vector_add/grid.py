"""vector_add/grid: C[i] = A[i] + B[i] in float32, one thread per element.

Against one_block: as many blocks as it takes, spread over all multiprocessors. A thread finds its element
from the place of its block and its own place in that. The last block may reach past the end.
Watch: multiprocessors at work, and so the time; requests and sectors stay.
"""

from numba import cuda

THREADS = 256


@cuda.jit
def add_grid(C, A, B):
    ### BEGIN SOLUTION
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < C.shape[0]:
        C[i] = A[i] + B[i]
    ### END SOLUTION


def launch(C, A, B):
    blocks = (C.shape[0] + THREADS - 1) // THREADS
    add_grid[blocks, THREADS](C, A, B)
