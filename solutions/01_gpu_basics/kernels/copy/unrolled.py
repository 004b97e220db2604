"""copy/unrolled: B[i] = A[offset + stride * i] in float32, four elements per thread.

Against coalesced: a thread starts four loads before it stores anything. None of them waits for another, so that
four times as many bytes are in flight. In each of the four, the block's threads stand side by side.
Watch: the time; registers per thread. Requests and sectors stay.
"""

from numba import cuda

THREADS = 256
BLOCK = 4 * THREADS  # elements per block


@cuda.jit
def copy_unrolled(B, A, offset, stride):
    first = cuda.blockIdx.x * BLOCK
    i = first + cuda.threadIdx.x
    if first + BLOCK <= B.shape[0]:
        ### BEGIN SOLUTION
        a = A[offset + stride * i]
        b = A[offset + stride * (i + THREADS)]
        c = A[offset + stride * (i + 2 * THREADS)]
        d = A[offset + stride * (i + 3 * THREADS)]
        B[i] = a
        B[i + THREADS] = b
        B[i + 2 * THREADS] = c
        B[i + 3 * THREADS] = d
        ### END SOLUTION
    else:
        for j in range(i, B.shape[0], THREADS):
            B[j] = A[offset + stride * j]


def launch(B, A, offset=0, stride=1):
    copy_unrolled[(B.shape[0] + BLOCK - 1) // BLOCK, THREADS](B, A, offset, stride)
