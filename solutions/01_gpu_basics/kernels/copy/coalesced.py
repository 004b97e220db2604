"""copy/coalesced: B[i] = A[offset + stride * i] in float32, one element per thread.

Against chunked: neighboring threads take neighboring elements, so that the lanes of a warp stand side by
side in memory and share sectors.
Watch: sectors per request, of loads and stores.
"""

from numba import cuda

THREADS = 256


@cuda.jit
def copy_coalesced(B, A, offset, stride):
    ### BEGIN SOLUTION
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < B.shape[0]:
        B[i] = A[offset + stride * i]
    ### END SOLUTION


def launch(B, A, offset=0, stride=1):
    blocks = (B.shape[0] + THREADS - 1) // THREADS
    copy_coalesced[blocks, THREADS](B, A, offset, stride)
