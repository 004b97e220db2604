"""copy/unrolled: B[i] = A[offset + stride * i] in float32, four times four elements per thread.

Against vectorized: a thread starts four loads before it stores anything. None of them waits for another, so
that four times as many bytes are under way from as many threads.
Watch: registers per thread; the time, where threads alone do not put enough bytes in flight.
"""

from numba import cuda

import labkit as lk

THREADS = 256
LOADS = 4
STEP = 4 * THREADS  # from one access of a thread to its next: the block's threads stand side by side in each
BLOCK = LOADS * STEP  # elements per block


@cuda.jit
def copy_unrolled(B, A, offset, stride, wide):
    t = cuda.threadIdx.x
    first = cuda.blockIdx.x * BLOCK
    if wide and first + BLOCK <= B.shape[0]:
        ### BEGIN SOLUTION
        i = first + 4 * t
        a = lk.cuda.load4(A, offset + i)
        b = lk.cuda.load4(A, offset + i + STEP)
        c = lk.cuda.load4(A, offset + i + 2 * STEP)
        d = lk.cuda.load4(A, offset + i + 3 * STEP)
        lk.cuda.store4(B, i, a)
        lk.cuda.store4(B, i + STEP, b)
        lk.cuda.store4(B, i + 2 * STEP, c)
        lk.cuda.store4(B, i + 3 * STEP, d)
        ### END SOLUTION
    else:
        for i in range(first + t, min(first + BLOCK, B.shape[0]), THREADS):
            B[i] = A[offset + stride * i]


def launch(B, A, offset=0, stride=1):
    wide = stride == 1 and (A.data_ptr() + 4 * offset) % 16 == 0 and B.data_ptr() % 16 == 0
    copy_unrolled[(B.shape[0] + BLOCK - 1) // BLOCK, THREADS](B, A, offset, stride, wide)
