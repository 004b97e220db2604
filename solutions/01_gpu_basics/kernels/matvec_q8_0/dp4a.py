"""matvec_q8_0/dp4a: y[m] = sum of d q[i] x[i] over the blocks of row m; x rounded to block_q8_1, W in block_q8_0.

Against dequantize: x becomes 8-bit blocks too, once for all rows. Then one instruction, dp4a, multiplies 4 quants with
4 quants and adds the products up exactly, in int32; a float32 multiplication follows only once per 8 quants. As
llama.cpp does it: a lane takes 8 quants, 4 lanes a block, a warp 8 blocks at a time.
block_q8_0, 34 bytes: float16 d, 32 signed bytes. It starts on 2 bytes only, so that 4 quants come as two halves.
block_q8_1, 36 bytes: float16 d, float16 sum of the numbers (other formats need it), 32 signed bytes.
Watch: instructions per weight.

Blocks come several times over: as signed bytes, as float16 and as int16 (q8_0: 17 to a block) or int32 (q8_1: 9).
"""

import math

import torch
from numba import cuda, float32, int8, int32

import labkit as lk


@cuda.jit(device=True)
def warp_sum(v):
    """The sum over all lanes, in lane 0."""
    far = 16
    while far > 0:
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, far)
        far //= 2
    return v


@cuda.jit
def quantize_q8_1(xq_bytes, xq_halves, x):
    """One thread per number; a warp has just one block of 32."""
    k = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if k >= x.shape[0]:
        return
    block = k // 32
    ### BEGIN SOLUTION
    largest = abs(x[k])
    total = x[k]
    far = 16
    while far > 0:  # all lanes get both
        largest = max(largest, cuda.shfl_xor_sync(0xFFFFFFFF, largest, far))
        total += cuda.shfl_xor_sync(0xFFFFFFFF, total, far)
        far //= 2
    d = largest / float32(127)
    xq_bytes[block * 36 + 4 + k % 32] = int8(0) if d == 0 else int8(math.floor(x[k] / d + float32(0.5)))
    if k % 32 == 0:
        xq_halves[block * 18] = d
        xq_halves[block * 18 + 1] = total
    ### END SOLUTION


@cuda.jit
def dp4a_matvec(y, W_pairs, W_halves, xq_words, xq_halves, K):
    row = cuda.blockIdx.x
    lane = cuda.threadIdx.x
    total = float32(0)
    ### BEGIN SOLUTION
    for b in range(lane // 4, K // 32, 8):
        products = int32(0)
        for i in range(lane % 4 * 2, lane % 4 * 2 + 2):  # quants 4 i to 4 i + 3
            low = int32(W_pairs[row, b * 17 + 1 + 2 * i]) & int32(0xFFFF)
            high = int32(W_pairs[row, b * 17 + 2 + 2 * i]) << 16
            products = lk.cuda.dp4a(int32(low | high), xq_words[b * 9 + 1 + i], products)
        total += float32(W_halves[row, b * 17]) * float32(xq_halves[b * 18]) * float32(products)
    ### END SOLUTION
    total = warp_sum(total)
    if lane == 0:
        y[row] = total


def launch(y, W, Q, D, x):
    K = x.shape[0]
    xq = y.new_empty(K // 32 * 9, dtype=torch.int32)
    halves = xq.view(torch.float16)
    quantize_q8_1[(K + 255) // 256, 256](xq.view(torch.int8), halves, x)
    dp4a_matvec[y.shape[0], 32](y, W.view(torch.int16), W.view(torch.float16), xq, halves, K)
