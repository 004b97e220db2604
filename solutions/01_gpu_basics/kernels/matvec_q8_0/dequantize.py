"""matvec_q8_0/dequantize: y[m] = sum of d q[i] x[i] over the blocks of row m; W in block_q8_0, a block of one warp per
row.

The first rung, and llama.cpp's dequantize_mul_mat_vec: a lane widens two neighboring weights to float32, scale times
quant, and multiplies them with two numbers of x. Arithmetic is as without quantization; only less is read.
block_q8_0 is 34 bytes: a float16 scale d, then 32 signed bytes q.
Watch: load requests per weight; instructions per weight.

W comes twice: as signed bytes, 34 to a block, and as float16, 17 to a block, the first of which is the scale.
"""

import torch
from numba import cuda, float32


@cuda.jit(device=True)
def warp_sum(v):
    """The sum over all lanes, in lane 0."""
    far = 16
    while far > 0:
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, far)
        far //= 2
    return v


@cuda.jit
def dequantize_matvec(y, bytes_of, halves_of, x):
    K = x.shape[0]
    row = cuda.blockIdx.x
    lane = cuda.threadIdx.x
    total = float32(0)
    ### BEGIN SOLUTION
    for k in range(2 * lane, K, 64):
        block = k // 32
        d = float32(halves_of[row, block * 17])
        at = block * 34 + 2 + k % 32
        total += d * float32(bytes_of[row, at]) * x[k]
        total += d * float32(bytes_of[row, at + 1]) * x[k + 1]
    ### END SOLUTION
    total = warp_sum(total)
    if lane == 0:
        y[row] = total


def launch(y, W, Q, D, x):
    dequantize_matvec[y.shape[0], 32](y, W.view(torch.int8), W.view(torch.float16), x)
