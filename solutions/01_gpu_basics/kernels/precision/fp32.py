"""precision/fp32: y[i] = max(x[i], 0) in float32, one number per thread.

The first rung, the lecture's ReLU: one operation per number, and 8 bytes moved for it.
Watch: sectors per request (l1tex__average_t_sectors_per_request_..._op_ld.ratio).
"""

from numba import cuda, float32


@cuda.jit
def precision_fp32(y, x):
    i = cuda.grid(1)
    ### BEGIN SOLUTION
    if i < y.shape[0]:
        y[i] = max(x[i], float32(0))
    ### END SOLUTION


def launch(y, x):
    precision_fp32[(y.shape[0] + 255) // 256, 256](y, x)
