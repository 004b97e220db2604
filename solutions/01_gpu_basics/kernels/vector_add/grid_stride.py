"""vector_add/grid_stride: C[i] = A[i] + B[i] in float32, by a grid of fixed size that goes over everything.

Against grid: the number of threads no longer depends on N. Each takes an element, then the one that lies as
far on as there are threads in the grid, and so on: one launch serves any length.
Watch: instructions per element; the time hardly moves.
"""

from numba import cuda

THREADS = 256
MOST_BLOCKS = 1056  # 8 for each of 132 multiprocessors: as many as are resident at once on an H200


@cuda.jit
def add_grid_stride(C, A, B):
    ### BEGIN SOLUTION
    first = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for i in range(first, C.shape[0], cuda.gridDim.x * cuda.blockDim.x):
        C[i] = A[i] + B[i]
    ### END SOLUTION


def launch(C, A, B):
    blocks = min((C.shape[0] + 4 * THREADS - 1) // (4 * THREADS), MOST_BLOCKS)  # about 4 elements each, or more
    add_grid_stride[blocks, THREADS](C, A, B)
