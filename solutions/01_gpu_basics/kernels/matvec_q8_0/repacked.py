"""matvec_q8_0/repacked: y[m] = sum of D[m, b] Q[m, i] x[i], quants and scales apart; x rounded to 8 bits; a warp per
row.

Against dp4a: the quants of a row lie side by side in Q and start on 16 bytes, so that a lane reads 16 of them at once,
half a block; scales are in D, 16 to 32 bytes. x is taken apart in the same way, its scales kept in float32. A warp has
four steps of 512 weights on the way.
Watch: load requests; bytes on the way per lane.
"""

import math

import torch
from numba import cuda, float32, int8, int32

import labkit as lk

WARPS = 4
THREADS = WARPS * 32


@cuda.jit(device=True)
def warp_sum(v):
    """The sum over all lanes, in lane 0."""
    far = 16
    while far > 0:
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, far)
        far //= 2
    return v


@cuda.jit
def quantize(xq, xd, x):
    """One thread per number; a warp has just one block of 32."""
    k = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if k >= x.shape[0]:
        return
    largest = abs(x[k])
    far = 16
    while far > 0:
        largest = max(largest, cuda.shfl_xor_sync(0xFFFFFFFF, largest, far))
        far //= 2
    d = largest / float32(127)
    xq[k] = int8(0) if d == 0 else int8(math.floor(x[k] / d + float32(0.5)))
    if k % 32 == 0:
        xd[k // 32] = d


@cuda.jit(device=True)
def dot16(w, u):
    """The exact sum of 16 products of quants, as float32."""
    products = lk.cuda.dp4a(w[0], u[0], int32(0))
    for i in range(1, 4):
        products = lk.cuda.dp4a(w[i], u[i], products)
    return float32(products)


@cuda.jit
def repacked_matvec(y, Q, D, xq, xd, M, K):
    lane = cuda.threadIdx.x % 32
    row = cuda.blockIdx.x * WARPS + cuda.threadIdx.x // 32
    if row >= M:
        return
    total = float32(0)
    ### BEGIN SOLUTION
    begin = row * K
    scales = row * (K // 32)
    k = lane * 16
    while k + 1536 < K:  # four steps at once: all loads of Q and D first
        w0 = lk.cuda.load16(Q, begin + k)
        w1 = lk.cuda.load16(Q, begin + k + 512)
        w2 = lk.cuda.load16(Q, begin + k + 1024)
        w3 = lk.cuda.load16(Q, begin + k + 1536)
        b = k // 32
        d0 = float32(D[scales + b]) * xd[b]
        d1 = float32(D[scales + b + 16]) * xd[b + 16]
        d2 = float32(D[scales + b + 32]) * xd[b + 32]
        d3 = float32(D[scales + b + 48]) * xd[b + 48]
        total += d0 * dot16(w0, lk.cuda.load16(xq, k))
        total += d1 * dot16(w1, lk.cuda.load16(xq, k + 512))
        total += d2 * dot16(w2, lk.cuda.load16(xq, k + 1024))
        total += d3 * dot16(w3, lk.cuda.load16(xq, k + 1536))
        k += 2048
    while k < K:
        products = dot16(lk.cuda.load16(Q, begin + k), lk.cuda.load16(xq, k))
        total += float32(D[scales + k // 32]) * xd[k // 32] * products
        k += 512
    ### END SOLUTION
    total = warp_sum(total)
    if lane == 0:
        y[row] = total


def launch(y, W, Q, D, x):
    M, K = Q.shape
    xq = y.new_empty(K, dtype=torch.int8)
    xd = y.new_empty(K // 32)
    quantize[(K + 255) // 256, 256](xq, xd, x)
    repacked_matvec[(M + WARPS - 1) // WARPS, THREADS](y, Q.reshape(-1), D.reshape(-1), xq, xd, M, K)
