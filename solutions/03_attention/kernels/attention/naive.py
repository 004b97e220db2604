"""attention/naive: O = softmax(scale Q K^T) V and L in float32, the formula word by word.

Three kernels: one thread per score; one warp per row of scores for its softmax; one thread per element of O. The scores
of all heads lie in memory between them, N x NK numbers per head.
Watch: load and store sectors; the peak of memory.
"""

import math

import numpy as np
from numba import cuda, float32

LOWEST = np.float32(-3.4028234663852886e38)  # and not -inf: exp(-inf - -inf) is NaN
ALL = 0xFFFFFFFF


@cuda.jit
def attention_naive_scores(S, Q, K, group, scale, causal):
    """group: query heads per key head."""
    N, NK, D = Q.shape[1], K.shape[1], Q.shape[2]
    tiles = (NK + 15) // 16
    head = cuda.blockIdx.x // tiles
    i = cuda.blockIdx.y * 16 + cuda.threadIdx.y
    j = cuda.blockIdx.x % tiles * 16 + cuda.threadIdx.x
    if i >= N or j >= NK:
        return
    s = float32(0)
    ### BEGIN SOLUTION
    for d in range(D):
        s += Q[head, i, d] * K[head // group, j, d]
    s *= scale
    if causal and j > i:
        s = float32(-math.inf)
    ### END SOLUTION
    S[head, i, j] = s


@cuda.jit
def attention_naive_softmax(S, L):
    N, NK = S.shape[1], S.shape[2]
    head, i = cuda.blockIdx.x // N, cuda.blockIdx.x % N
    t = cuda.threadIdx.x
    m, l = LOWEST, float32(0)
    ### BEGIN SOLUTION
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
    ### END SOLUTION
    if t == 0:
        L[head, i] = m + math.log(l) if l > 0 else float32(-math.inf)


@cuda.jit
def attention_naive_values(O, S, V, group):
    N, NK, D = O.shape[1], V.shape[1], O.shape[2]
    tiles = D // 32
    head = cuda.blockIdx.x // tiles
    i = cuda.blockIdx.y * 8 + cuda.threadIdx.y
    d = cuda.blockIdx.x % tiles * 32 + cuda.threadIdx.x
    if i >= N:
        return
    o = float32(0)
    ### BEGIN SOLUTION
    for j in range(NK):
        o += S[head, i, j] * V[head // group, j, d]
    ### END SOLUTION
    O[head, i, d] = o


def launch(out, Q, K, V, scale=0.0, causal=0):
    O, L = out
    (B, H, N, D), (_, HK, NK, _) = Q.shape, K.shape
    S = O.new_empty((B * H, N, NK))
    Q, O, L = Q.view(B * H, N, D), O.view(B * H, N, D), L.view(B * H, N)
    K, V = K.view(B * HK, NK, D), V.view(B * HK, NK, D)
    scale = np.float32(scale or 1 / math.sqrt(D))
    attention_naive_scores[((NK + 15) // 16 * B * H, (N + 15) // 16), (16, 16)](S, Q, K, H // HK, scale, causal)
    attention_naive_softmax[B * H * N, 32](S, L)
    attention_naive_values[(D // 32 * B * H, (N + 7) // 8), (32, 8)](O, S, V, H // HK)
