"""int4_gqa/opt02_cast_p: O[b, h] = softmax(Q[b, h] K[b]^T / sqrt(128)) V[b], K and V in 4 bits.

Against opt01_unroll_k: P is cast where it lies. Each thread reads pairs of neighbors, several of them, waits until all
have read, and writes each pair as one word; before, 16-bit elements went to a copy, one at a time.
Watch: shared load and store wavefronts; shared memory of a block.

A row of the cache is 1 or 4 words of a float16 scale and shift each, then 16 of 8 numbers, the first in the low bits.
numba has no bfloat16: Q comes as words of two, O as a number's bits.
"""

import functools

import torch
from numba import cuda, float32, int16, uint32
from numba.cuda import libdevice

import labkit as lk

D, HEADS, WARPS, THREADS = 128, 8, 4, 128
TOKENS, STEP = 32, 16  # of a tile of scores; numbers of K, or tokens of V, of one product
UNROLL = 4  # steps of K whose words are loaded together
CASTS = 4  # pairs of P that a thread rounds between two barriers
SCALE = 1.44269504 / 11.3137085  # exp(s / sqrt(128)) = 2^(s * SCALE)
LEAST = -3.4e38  # no score is smaller
ALL = 0xFFFFFFFF
# Shared memory, in words of 4 bytes: Q, a tile of each warp, a few numbers, and the scores.
Q_ROW = D // 2 + 4  # from row to row of Q: no two meet in a bank
K_ROW, V_ROW = 8, 16  # from row to row of the tiles, of K [32][16], of V [16][32]
TILE = max(TOKENS * K_ROW, STEP * V_ROW)
TILES = HEADS * Q_ROW
ACROSS = TILES + WARPS * TILE
MAXIMA = ACROSS + WARPS * HEADS
SUMS = MAXIMA + HEADS
SCORES = SUMS + HEADS
PER_TOKEN = HEADS * 4  # bytes
MOST = (48 * 1024 - 4 * SCORES) // PER_TOKEN // TOKENS * TOKENS  # tokens of a block: numba can ask for 48 KiB


@cuda.jit(device=True)
def rounded(x):
    """The bits of the bfloat16 nearest to x."""
    return int16(lk.cuda.pack_bf16x2(x, float32(0)))


@cuda.jit(device=True)
def dequantize(words, to, word, scale, shift):
    """8 numbers of a packed word, as bfloat16, by stores of 4 bytes as in the document's pictures."""
    for i in range(4):
        low = float32(uint32(word >> 8 * i & 15)) * scale + shift
        high = float32(uint32(word >> (8 * i + 4) & 15)) * scale + shift
        words[to + i] = lk.cuda.pack_bf16x2(low, high)


@functools.cache
def kernel_for(GROUPS):
    """The kernel for rows with so many scales and shifts, 1 or 4."""

    @cuda.jit
    def opt02_cast_p(parts, stats, Q, K, V, lengths, T, HQ, split_k):
        # Two names of the same shared memory, by what lies there.
        words = cuda.shared.array(0, uint32)
        floats = cuda.shared.array(0, float32)
        s = cuda.local.array((2, 4), float32)
        o = cuda.local.array((2, 4), float32)
        w = cuda.local.array((UNROLL, 2), uint32)
        by = cuda.local.array(UNROLL, uint32)
        best = cuda.local.array(HEADS, float32)
        total = cuda.local.array(HEADS, float32)
        two = cuda.local.array((CASTS, 2), float32)
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        tid, g, q = 32 * warp + lane, lane // 4, lane % 4
        b, head0 = cuda.blockIdx.x, HEADS * cuda.blockIdx.y
        tile = TILES + warp * TILE  # the warp's own
        room = ((T + split_k - 1) // split_k + TOKENS - 1) // TOKENS * TOKENS  # tokens of a block, at most
        heads, length = min(HEADS, HQ - head0), lengths[b]
        piece = ((length + split_k - 1) // split_k + TOKENS - 1) // TOKENS * TOKENS
        first = piece * cuda.blockIdx.z
        n = min(piece, length - first)
        padded = (n + TOKENS - 1) // TOKENS * TOKENS  # tokens of this block
        part = ((cuda.blockIdx.z * cuda.gridDim.x + b) * cuda.gridDim.y) * HEADS + head0  # of the block's first head
        if n <= 0:
            if tid < HEADS:
                stats[part + tid, 1] = float32(0)  # nothing to add
            return
        for i in range(tid, HEADS * D // 2, THREADS):
            h, at = i // (D // 2), i % (D // 2)
            words[h * Q_ROW + at] = Q[b, head0 + h, at] if h < heads else uint32(0)
        cuda.syncthreads()  # Q is there

        # S = Q K^T: the lane brings the row of token t.
        for t0 in range(TOKENS * warp, n, TOKENS * WARPS):
            t = t0 + lane
            for half in range(2):
                for e in range(4):
                    s[half, e] = float32(0)
            ### BEGIN SOLUTION
            for d0 in range(0, D // STEP, UNROLL):
                for i in range(UNROLL):
                    w[i, 0] = w[i, 1] = by[i] = uint32(0)
                if t < n:
                    for i in range(UNROLL):
                        for e in range(2):
                            w[i, e] = K[b, first + t, GROUPS + 2 * (d0 + i) + e]
                        by[i] = K[b, first + t, (d0 + i) * GROUPS // 8]
                for i in range(UNROLL):
                    d = d0 + i
                    scale, shift = lk.cuda.unpack_f16x2(by[i])
                    dequantize(words, tile + lane * K_ROW, w[i, 0], scale, shift)
                    dequantize(words, tile + lane * K_ROW + 4, w[i, 1], scale, shift)
                    cuda.syncwarp()  # the tile is there
                    at = g * Q_ROW + 8 * d + q
                    heads_q = (words[at], words[at + 4])
                    for half in range(2):
                        at = tile + (16 * half + g) * K_ROW + q
                        k = (words[at], words[at + 8 * K_ROW], words[at + 4], words[at + 8 * K_ROW + 4])
                        old = (s[half, 0], s[half, 1], s[half, 2], s[half, 3])
                        new = lk.cuda.mma_m16n8k16_bf16(k, heads_q, old)
                        for e in range(4):
                            s[half, e] = new[e]
                    cuda.syncwarp()  # and has been read
            ### END SOLUTION
            for half in range(2):
                for e in range(4):  # head, token
                    h, t = 2 * q + e % 2, t0 + 16 * half + g + e // 2 * 8
                    floats[SCORES + h * room + t] = s[half, e]
        cuda.syncthreads()  # all scores are there

        # The largest score of each head. `heads` is not known when this is compiled: best lies in local memory.
        for h in range(heads):
            best[h] = float32(LEAST)
        for t in range(tid, n, THREADS):
            for h in range(heads):
                best[h] = max(best[h], floats[SCORES + h * room + t])
        for h in range(heads):
            for far in (16, 8, 4, 2, 1):
                best[h] = max(best[h], cuda.shfl_xor_sync(ALL, best[h], far))
            if lane == 0:
                floats[ACROSS + warp * HEADS + h] = best[h]
        cuda.syncthreads()  # each warp's are there
        if tid < heads:
            most = float32(LEAST)
            for i in range(WARPS):
                most = max(most, floats[ACROSS + i * HEADS + tid])
            floats[MAXIMA + tid] = most
        cuda.syncthreads()

        # P, not divided by its sum yet; zeros for the tokens that are not there.
        for h in range(heads):
            total[h] = float32(0)
        for t in range(tid, padded, THREADS):
            for h in range(heads):
                x = (floats[SCORES + h * room + t] - floats[MAXIMA + h]) * float32(SCALE)
                p = libdevice.exp2f(x) if t < n else float32(0)
                floats[SCORES + h * room + t] = p
                total[h] += p
        for h in range(heads):
            for far in (16, 8, 4, 2, 1):
                total[h] += cuda.shfl_xor_sync(ALL, total[h], far)
            if lane == 0:
                floats[ACROSS + warp * HEADS + h] = total[h]
        cuda.syncthreads()
        if tid < heads:
            whole = float32(0)
            for i in range(WARPS):
                whole += floats[ACROSS + i * HEADS + tid]
            floats[SUMS + tid] = whole

        # P in bfloat16, over S: what is written at t lies over the scores of t / 2, which have been read by then.
        ### BEGIN SOLUTION
        for h in range(HEADS):
            for t0 in range(0, padded, 2 * THREADS * CASTS):
                for i in range(CASTS):
                    t = t0 + 2 * tid + 2 * THREADS * i
                    if t < padded:
                        for e in range(2):
                            two[i, e] = floats[SCORES + h * room + t + e]
                cuda.syncthreads()  # all have read
                for i in range(CASTS):
                    t = t0 + 2 * tid + 2 * THREADS * i
                    if t < padded:
                        words[SCORES + h * room + t // 2] = lk.cuda.pack_bf16x2(two[i, 0], two[i, 1])
        ### END SOLUTION
        cuda.syncthreads()  # P is there, and its sums

        # O = P V: the lane brings 16 of the warp's 32 columns of token t.
        for half in range(2):
            for e in range(4):
                o[half, e] = float32(0)
        for t0 in range(0, n, STEP):
            t, at = t0 + lane // 2, 4 * warp + lane % 2 * 2
            w0 = w1 = by_v = uint32(0)
            if t < n:
                w0, w1 = V[b, first + t, GROUPS + at], V[b, first + t, GROUPS + at + 1]
                by_v = V[b, first + t, at * GROUPS // 16]
            scale, shift = lk.cuda.unpack_f16x2(by_v)
            dequantize(words, tile + lane // 2 * V_ROW + lane % 2 * 8, w0, scale, shift)
            dequantize(words, tile + lane // 2 * V_ROW + lane % 2 * 8 + 4, w1, scale, shift)
            cuda.syncwarp()  # the tile is there
            at = SCORES + g * room + t0 // 2 + q
            p = (words[at], words[at + 4])
            for half in range(2):  # tokens 0 to 7 of 16 columns in two matrices, then tokens 8 to 15
                at = tile + (lane % 8 + lane // 16 * 8) * V_ROW + 8 * half + lane // 8 % 2 * 4
                v = lk.cuda.ldmatrix_transposed(words, at)
                old = (o[half, 0], o[half, 1], o[half, 2], o[half, 3])
                new = lk.cuda.mma_m16n8k16_bf16(v, p, old)
                for e in range(4):
                    o[half, e] = new[e]
            cuda.syncwarp()  # and has been read
        for half in range(2):
            for e in range(4):
                parts[part + 2 * q + e % 2, 32 * warp + 16 * half + g + e // 2 * 8] = o[half, e]
        if tid < heads:
            stats[part + tid, 0], stats[part + tid, 1] = floats[MAXIMA + tid], floats[SUMS + tid]

    return opt02_cast_p


@cuda.jit
def combine(O, parts, stats, split_k):
    """Put the pieces of a head together, one thread per column: each is scaled to the largest maximum of all."""
    h, b, d = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    heads = (cuda.gridDim.x + HEADS - 1) // HEADS * HEADS
    best, total, o = float32(LEAST), float32(0), float32(0)
    for s in range(split_k):
        part = (s * cuda.gridDim.y + b) * heads + h
        more = stats[part, 1]
        if more > 0:  # a piece with tokens
            its = stats[part, 0]
            top = max(best, its)
            old = libdevice.exp2f((best - top) * float32(SCALE))
            mine = libdevice.exp2f((its - top) * float32(SCALE))
            total = total * old + more * mine
            o = o * old + parts[part, d] * mine
            best = top
    O[b, h, d] = rounded(o / total)


def launch(O, Q, K, V, lengths, split_k=16):
    (B, HQ, _), T, groups = O.shape, K.shape[1], (K.shape[3] - D // 2) // 4
    split_k = max(split_k, (T + MOST - 1) // MOST)
    blocks = (HQ + HEADS - 1) // HEADS  # of heads
    room = ((T + split_k - 1) // split_k + TOKENS - 1) // TOKENS * TOKENS
    parts = O.new_empty((split_k * B * blocks * HEADS, D), dtype=torch.float32)
    stats = O.new_empty((split_k * B * blocks * HEADS, 2), dtype=torch.float32)
    Q, K, V = (x.view(torch.uint32) for x in (Q, K.squeeze(2), V.squeeze(2)))
    kernel_for(groups)[(B, blocks, split_k), (32, WARPS), 0, 4 * SCORES + PER_TOKEN * room](
        parts, stats, Q, K, V, lengths, T, HQ, split_k
    )
    combine[(HQ, B), D](O.view(torch.int16), parts, stats, split_k)
