"""decode_attention_f16/split_kv: O[b, h] = softmax(Q[b, h] K[b, :, g]^T / sqrt(D)) V[b, :, g] in float16, sums in
float32; a block per sequence, query head and piece of the tokens.

Against one_block: the tokens of a sequence are cut into pieces, so that even one sequence has blocks for the whole GPU.
A block leaves what it has of O, the largest of its scores and the sum of its weights; a second kernel puts the pieces
of a head together, each shrunk to the largest score of all. This is flash-decoding.
Watch: blocks; launches.
"""

import functools
import math

import numpy as np
import torch
from numba import cuda, float32
from numba.cuda.types import float16

import labkit as lk

BLOCKS = 1056  # to aim for: 8 on each of 132 multiprocessors
THREADS = 128
COMBINE = 512  # threads that put a head together
EACH = 4  # tokens of a team per turn
LOWEST = np.float32(-1e30)  # below any score; and not -inf: -inf - -inf is NaN
ALL = 0xFFFFFFFF


@functools.cache
def kernel_for(D):
    """The two kernels for a head size."""
    ROWS = COMBINE // D
    LANES = D // 8
    TEAMS = THREADS // LANES
    SCALE2 = np.float32(1.4426950408889634 / math.sqrt(D))  # exp(x) is exp2(x log2(e))

    @cuda.jit
    def decode_split_kv(parts, stats, Q, K, V, lengths, T, HKV):
        """parts: [B, HQ, splits, D]; stats: [B, HQ, splits, 2]; Q, K, V: all numbers in a row."""
        outs = cuda.shared.array((TEAMS, D), float32)
        mosts = cuda.shared.array(TEAMS, float32)
        totals = cuda.shared.array(TEAMS, float32)
        k = cuda.local.array((EACH, 8), float32)
        v = cuda.local.array((EACH, 8), float32)
        s = cuda.local.array(EACH, float32)
        o = cuda.local.array(8, float32)
        h, b, thread = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
        HQ, length = cuda.gridDim.x, lengths[b]
        piece = (length + cuda.gridDim.z - 1) // cuda.gridDim.z
        begin = min(length, cuda.blockIdx.z * piece)
        end = min(length, begin + piece)
        team, lane = thread // LANES, thread % LANES
        q = lk.cuda.load8(Q, (b * HQ + h) * D + 8 * lane)
        first = (b * T * HKV + h // (HQ // HKV)) * D + 8 * lane  # of token 0
        most, total = LOWEST, float32(0)
        for i in range(8):
            o[i] = float32(0)
        for t0 in range(begin, end, EACH * TEAMS):  # all threads take as many turns: shuffles need whole warps
            ### BEGIN SOLUTION
            for e in range(EACH):
                t = t0 + e * TEAMS + team
                for i in range(8):
                    k[e, i] = float32(0)
                    v[e, i] = float32(0)
                if t < end:
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
                s[e] = score * SCALE2 if t0 + e * TEAMS + team < end else float32(-math.inf)
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
            parts[b, h, cuda.blockIdx.z, thread] = number
            if thread == 0:
                stats[b, h, cuda.blockIdx.z, 0] = most
                stats[b, h, cuda.blockIdx.z, 1] = total

    @cuda.jit
    def decode_split_kv_combine(O, parts, stats):
        """A thread per number of O and every ROWS-th piece; then the first D threads put these together."""
        outs = cuda.shared.array((ROWS, D), float32)
        mosts = cuda.shared.array((ROWS, D), float32)
        totals = cuda.shared.array((ROWS, D), float32)
        h, b, d, y = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x, cuda.threadIdx.y
        most, total, number = LOWEST, float32(0), float32(0)
        ### BEGIN SOLUTION
        for i in range(y, parts.shape[2], ROWS):
            top = max(most, stats[b, h, i, 0])
            old, now = lk.cuda.exp2_approx(most - top), lk.cuda.exp2_approx(stats[b, h, i, 0] - top)
            total = total * old + stats[b, h, i, 1] * now
            number = number * old + parts[b, h, i, d] * now
            most = top
        ### END SOLUTION
        mosts[y, d] = most
        totals[y, d] = total
        outs[y, d] = number
        cuda.syncthreads()  # all threads' are there
        if y == 0:
            for i in range(1, ROWS):
                top = max(most, mosts[i, d])
                old, now = lk.cuda.exp2_approx(most - top), lk.cuda.exp2_approx(mosts[i, d] - top)
                total = total * old + totals[i, d] * now
                number = number * old + outs[i, d] * now
                most = top
            O[b, h, d] = float16(number / total if total > 0 else float32(0))  # no keys, no sum

    return decode_split_kv, decode_split_kv_combine


def launch(O, Q, K, V, lengths, splits=0):
    (B, HQ, D), (_, T, HKV, _) = Q.shape, K.shape
    splits = splits or max(1, min((T + 255) // 256, BLOCKS // (B * HQ)))
    parts = O.new_empty((B, HQ, splits, D), dtype=torch.float32)
    stats = O.new_empty((B, HQ, splits, 2), dtype=torch.float32)
    pieces, combine = kernel_for(D)
    pieces[(HQ, B, splits), THREADS](parts, stats, *(t.view(-1) for t in (Q, K, V)), lengths, T, HKV)
    combine[(HQ, B), (D, COMBINE // D)](O, parts, stats)
