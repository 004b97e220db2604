"""vector_add/one_block: C[i] = A[i] + B[i] in float32, by the 1024 threads of one block.

Against one_thread: the threads take turns. Thread t takes element t, then t + 1024, and so on, so that the
lanes of a warp always stand side by side. All of it still happens on one multiprocessor.
Watch: active lanes per instruction; load requests fall 32-fold.
"""

from numba import cuda


@cuda.jit
def add_one_block(C, A, B):
    ### BEGIN SOLUTION
    for i in range(cuda.threadIdx.x, C.shape[0], cuda.blockDim.x):
        C[i] = A[i] + B[i]
    ### END SOLUTION


def launch(C, A, B):
    add_one_block[1, 1024](C, A, B)
