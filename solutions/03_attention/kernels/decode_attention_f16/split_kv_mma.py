"""decode_attention_f16/split_kv_mma: O[b, h] = softmax(Q[b, h] K[b, :, g]^T / sqrt(D)) V[b, :, g] in float16, scores
and sums in float32; up to 16 query heads that share a head of the cache at once.

Against split_kv: the query heads of a group are the 16 rows of mma.m16n8k16, so that K and V are read once for all of
them; with fewer heads some rows idle, which costs nothing where memory is the limit. Each warp has tiles of 16 tokens
on their way by cp.async. The tiles of a sequence are shared out evenly among its pieces, and a second kernel puts the
pieces together. CUDA C++ cuts one line of all sequences' tiles instead, and has more bytes in flight: numba can ask for
48 KiB of shared memory per block.
Watch: load sectors; DRAM throughput; bytes in flight.
"""

import functools
import math

import numpy as np
import torch
from numba import cuda, float32, uint32
from numba.cuda.types import float16

import labkit as lk

BLOCKS = 528  # to aim for: 4 on each of 132 multiprocessors
WARPS, TOKENS, ROWS = 2, 16, 16
STAGES = 2  # one tile is used, one is on its way
ACROSS = 8  # warps that add up the parts of a head
LOWEST = np.float32(-1e30)  # below any score; and not -inf: -inf - -inf is NaN
ALL = 0xFFFFFFFF


@functools.cache
def kernel_for(D):
    """The two kernels for a head size."""
    TILE = TOKENS * D  # numbers
    SLICES, SUMS = D // 16, D // 8
    ROOM = STAGES * 2 * TILE
    TILES = WARPS * ROOM
    LINE = D + 8  # rows of results start 8 banks apart
    STEPS = TILE // 8 // 32  # copies of a lane for a tile
    SCALE2 = np.float32(1.4426950408889634 / math.sqrt(D))  # exp(x) is exp2(x log2(e))

    @cuda.jit(device=True, inline=True)
    def place(r, c):
        """Where 16-byte piece c of row r of a tile lies: 8 rows at the same c fill the 128 bytes of the banks once."""
        return r * D + (c ^ r % 8) * 8

    @cuda.jit(device=True)
    def start(tiles, room, K, V, first, step, t0, length, lane):
        """Start copying the rows t0 .. t0 + 15 of K and V to tiles[room:]; zeros past the length."""
        if t0 < length:
            for n in range(STEPS):
                i = lane + 32 * n
                r, c = i // (D // 8), i % (D // 8)
                inside = t0 + r < length
                at = first + (t0 + r if inside else 0) * step + 8 * c
                lk.cuda.cp_async(tiles, room + place(r, c), K, at, 16 if inside else 0)
                lk.cuda.cp_async(tiles, room + TILE + place(r, c), V, at, 16 if inside else 0)
        lk.cuda.cp_async_commit()  # an empty group keeps the count

    @cuda.jit
    def split_kv_mma(parts, stats, Q, K, V, lengths, T, HQ, HKV):
        """parts: [splits, B, HQ, D]; stats: [splits, B, HQ, 2]; Q as pairs in a row, K and V as numbers in a row."""
        tiles = cuda.shared.array(TILES, float16, alignment=128)
        outs = cuda.shared.array((ROWS, LINE), float32)  # of warp 1
        mosts = cuda.shared.array(ROWS, float32)
        totals = cuda.shared.array(ROWS, float32)
        a = cuda.local.array((SLICES, 4), uint32)
        o = cuda.local.array((SUMS, 4), float32)
        s = cuda.local.array((2, 4), float32)
        p = cuda.local.array(4, uint32)
        m = cuda.local.array(2, float32)  # of rows g and g + 8: the largest score, the sum of this lane's weights
        l = cuda.local.array(2, float32)
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        g, q = lane // 4, lane % 4
        group = HQ // HKV
        blocks = (group + ROWS - 1) // ROWS  # of 16 query heads
        head, head0 = cuda.blockIdx.x // blocks, cuda.blockIdx.x % blocks * ROWS
        b, split, splits = cuda.blockIdx.y, cuda.blockIdx.z, cuda.gridDim.z
        rows, query0, length = min(ROWS, group - head0), head * group + head0, lengths[b]
        count = (length + TOKENS - 1) // TOKENS
        begin, end = count * split // splits, count * (split + 1) // splits
        first, step = (b * T * HKV + head) * D, HKV * D
        for j in range(SLICES):  # Q as the left factor: rows g and g + 8 are query heads, zeros where there is none
            for e in range(4):
                row = g + e % 2 * 8
                at = (b * HQ + query0 + row) * (D // 2) + 8 * j + q + e // 2 * 4
                a[j, e] = uint32(Q[at]) if row < rows else uint32(0)
        for half in range(2):
            m[half], l[half] = LOWEST, float32(0)
        for j in range(SUMS):
            for e in range(4):
                o[j, e] = float32(0)
        room = warp * ROOM
        last = min(length, end * TOKENS)
        start(tiles, room, K, V, first, step, (begin + warp) * TOKENS, last, lane)
        stage = 0
        ### BEGIN SOLUTION
        for tile in range(begin + warp, end, WARPS):
            lk.cuda.cp_async_wait(0)
            cuda.syncwarp()  # this tile is there, and nobody reads the last one any more: the next copy goes over it
            k = room + stage * 2 * TILE
            v = k + TILE
            stage = 1 - stage
            start(tiles, room + stage * 2 * TILE, K, V, first, step, (tile + WARPS) * TOKENS, last, lane)
            for n in range(2):
                for e in range(4):
                    s[n, e] = float32(0)
            for j in range(SLICES):  # tokens 0 to 7 at 16 j and 16 j + 8, then tokens 8 to 15
                x = lk.cuda.ldmatrix(tiles, k + place(lane // 16 * 8 + lane % 8, 2 * j + lane // 8 % 2))
                for n in range(2):
                    part = (x[0], x[1]) if n == 0 else (x[2], x[3])
                    new = lk.cuda.mma_m16n8k16(
                        (a[j, 0], a[j, 1], a[j, 2], a[j, 3]), part, (s[n, 0], s[n, 1], s[n, 2], s[n, 3])
                    )
                    for e in range(4):
                        s[n, e] = new[e]
            for half in range(2):
                top = m[half]
                for n in range(2):
                    for e in range(2):
                        if tile * TOKENS + 8 * n + 2 * q + e >= length:
                            s[n, 2 * half + e] = float32(-math.inf)
                        top = max(top, s[n, 2 * half + e])
                top = max(top, cuda.shfl_xor_sync(ALL, top, 1))  # the 4 lanes that share a row
                top = max(top, cuda.shfl_xor_sync(ALL, top, 2))
                shrink = lk.cuda.exp2_approx((m[half] - top) * SCALE2)
                m[half] = top
                l[half] *= shrink
                for j in range(SUMS):
                    o[j, 2 * half] *= shrink
                    o[j, 2 * half + 1] *= shrink
                for n in range(2):  # what a lane holds of the scores is what it has to hold of the weights
                    p0 = lk.cuda.exp2_approx(s[n, 2 * half] * SCALE2 - top * SCALE2)
                    p1 = lk.cuda.exp2_approx(s[n, 2 * half + 1] * SCALE2 - top * SCALE2)
                    l[half] += p0 + p1
                    p[2 * n + half] = lk.cuda.pack_f16x2(p0, p1)
            for j in range(SLICES):
                x = lk.cuda.ldmatrix_transposed(tiles, v + place(lane % 16, 2 * j + lane // 16))
                for n in range(2):
                    part = (x[0], x[1]) if n == 0 else (x[2], x[3])
                    i = 2 * j + n
                    new = lk.cuda.mma_m16n8k16((p[0], p[1], p[2], p[3]), part, (o[i, 0], o[i, 1], o[i, 2], o[i, 3]))
                    for e in range(4):
                        o[i, e] = new[e]
        ### END SOLUTION
        for half in range(2):
            l[half] += cuda.shfl_xor_sync(ALL, l[half], 1)
            l[half] += cuda.shfl_xor_sync(ALL, l[half], 2)
            row = g + 8 * half
            if warp == 1 and row < rows:
                for j in range(SUMS):
                    for e in range(2):
                        outs[row, 8 * j + 2 * q + e] = o[j, 2 * half + e]
                if q == 0:
                    mosts[row], totals[row] = m[half], l[half]
        cuda.syncthreads()  # warp 1's results are there for warp 0
        for half in range(2):
            row = g + 8 * half
            if warp == 0 and row < rows:
                most = max(m[half], mosts[row])
                mine = lk.cuda.exp2_approx((m[half] - most) * SCALE2)
                other = lk.cuda.exp2_approx((mosts[row] - most) * SCALE2)
                for j in range(SUMS):
                    for e in range(2):
                        d = 8 * j + 2 * q + e
                        parts[split, b, query0 + row, d] = o[j, 2 * half + e] * mine + outs[row, d] * other
                if q == 0:
                    stats[split, b, query0 + row, 0] = most * SCALE2
                    stats[split, b, query0 + row, 1] = l[half] * mine + totals[row] * other

    @cuda.jit
    def split_kv_mma_combine(O, parts, stats):
        """A thread per number of O and every ACROSS-th piece; then the first D threads put these together."""
        outs = cuda.shared.array((ACROSS, D), float32)
        mosts = cuda.shared.array((ACROSS, D), float32)
        totals = cuda.shared.array((ACROSS, D), float32)
        h, b, d, y = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x, cuda.threadIdx.y
        most, total, number = LOWEST, float32(0), float32(0)
        for i in range(y, parts.shape[0], ACROSS):
            top = max(most, stats[i, b, h, 0])
            old, now = lk.cuda.exp2_approx(most - top), lk.cuda.exp2_approx(stats[i, b, h, 0] - top)
            total = total * old + stats[i, b, h, 1] * now
            number = number * old + parts[i, b, h, d] * now
            most = top
        mosts[y, d] = most
        totals[y, d] = total
        outs[y, d] = number
        cuda.syncthreads()  # all threads' are there
        if y == 0:
            for i in range(1, ACROSS):
                top = max(most, mosts[i, d])
                old, now = lk.cuda.exp2_approx(most - top), lk.cuda.exp2_approx(mosts[i, d] - top)
                total = total * old + totals[i, d] * now
                number = number * old + outs[i, d] * now
                most = top
            O[b, h, d] = float16(number / total if total > 0 else float32(0))  # no keys, no sum

    return split_kv_mma, split_kv_mma_combine


def launch(O, Q, K, V, lengths, splits=0):
    (B, HQ, D), (_, T, HKV, _) = Q.shape, K.shape
    heads = HKV * ((HQ // HKV + ROWS - 1) // ROWS)
    splits = splits or max(1, min((T + 127) // 128, BLOCKS // (B * heads)))
    parts = O.new_empty((splits, B, HQ, D), dtype=torch.float32)
    stats = O.new_empty((splits, B, HQ, 2), dtype=torch.float32)
    pieces, combine = kernel_for(D)
    args = (Q.view(torch.int32).view(-1), K.view(-1), V.view(-1), lengths, T, HQ, HKV)
    pieces[(heads, B, splits), (32, WARPS)](parts, stats, *args)
    combine[(HQ, B), (D, ACROSS)](O, parts, stats)
