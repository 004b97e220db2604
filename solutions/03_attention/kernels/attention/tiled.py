"""attention/tiled: O = softmax(scale Q K^T) V and L in float32, both products from tiles in shared memory.

Against naive: a block owns 16 x 16 elements of a product and takes its factors by tiles: each number that it loads from
global memory serves 16 threads. The scores still go through memory.
Watch: global load requests fall; sectors of the softmax stay.
"""

import math

import numpy as np
from numba import cuda, float32

TILE, PADDED = 16, 17
LOWEST = np.float32(-3.4028234663852886e38)  # and not -inf: exp(-inf - -inf) is NaN
ALL = 0xFFFFFFFF


@cuda.jit
def attention_tiled_scores(S, Q, K, group, scale, causal):
    """group: query heads per key head. D is a multiple of TILE."""
    N, NK, D = Q.shape[1], K.shape[1], Q.shape[2]
    tQ = cuda.shared.array((TILE, PADDED), float32)
    tK = cuda.shared.array((TILE, PADDED), float32)  # a column of it is read across rows: 17 banks apart
    tiles = (NK + TILE - 1) // TILE
    head = cuda.blockIdx.x // tiles
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    i, j0 = cuda.blockIdx.y * TILE + y, cuda.blockIdx.x % tiles * TILE
    s = float32(0)
    ### BEGIN SOLUTION
    for d0 in range(0, D, TILE):
        tQ[y, x] = Q[head, i, d0 + x] if i < N else float32(0)
        tK[y, x] = K[head // group, j0 + y, d0 + x] if j0 + y < NK else float32(0)
        cuda.syncthreads()  # the tiles are there
        for d in range(TILE):
            s += tQ[y, d] * tK[x, d]
        cuda.syncthreads()  # nobody reads them any more
    ### END SOLUTION
    j = j0 + x
    if i < N and j < NK:
        S[head, i, j] = float32(-math.inf) if causal and j > i else s * scale


@cuda.jit
def attention_tiled_softmax(S, L):
    N, NK = S.shape[1], S.shape[2]
    head, i = cuda.blockIdx.x // N, cuda.blockIdx.x % N
    t = cuda.threadIdx.x
    m, l = LOWEST, float32(0)
    for j in range(t, NK, 32):
        m = max(m, S[head, i, j])
    for d in (16, 8, 4, 2, 1):
        m = max(m, cuda.shfl_xor_sync(ALL, m, d))
    for j in range(t, NK, 32):
        l += math.exp(S[head, i, j] - m)
    for d in (16, 8, 4, 2, 1):
        l += cuda.shfl_xor_sync(ALL, l, d)
    for j in range(t, NK, 32):
        S[head, i, j] = math.exp(S[head, i, j] - m) / l if l > 0 else float32(0)  # a row of -inf has no sum
    if t == 0:
        L[head, i] = m + math.log(l) if l > 0 else float32(-math.inf)


@cuda.jit
def attention_tiled_values(O, S, V, group):
    N, NK, D = O.shape[1], V.shape[1], O.shape[2]
    tP = cuda.shared.array((TILE, TILE), float32)
    tV = cuda.shared.array((TILE, TILE), float32)
    tiles = D // TILE
    head = cuda.blockIdx.x // tiles
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    i, d = cuda.blockIdx.y * TILE + y, cuda.blockIdx.x % tiles * TILE + x
    o = float32(0)
    ### BEGIN SOLUTION
    for j0 in range(0, NK, TILE):
        tP[y, x] = S[head, i, j0 + x] if i < N and j0 + x < NK else float32(0)
        tV[y, x] = V[head // group, j0 + y, d] if j0 + y < NK else float32(0)
        cuda.syncthreads()  # the tiles of P and V are there
        for j in range(TILE):
            o += tP[y, j] * tV[j, x]
        cuda.syncthreads()  # nobody reads P and V any more
    ### END SOLUTION
    if i < N:
        O[head, i, d] = o


def launch(out, Q, K, V, scale=0.0, causal=0):
    O, L = out
    (B, H, N, D), (_, HK, NK, _) = Q.shape, K.shape
    S = O.new_empty((B * H, N, NK))
    Q, O, L = Q.view(B * H, N, D), O.view(B * H, N, D), L.view(B * H, N)
    K, V = K.view(B * HK, NK, D), V.view(B * HK, NK, D)
    scale = np.float32(scale or 1 / math.sqrt(D))
    down, block = (N + TILE - 1) // TILE, (TILE, TILE)
    attention_tiled_scores[((NK + TILE - 1) // TILE * B * H, down), block](S, Q, K, H // HK, scale, causal)
    attention_tiled_softmax[B * H * N, 32](S, L)
    attention_tiled_values[(D // TILE * B * H, down), block](O, S, V, H // HK)
