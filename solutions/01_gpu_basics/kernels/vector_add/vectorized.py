"""vector_add/vectorized: C[i] = A[i] + B[i] in float32, four neighboring elements per thread.

Against grid: a thread loads and stores 16 bytes with one instruction. The same bytes travel, asked for in a
quarter of the requests, and each thread has twice 16 bytes in flight instead of twice 4.
Watch: load requests fall, sectors per request rise; bytes in flight per thread.
"""

from numba import cuda

import labkit as lk

THREADS = 256


@cuda.jit
def add_vectorized(C, A, B, aligned):
    N = C.shape[0]
    i = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) * 4
    ### BEGIN SOLUTION
    if aligned and i + 4 <= N:
        a = lk.cuda.load4(A, i)
        b = lk.cuda.load4(B, i)
        lk.cuda.store4(C, i, (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]))
    else:
        for k in range(i, min(i + 4, N)):
            C[k] = A[k] + B[k]
    ### END SOLUTION


def launch(C, A, B):
    aligned = all(X.data_ptr() % 16 == 0 for X in (A, B, C))  # a slice such as A[1:] is not
    blocks = (C.shape[0] + 4 * THREADS - 1) // (4 * THREADS)
    add_vectorized[blocks, THREADS](C, A, B, aligned)
