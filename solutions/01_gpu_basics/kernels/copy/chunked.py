"""copy/chunked: B[i] = A[offset + stride * i] in float32, 32 neighboring elements per thread.

The first rung, divided up as one would on a CPU: every thread has a piece of its own and walks through it.
Watch: sectors per global load request (l1tex__average_t_sectors_per_request_..._op_ld.ratio).
"""

from numba import cuda

THREADS = 256
CHUNK = 32


@cuda.jit
def copy_chunked(B, A, offset, stride):
    first = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) * CHUNK
    ### BEGIN SOLUTION
    for i in range(first, min(first + CHUNK, B.shape[0])):
        B[i] = A[offset + stride * i]
    ### END SOLUTION


def launch(B, A, offset=0, stride=1):
    blocks = (B.shape[0] + THREADS * CHUNK - 1) // (THREADS * CHUNK)
    copy_chunked[blocks, THREADS](B, A, offset, stride)
