"""matvec_q8_0/repacked: y[m] = sum of D[m, b] Q[m, i] x[i], quants and scales apart; x rounded to 8 bits; two rows per
warp.

Against dp4a: the quants of a row lie side by side in Q and start on 16 bytes, so that a lane reads 16 of them at once,
half a block; scales are in D. x is taken apart in the same way, its scales kept in float32, and serves two rows. Two
steps of 512 weights are in flight at once, and the launch bounds let the compiler take the registers for that.
Watch: load requests; bytes in flight per lane.
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


@cuda.jit(launch_bounds=(THREADS, 1))
def repacked_matvec(y, Q, D, xq, xd, M, K):
    lane = cuda.threadIdx.x % 32
    row = (cuda.blockIdx.x * WARPS + cuda.threadIdx.x // 32) * 2
    if row >= M:
        return
    next_row = min(row + 1, M - 1)  # a warp that has one row only takes it twice
    total = float32(0)
    total_next = float32(0)
    ### BEGIN SOLUTION
    q, q_next = row * K, next_row * K
    d, d_next = row * (K // 32), next_row * (K // 32)
    k = lane * 16
    while k + 512 < K:  # two steps at once: all loads of Q and D first
        a0 = lk.cuda.load16(Q, q + k)
        a1 = lk.cuda.load16(Q, q + k + 512)
        b0 = lk.cuda.load16(Q, q_next + k)
        b1 = lk.cuda.load16(Q, q_next + k + 512)
        b = k // 32
        s0 = float32(D[d + b])
        s1 = float32(D[d + b + 16])
        t0 = float32(D[d_next + b])
        t1 = float32(D[d_next + b + 16])
        u = lk.cuda.load16(xq, k)
        scale = xd[b]
        total += s0 * scale * dot16(a0, u)
        total_next += t0 * scale * dot16(b0, u)
        u = lk.cuda.load16(xq, k + 512)
        scale = xd[b + 16]
        total += s1 * scale * dot16(a1, u)
        total_next += t1 * scale * dot16(b1, u)
        k += 1024
    if k < K:
        u = lk.cuda.load16(xq, k)
        scale = xd[k // 32]
        total += float32(D[d + k // 32]) * scale * dot16(lk.cuda.load16(Q, q + k), u)
        total_next += float32(D[d_next + k // 32]) * scale * dot16(lk.cuda.load16(Q, q_next + k), u)
    ### END SOLUTION
    total = warp_sum(total)
    total_next = warp_sum(total_next)
    if lane == 0:
        y[row] = total
        if next_row > row:
            y[next_row] = total_next


def launch(y, W, Q, D, x):
    M, K = Q.shape
    xq = y.new_empty(K, dtype=torch.int8)
    xd = y.new_empty(K // 32)
    quantize[(K + 255) // 256, 256](xq, xd, x)
    repacked_matvec[(M + 2 * WARPS - 1) // (2 * WARPS), THREADS](y, Q.reshape(-1), D.reshape(-1), xq, xd, M, K)
