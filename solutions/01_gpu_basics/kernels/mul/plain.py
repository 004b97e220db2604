"""mul/plain: dst[r, c] = x[r, c] * y[c] in float32, one thread per number, in blocks of 256.

The first rung, and llama.cpp's own: the numbers of x are counted through, and the remainder by C finds the column.
Watch: load requests, half of which are for y, the same row again and again.
"""

from numba import cuda

THREADS = 256


@cuda.jit
def mul_plain(dst, x, y):
    ### BEGIN SOLUTION
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < x.shape[0]:
        dst[i] = x[i] * y[i % y.shape[0]]
    ### END SOLUTION


def launch(dst, x, y):
    blocks = (x.numel() + THREADS - 1) // THREADS
    mul_plain[blocks, THREADS](dst.reshape(-1), x.reshape(-1), y)
