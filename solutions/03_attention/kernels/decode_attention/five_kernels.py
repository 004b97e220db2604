"""decode_attention/five_kernels: O[h] = softmax(Q[h] K[:, g]^T / sqrt(D)) V[g], cache in float16, all else float32.

The first rung, llama.cpp's: one kernel per operator, the scores in memory between them. A warp has one score, and its
lanes go along a row of K; later a warp has one number of O, and its lanes go along the tokens, which lie side by side
in V. The mask changes nothing where the new token is the last, and is launched all the same. (llama.cpp counts tokens
in the second dimension of the grid, which ends at 65,535; here it is the first.)
Watch: launches; store sectors.
"""

import math

import numpy as np
from numba import cuda, float32

LOWEST = np.float32(-3.4028234663852886e38)  # and not -inf: exp(-inf - -inf) is NaN
ALL = 0xFFFFFFFF


@cuda.jit(device=True)
def warp_sum(x):
    """The sum over the lanes of a warp, in all of them."""
    for far in (16, 8, 4, 2, 1):
        x += cuda.shfl_xor_sync(ALL, x, far)
    return x


@cuda.jit
def decode_attention_scores(S, Q, K, group):
    """group: query heads per head of the cache."""
    t, h, lane = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    total = float32(0)
    ### BEGIN SOLUTION
    for d in range(lane, Q.shape[1], 32):
        total += float32(K[t, h // group, d]) * Q[h, d]
    total = warp_sum(total)
    ### END SOLUTION
    if lane == 0:
        S[h, t] = total


@cuda.jit
def decode_attention_scale(S, scale):
    """S: all scores in a row."""
    i = cuda.grid(1)
    if i < S.shape[0]:
        S[i] *= scale


@cuda.jit
def decode_attention_mask(S, n_past):
    t, h = cuda.grid(1), cuda.blockIdx.y
    if t < S.shape[1]:
        S[h, t] = float32(-math.inf) if n_past >= 0 and t > n_past else S[h, t]


@cuda.jit
def decode_attention_softmax(S):
    h, lane, T = cuda.blockIdx.x, cuda.threadIdx.x, S.shape[1]
    most, total = LOWEST, float32(0)
    ### BEGIN SOLUTION
    for t in range(lane, T, 32):
        most = max(most, S[h, t])
    for far in (16, 8, 4, 2, 1):
        most = max(most, cuda.shfl_xor_sync(ALL, most, far))
    for t in range(lane, T, 32):
        total += math.exp(S[h, t] - most)
    total = warp_sum(total)
    for t in range(lane, T, 32):
        S[h, t] = math.exp(S[h, t] - most) / total if total > 0 else float32(0)  # a row of -inf has no sum
    ### END SOLUTION


@cuda.jit
def decode_attention_values(O, S, V, group):
    d, h, lane = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    total = float32(0)
    ### BEGIN SOLUTION
    for t in range(lane, S.shape[1], 32):
        total += float32(V[h // group, d, t]) * S[h, t]
    total = warp_sum(total)
    ### END SOLUTION
    if lane == 0:
        O[h, d] = total


def launch(O, Q, K, V, n_past=-1):
    (HQ, D), (T, HKV, _) = Q.shape, K.shape
    S = O.new_empty((HQ, T))
    decode_attention_scores[(T, HQ), 32](S, Q, K, HQ // HKV)
    decode_attention_scale[(HQ * T + 255) // 256, 256](S.view(-1), np.float32(1 / math.sqrt(D)))
    decode_attention_mask[((T + 31) // 32, HQ), 32](S, n_past)
    decode_attention_softmax[HQ, 32](S)
    decode_attention_values[(D, HQ), 32](O, S, V, HQ // HKV)
