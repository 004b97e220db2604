"""gqa_bf16/cu_baseline: O[b, h] = softmax(Q[b, h] K[b]^T / sqrt(128)) V[b], K and V in bfloat16; tensor cores.

Against cuda_core: all 8 heads at once. A block has 8 heads of a sequence and 1 of split_k pieces of its tokens, and 4
warps. First each warp takes every 4th tile of 32 tokens and multiplies Q with it, 16 numbers at a time. The scores of
the block, S, lie in shared memory in float32; the softmax makes P of them, and a copy of it in bfloat16 goes into the
second product: each warp has 32 of the 128 columns of V and walks over all tokens, 16 at a time. A second kernel puts
the pieces together. CUDA C++ has wmma's 8 x 32 x 16 here; numba has none, but two mma.m16n8k16, 16 tokens by 8 heads
each, whose lanes fetch what they need of K and V themselves. The document's first version, for a cache that needs no
dequantizing.
Watch: tensor operations in place of FFMA; stalls at loads; local memory.

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
PER_TOKEN = HEADS * 4 + HEADS * 2  # bytes: of S, and of P in bfloat16
MOST = (48 * 1024 - 4 * SCORES) // PER_TOKEN // TOKENS * TOKENS  # tokens of a block: numba can ask for 48 KiB


@cuda.jit(device=True)
def rounded(x):
    """The bits of the bfloat16 nearest to x."""
    return int16(lk.cuda.pack_bf16x2(x, float32(0)))


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
def cu_baseline(parts, stats, Q, K, V, lengths, T, HQ, split_k):
    # Three names of the same shared memory, by what lies there.
    words = cuda.shared.array(0, uint32)
    floats = cuda.shared.array(0, float32)
    halves = cuda.shared.array(0, int16)
    s = cuda.local.array((2, 4), float32)
    o = cuda.local.array((2, 4), float32)
    best = cuda.local.array(HEADS, float32)
    total = cuda.local.array(HEADS, float32)
    lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
    tid, g, q = 32 * warp + lane, lane // 4, lane % 4
    b, head0 = cuda.blockIdx.x, HEADS * cuda.blockIdx.y
    room = ((T + split_k - 1) // split_k + TOKENS - 1) // TOKENS * TOKENS  # tokens of a block, at most
    P = SCORES + HEADS * room
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
    for t0 in range(TOKENS * warp, n, TOKENS * WARPS):
        for half in range(2):
            for e in range(4):
                s[half, e] = float32(0)
        for d in range(D // STEP):
            at = g * Q_ROW + 8 * d + q
            heads_q = (words[at], words[at + 4])
            for half in range(2):
                t = t0 + 16 * half + g
                k0 = k1 = k2 = k3 = uint32(0)
                if t < n:
                    k0, k2 = K[b, first + t, 8 * d + q], K[b, first + t, 8 * d + q + 4]
                if t + 8 < n:
                    k1, k3 = K[b, first + t + 8, 8 * d + q], K[b, first + t + 8, 8 * d + q + 4]
                old = (s[half, 0], s[half, 1], s[half, 2], s[half, 3])
                new = lk.cuda.mma_m16n8k16_bf16((k0, k1, k2, k3), heads_q, old)
                for e in range(4):
                    s[half, e] = new[e]
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

    # P in bfloat16, one number at a time.
    for h in range(HEADS):
        for t in range(tid, padded, THREADS):
            p = floats[SCORES + h * room + t] if h < heads else float32(0)
            halves[2 * P + h * room + t] = rounded(p)
    cuda.syncthreads()  # P is there, and its sums

    # O = P V: the warp has 32 of the 128 columns.
    for half in range(2):
        for e in range(4):
            o[half, e] = float32(0)
    for t0 in range(0, n, STEP):
        at = P + (g * room + t0) // 2 + q
        p = (words[at], words[at + 4])
        for half in range(2):
            v = fragment(V, b, first + t0, 32 * warp + 16 * half, first + n)
            old = (o[half, 0], o[half, 1], o[half, 2], o[half, 3])
            new = lk.cuda.mma_m16n8k16_bf16(v, p, old)
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
    cu_baseline[(B, blocks, split_k), (32, WARPS), 0, 4 * SCORES + PER_TOKEN * room](
        parts, stats, Q, K, V, lengths, T, HQ, split_k
    )
    combine[(HQ, B), D](O.view(torch.int16), parts, stats, split_k)
