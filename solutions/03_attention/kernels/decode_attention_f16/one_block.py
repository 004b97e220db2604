"""decode_attention_f16/one_block: O[b, h] = softmax(Q[b, h] K[b, :, g]^T / sqrt(D)) V[b, :, g] in float16, sums in
float32; a block per sequence and query head.

The first rung on a batch. A row of the cache is D / 8 pieces of 16 bytes, so that D / 8 lanes share a token and a warp
has 2 or 4 tokens at a time; these lanes are a team. A team takes 4 tokens per turn, asks for all of their keys and
values first, and keeps its own online softmax. The teams' results are put together in shared memory.
Watch: blocks; waves.
"""

import functools
import math

import numpy as np
from numba import cuda, float32
from numba.cuda.types import float16

import labkit as lk

THREADS = 128
EACH = 4  # tokens of a team per turn
LOWEST = np.float32(-1e30)  # below any score; and not -inf: -inf - -inf is NaN
ALL = 0xFFFFFFFF


@functools.cache
def kernel_for(D):
    """The kernel for a head size."""
    LANES = D // 8
    TEAMS = THREADS // LANES
    SCALE2 = np.float32(1.4426950408889634 / math.sqrt(D))  # exp(x) is exp2(x log2(e))

    @cuda.jit
    def decode_one_block(O, Q, K, V, lengths, T, HKV):
        """O: [B, HQ, D]; Q, K, V: all numbers in a row."""
        outs = cuda.shared.array((TEAMS, D), float32)
        mosts = cuda.shared.array(TEAMS, float32)
        totals = cuda.shared.array(TEAMS, float32)
        k = cuda.local.array((EACH, 8), float32)
        v = cuda.local.array((EACH, 8), float32)
        s = cuda.local.array(EACH, float32)
        o = cuda.local.array(8, float32)
        h, b, thread = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
        HQ, length = cuda.gridDim.x, lengths[b]
        team, lane = thread // LANES, thread % LANES
        q = lk.cuda.load8(Q, (b * HQ + h) * D + 8 * lane)
        first = (b * T * HKV + h // (HQ // HKV)) * D + 8 * lane  # of token 0
        most, total = LOWEST, float32(0)
        for i in range(8):
            o[i] = float32(0)
        for t0 in range(0, length, EACH * TEAMS):  # all threads take as many turns: shuffles need whole warps
            ### BEGIN SOLUTION
            for e in range(EACH):
                t = t0 + e * TEAMS + team
                for i in range(8):
                    k[e, i] = float32(0)
                    v[e, i] = float32(0)
                if t < length:
                    key = lk.cuda.load8(K, first + t * HKV * D)
                    value = lk.cuda.load8(V, first + t * HKV * D)
                    for i in range(8):
                        k[e, i], v[e, i] = key[i], value[i]
            top = most
            for e in range(EACH):
                score = float32(0)
                for i in range(8):
                    score += q[i] * k[e, i]
                far = LANES // 2
                while far > 0:
                    score += cuda.shfl_xor_sync(ALL, score, far)
                    far //= 2
                s[e] = score * SCALE2 if t0 + e * TEAMS + team < length else float32(-math.inf)
                top = max(top, s[e])
            shrink = lk.cuda.exp2_approx(most - top)
            most = top
            total *= shrink
            for i in range(8):
                o[i] *= shrink
            for e in range(EACH):
                p = lk.cuda.exp2_approx(s[e] - most)
                total += p
                for i in range(8):
                    o[i] += p * v[e, i]
            ### END SOLUTION
        for i in range(8):
            outs[team, 8 * lane + i] = o[i]
        if lane == 0:
            mosts[team] = most
            totals[team] = total
        cuda.syncthreads()  # each team's are there
        if thread < D:
            number = float32(0)
            total = float32(0)
            for i in range(TEAMS):
                most = max(most, mosts[i])
            for i in range(TEAMS):
                times = lk.cuda.exp2_approx(mosts[i] - most)
                total += times * totals[i]
                number += times * outs[i, thread]
            O[b, h, thread] = float16(number / total if total > 0 else float32(0))  # no keys, no sum

    return decode_one_block


def launch(O, Q, K, V, lengths, splits=0):
    (B, HQ, D), (_, T, HKV, _) = Q.shape, K.shape
    kernel_for(D)[(HQ, B), THREADS](O, *(t.view(-1) for t in (Q, K, V)), lengths, T, HKV)
