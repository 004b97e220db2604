"""matvec/thread_per_row: y[m] = sum over k of W[m, k] * x[k], W float16, all else float32; one thread per row.

The first rung, and yalm's: a thread goes along its row alone. The lanes of a warp read a whole row apart, and a model
has only thousands of rows where a GPU has places for hundreds of thousands of threads.
Watch: sectors per load request; warps per multiprocessor.
"""

from numba import cuda, float32

THREADS = 256


@cuda.jit
def matvec_thread_per_row(y, W, x):
    M, K = W.shape
    ### BEGIN SOLUTION
    row = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if row < M:
        total = float32(0)
        for k in range(K):
            total += float32(W[row, k]) * x[k]
        y[row] = total
    ### END SOLUTION


def launch(y, W, x):
    blocks = (y.shape[0] + THREADS - 1) // THREADS
    matvec_thread_per_row[blocks, THREADS](y, W, x)
