"""gqa_bf16/cu_optimized: O[b, h] = softmax(Q[b, h] K[b]^T / sqrt(128)) V[b], K and V in bfloat16; tensor cores.

Against cu_baseline: what int4_gqa climbs in rungs, as far as it concerns a cache that needs no dequantizing. All words
of a tile of K are asked for before the first product, and those of the next step of V before the last is multiplied;
maximum and sum have no array in local memory; the maximum comes out of the sums of mma, P is rounded on its way into
the operand, and S lies in shared memory as it is read, 8 heads by 16 tokens after each other.
Watch: long scoreboard stalls; barriers; shared bank conflicts.

numba has no bfloat16: Q and K come as words of two, V and O as a number's bits.
"""

import torch
from numba import cuda, float32, int16, uint32
from numba.cuda import libdevice

import labkit as lk

D, HEADS, WARPS, THREADS = 128, 8, 4, 128
TOKENS, STEP = 32, 16  # of a tile of scores; numbers of K, or tokens of V, of one product
SCALE = 1.44269504 / 11.3137085  # exp(s / sqrt(128)) = 2^(s * SCALE)
LEAST = -3.4e38  # no score is smaller
ALL = 0xFFFFFFFF
# Shared memory, in words of 4 bytes: Q, a few numbers, and the scores.
Q_ROW = D // 2 + 4  # from row to row of Q: no two meet in a bank
ACROSS = HEADS * Q_ROW
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
def place(h, t):
    """Where the score of head h and token t lies, from SCORES on."""
    return t // STEP * STEP * HEADS + h * STEP + t % STEP


@cuda.jit(device=True)
def two_tokens(V, b, t, d, n):
    """Number d of tokens t and t + 1, in a word; zeros from token n on."""
    low = V[b, t, d] & 0xFFFF if t < n else 0
    high = V[b, t + 1, d] & 0xFFFF if t + 1 < n else 0
    return uint32(low | high << 16)


@cuda.jit(device=True)
def fragment(V, b, t0, d0, n):
    """Numbers d0 to d0 + 15, as rows, of tokens t0 to t0 + 15: this lane's part of mma's first operand."""
    g, t = cuda.threadIdx.x // 4, t0 + cuda.threadIdx.x % 4 * 2
    return (
        two_tokens(V, b, t, d0 + g, n),
        two_tokens(V, b, t, d0 + g + 8, n),
        two_tokens(V, b, t + 8, d0 + g, n),
        two_tokens(V, b, t + 8, d0 + g + 8, n),
    )


@cuda.jit
def cu_optimized(parts, stats, Q, K, V, lengths, HQ, split_k):
    # Two names of the same shared memory, by what lies there.
    words = cuda.shared.array(0, uint32)
    floats = cuda.shared.array(0, float32)
    s = cuda.local.array((2, 4), float32)
    k = cuda.local.array((8, 2, 4), uint32)  # a tile: 8 steps of 2 x 16 tokens
    o = cuda.local.array((2, 4), float32)
    best = cuda.local.array(2, float32)
    lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
    tid, g, q = 32 * warp + lane, lane // 4, lane % 4
    b, head0 = cuda.blockIdx.x, HEADS * cuda.blockIdx.y
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

    ### BEGIN SOLUTION
    # S = Q K^T: each lane fetches its part of K.
    best[0] = best[1] = float32(LEAST)  # of heads 2 q and 2 q + 1
    for t0 in range(TOKENS * warp, n, TOKENS * WARPS):
        for half in range(2):
            for e in range(4):
                s[half, e] = float32(0)
        for d in range(D // STEP):  # the words of the whole tile
            for half in range(2):
                for e in range(4):
                    t, at = t0 + 16 * half + g + e % 2 * 8, 8 * d + q + e // 2 * 4
                    k[d, half, e] = K[b, first + t, at] if t < n else uint32(0)
        for d in range(D // STEP):
            at = g * Q_ROW + 8 * d + q
            heads_q = (words[at], words[at + 4])
            for half in range(2):
                tokens = (k[d, half, 0], k[d, half, 1], k[d, half, 2], k[d, half, 3])
                old = (s[half, 0], s[half, 1], s[half, 2], s[half, 3])
                new = lk.cuda.mma_m16n8k16_bf16(tokens, heads_q, old)
                for e in range(4):
                    s[half, e] = new[e]
        for half in range(2):
            for e in range(4):  # head, token
                h, t = 2 * q + e % 2, t0 + 16 * half + g + e // 2 * 8
                floats[SCORES + place(h, t)] = s[half, e]
                if t < n:
                    best[e % 2] = max(best[e % 2], s[half, e])
    for e in range(2):
        for far in (4, 8, 16):  # the lanes with the same q
            best[e] = max(best[e], cuda.shfl_xor_sync(ALL, best[e], far))
        if lane < 4:
            floats[ACROSS + warp * HEADS + 2 * lane + e] = best[e]
    cuda.syncthreads()  # all scores are there, and each warp's maxima

    # The largest score of each head.
    if tid < HEADS:
        most = float32(LEAST)
        for i in range(WARPS):
            most = max(most, floats[ACROSS + i * HEADS + tid])
        floats[MAXIMA + tid] = most
    cuda.syncthreads()  # all maxima are there

    # P, not divided by its sum yet; zeros for the tokens that are not there.
    share = THREADS // HEADS  # threads of a head
    h = tid // share
    whole, most = float32(0), floats[MAXIMA + h]
    for t in range(tid % share, padded, share):
        x = (floats[SCORES + place(h, t)] - most) * float32(SCALE)
        p = libdevice.exp2f(x) if t < n else float32(0)
        floats[SCORES + place(h, t)] = p
        whole += p
    for far in (8, 4, 2, 1):
        whole += cuda.shfl_xor_sync(ALL, whole, far)
    if tid % share == 0:
        floats[SUMS + h] = whole
    cuda.syncthreads()  # P is there in float32, and its sums

    # O = P V: the warp has 32 of the 128 columns.
    for half in range(2):
        for e in range(4):
            o[half, e] = float32(0)
    next0 = fragment(V, b, first, 32 * warp, first + n)
    next1 = fragment(V, b, first, 32 * warp + 16, first + n)
    for t0 in range(0, n, STEP):
        v0, v1 = next0, next1
        next0 = fragment(V, b, first + t0 + STEP, 32 * warp, first + n)  # comes while this step is multiplied
        next1 = fragment(V, b, first + t0 + STEP, 32 * warp + 16, first + n)
        at = SCORES + place(g, t0 + 2 * q)
        p0 = lk.cuda.pack_bf16x2(floats[at], floats[at + 1])
        p1 = lk.cuda.pack_bf16x2(floats[at + 8], floats[at + 9])
        for half in range(2):
            old = (o[half, 0], o[half, 1], o[half, 2], o[half, 3])
            new = lk.cuda.mma_m16n8k16_bf16(v0 if half == 0 else v1, (p0, p1), old)
            for e in range(4):
                o[half, e] = new[e]
    for half in range(2):
        for e in range(4):
            parts[part + 2 * q + e % 2, 32 * warp + 16 * half + g + e // 2 * 8] = o[half, e]
    if tid < heads:
        stats[part + tid, 0], stats[part + tid, 1] = floats[MAXIMA + tid], floats[SUMS + tid]
    ### END SOLUTION


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
    (B, HQ, _), T = O.shape, K.shape[1]
    split_k = max(split_k, (T + MOST - 1) // MOST)
    blocks = (HQ + HEADS - 1) // HEADS  # of heads
    room = ((T + split_k - 1) // split_k + TOKENS - 1) // TOKENS * TOKENS
    parts = O.new_empty((split_k * B * blocks * HEADS, D), dtype=torch.float32)
    stats = O.new_empty((split_k * B * blocks * HEADS, 2), dtype=torch.float32)
    Q, K, V = Q.view(torch.uint32), K.squeeze(2).view(torch.uint32), V.squeeze(2).view(torch.int16)
    cu_optimized[(B, blocks, split_k), (32, WARPS), 0, 4 * SCORES + PER_TOKEN * room](
        parts, stats, Q, K, V, lengths, HQ, split_k
    )
    combine[(HQ, B), D](O.view(torch.int16), parts, stats, split_k)
