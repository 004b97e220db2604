"""copy/vectorized: B[i] = A[offset + stride * i] in float32, four neighboring elements per thread.

Against unrolled: a thread moves 16 bytes with one load and one store. That needs addresses that 16 divides; a
copy with a stride, an odd offset or an end in the middle of a block goes element by element.
Watch: load requests fall, sectors per request rise: the same bytes, asked for less often.
"""

from numba import cuda

import labkit as lk

THREADS = 256
BLOCK = 4 * THREADS  # elements per block


@cuda.jit
def copy_vectorized(B, A, offset, stride, wide):
    t = cuda.threadIdx.x
    first = cuda.blockIdx.x * BLOCK
    if wide and first + BLOCK <= B.shape[0]:
        ### BEGIN SOLUTION
        i = first + 4 * t
        lk.cuda.store4(B, i, lk.cuda.load4(A, offset + i))
        ### END SOLUTION
    else:
        for i in range(first + t, min(first + BLOCK, B.shape[0]), THREADS):
            B[i] = A[offset + stride * i]


def launch(B, A, offset=0, stride=1):
    wide = stride == 1 and (A.data_ptr() + 4 * offset) % 16 == 0 and B.data_ptr() % 16 == 0
    copy_vectorized[(B.shape[0] + BLOCK - 1) // BLOCK, THREADS](B, A, offset, stride, wide)
