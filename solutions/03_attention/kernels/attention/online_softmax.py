"""attention/online_softmax: O = softmax(scale Q K^T) V and L in float32, one kernel, a warp per query.

Against tiled: no score is stored. A warp walks over the keys once and keeps three things of its query: the largest
score so far, the sum of exponentials relative to it, and their weighted sum of V. A larger score corrects both sums.
Each lane has every 32nd number of the head dimension. With causal, the walk ends at the query.
Watch: store sectors fall to those of O; the peak of memory no longer grows with N * NK. K and V are read per query.
"""

import math

import numpy as np
from numba import cuda, float32

WARPS = 8  # queries of a block, neighbors: what one loads is in the L1 for the others
PARTS = 4  # numbers of a row in a lane, at most: D is 128 or less
LOWEST = np.float32(-3.4028234663852886e38)  # and not -inf: exp(-inf - -inf) is NaN


@cuda.jit
def attention_online_softmax(O, L, Q, K, V, group, scale, causal):
    """group: query heads per key head."""
    N, NK, D = Q.shape[1], K.shape[1], Q.shape[2]
    tiles = (N + WARPS - 1) // WARPS
    head, lane = cuda.blockIdx.x // tiles, cuda.threadIdx.x % 32
    i = cuda.blockIdx.x % tiles * WARPS + cuda.threadIdx.x // 32
    if i >= N:
        return
    q = cuda.local.array(PARTS, float32)
    o = cuda.local.array(PARTS, float32)
    for e in range(PARTS):
        q[e] = Q[head, i, 32 * e + lane] * scale if 32 * e < D else float32(0)
        o[e] = float32(0)
    m, l = LOWEST, float32(0)
    keys = min(i + 1, NK) if causal else NK
    for j in range(keys):
        ### BEGIN SOLUTION
        s = float32(0)
        for e in range(PARTS):
            if 32 * e < D:
                s += q[e] * K[head // group, j, 32 * e + lane]
        for d in (16, 8, 4, 2, 1):
            s += cuda.shfl_xor_sync(0xFFFFFFFF, s, d)
        largest = max(m, s)
        correction, p = math.exp(m - largest), math.exp(s - largest)
        l = l * correction + p
        for e in range(PARTS):
            if 32 * e < D:
                o[e] = o[e] * correction + p * V[head // group, j, 32 * e + lane]
        m = largest
        ### END SOLUTION
    for e in range(PARTS):
        if 32 * e < D:
            O[head, i, 32 * e + lane] = o[e] / l if l > 0 else float32(0)  # a row of -inf has no sum
    if lane == 0:
        L[head, i] = m + math.log(l) if l > 0 else float32(-math.inf)


def launch(out, Q, K, V, scale=0.0, causal=0):
    O, L = out
    (B, H, N, D), (_, HK, NK, _) = Q.shape, K.shape
    Q, O, L = Q.view(B * H, N, D), O.view(B * H, N, D), L.view(B * H, N)
    K, V = K.view(B * HK, NK, D), V.view(B * HK, NK, D)
    scale = np.float32(scale or 1 / math.sqrt(D))
    grid = (N + WARPS - 1) // WARPS * B * H
    attention_online_softmax[grid, 32 * WARPS](O, L, Q, K, V, H // HK, scale, causal)
