"""decode_attention/fused: O[h] = softmax(Q[h] K[:, g]^T / sqrt(D)) V[g], the cache in float16, all else float32.

Against five_kernels: one launch, a block per query head. The block takes 512 tokens at a time; their scores stay in
shared memory. It keeps the largest score so far and the sum of exponentials relative to it, and where a larger one
comes, what there is of O and of the sum shrinks. Masked tokens are not read at all.
Watch: launches; store sectors fall to those of O; but there are only HQ blocks.
"""

import math

import numpy as np
from numba import cuda, float32

WARPS = 8
CHUNK = 512
LOWEST = np.float32(-3.4028234663852886e38)  # and not -inf: exp(-inf - -inf) is NaN
ALL = 0xFFFFFFFF


@cuda.jit
def decode_attention_fused(O, Q, K, V, group, n_past, scale):
    """group: query heads per head of the cache."""
    q = cuda.shared.array(256, float32)
    o = cuda.shared.array(256, float32)
    s = cuda.shared.array(CHUNK, float32)
    tops = cuda.shared.array(WARPS, float32)
    sums = cuda.shared.array(WARPS, float32)
    h, thread = cuda.blockIdx.x, cuda.threadIdx.x
    g, lane, warp = h // group, thread % 32, thread // 32
    T, D = K.shape[0], K.shape[2]
    keys = T if n_past < 0 else min(T, n_past + 1)
    most, total = LOWEST, float32(0)  # of all tokens so far; the same in all threads
    if thread < D:
        q[thread] = Q[h, thread] * scale
        o[thread] = float32(0)
    cuda.syncthreads()  # all of q is there
    for t0 in range(0, keys, CHUNK):
        n = min(CHUNK, keys - t0)
        ### BEGIN SOLUTION
        # A warp per token; each warp remembers the largest of its scores.
        top = most
        for t in range(warp, n, WARPS):
            score = float32(0)
            for d in range(lane, D, 32):
                score += float32(K[t0 + t, g, d]) * q[d]
            for far in (16, 8, 4, 2, 1):
                score += cuda.shfl_xor_sync(ALL, score, far)
            top = max(top, score)
            if lane == 0:
                s[t] = score
        if lane == 0:
            tops[warp] = top
        cuda.syncthreads()  # all scores of the chunk are there, and each warp's largest
        for w in range(WARPS):
            top = max(top, tops[w])
        shrink, part = math.exp(most - top), float32(0)
        most = top
        for t in range(thread, n, 32 * WARPS):
            s[t] = math.exp(s[t] - most)
            part += s[t]
        for far in (16, 8, 4, 2, 1):
            part += cuda.shfl_xor_sync(ALL, part, far)
        if lane == 0:
            sums[warp] = part
        cuda.syncthreads()  # all weights are there, and each warp's sum
        total *= shrink
        for w in range(WARPS):
            total += sums[w]
        # A warp per number of O: its lanes go along the tokens, which lie side by side in V.
        for d in range(warp, D, WARPS):
            number = float32(0)
            for t in range(lane, n, 32):
                number += float32(V[g, d, t0 + t]) * s[t]
            for far in (16, 8, 4, 2, 1):
                number += cuda.shfl_xor_sync(ALL, number, far)
            if lane == 0:
                o[d] = o[d] * shrink + number
        cuda.syncthreads()  # nobody reads these weights any more
        ### END SOLUTION
    if thread < D:
        O[h, thread] = o[thread] / total if total > 0 else float32(0)  # a head without keys has no sum


def launch(O, Q, K, V, n_past=-1):
    (HQ, D), HKV = Q.shape, K.shape[1]
    decode_attention_fused[HQ, 32 * WARPS](O, Q, K, V, HQ // HKV, n_past, np.float32(1 / math.sqrt(D)))
