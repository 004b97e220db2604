"""int4_gqa/opt11_direct_mma: O[b, h] = softmax(Q[b, h] K[b]^T / sqrt(128)) V[b], K and V in 4 bits.

Against opt10_pad_dequant: nothing dequantized goes through shared memory. A packed word becomes fragments where it
is: two of its nibbles, masked out and put into the low bits of two bfloat16 128 (0x4300), are 128 + q. Scales, shifts
and the 128 stay outside the products:
    q . k = scale * sum q (128 + n) + (shift - 128 scale) * sum q,         n the nibbles of a row of K
    sum p v = sum p' (128 + n) - 136 sum p' + sum p (shift + 8 scale),     n those of V, p' = p * scale
and sum p' comes from one more product with ones, for p' must be the rounded one. mma.m16n8k16 has 16 tokens as rows
and the 8 heads as columns, so that no row is wasted; its scores, turned round by movmatrix, are the operand of the
second product, with 16 numbers as rows. Which number or token takes which place is free as long as both operands
agree: so a lane takes whole words, and banks do not collide. Each warp has tiles of 32 tokens of its own on their
way by cp.async and keeps the softmax online; nobody waits for anybody but at the end of a sequence. The tokens of
all sequences are cut evenly among the blocks, wherever one sequence ends; a second kernel puts the pieces together.
Watch: instructions per number; DRAM throughput.

A row of the cache is 1 or 4 words of a float16 scale and shift each, then 16 of 8 numbers, the first in the low bits.
numba has no bfloat16: Q comes as words of two, O as a number's bits.
"""

import functools

import torch
from numba import cuda, float32, int16, int32, uint32
from numba.cuda import libdevice

import labkit as lk

WORKERS = 396  # blocks that share all tokens, at most: 3 on each of 132 multiprocessors
D, HEADS, WARPS, TOKENS = 128, 8, 4, 32
STAGES = 2  # as many as 48 KiB have room for
SCALE = 1.44269504 / 11.3137085  # exp(s / sqrt(128)) = 2^(s * SCALE)
LEAST = -3.4e38  # no score is smaller
ALL = 0xFFFFFFFF


@cuda.jit(device=True)
def rounded(x):
    """The bits of the bfloat16 nearest to x; of two that are as near, the even one."""
    bits = libdevice.float_as_int(x)
    return int16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)


@cuda.jit(device=True)
def tiles_of(length):
    return (length + TOKENS - 1) // TOKENS


@cuda.jit(device=True)
def bits_of(x):
    return uint32(libdevice.float_as_int(x))


@cuda.jit(device=True)
def number_of(word):
    return libdevice.int_as_float(int32(word))


@cuda.jit(device=True)
def low_halves(a, b):
    """The lower 16 bits of a, then those of b."""
    return uint32(libdevice.byte_perm(int32(a), int32(b), 0x5410))


@cuda.jit(device=True)
def high_halves(a, b):
    return uint32(libdevice.byte_perm(int32(a), int32(b), 0x7632))


@cuda.jit(device=True)
def pair(word, i):
    """Nibbles i and i + 4 of a word, as the bfloat16 pair 128 + n: word & 0x000F000F | 0x43004300, at once."""
    return lk.cuda.lop3(uint32(word >> 4 * i), uint32(0x000F000F), uint32(0x43004300), 0xEA)


@cuda.jit(device=True)
def at(rooms, i):
    """rooms[i], where i is not negative: numba would wrap it, by a comparison and a selection for each load."""
    return rooms[uint32(i)]


@functools.cache
def kernel_for(GROUPS):
    """The kernel for rows with so many scales and shifts, 1 or 4."""
    WORDS = 16 + GROUPS  # of a row
    BYTES = TOKENS * WORDS * 4
    TILE = TOKENS * WORDS + 4  # words; a copy begins on 16 bytes, a tile may not
    ROOM = STAGES * 2 * TILE  # of a warp: K and V of each stage
    SHARED = WARPS * ROOM
    PER_GROUP = 4 // GROUPS  # words q + 4 j of a group
    # Row r of the m-th of 4 matrices of 8 tokens is token R_STEP * r + M_STEP * m of a tile: lanes then find 32 banks,
    # with rows of 17 words as with rows of 20.
    R_STEP, M_STEP = (4, 1) if GROUPS == 1 else (1, 8)

    @cuda.jit(device=True)
    def start_tile(rooms, to, A, start, lead, rows):
        """Start copying `rows` rows of A, which begin at word start + lead; zeros for those that are missing of 32."""
        lane = cuda.threadIdx.x
        left = 4 * lead + rows * WORDS * 4 - 16 * lane  # bytes, from this lane's first piece on
        if rows == TOKENS:
            for i in range(BYTES // 512):
                lk.cuda.cp_async(rooms, to + 128 * i + 4 * lane, A, start + 128 * i + 4 * lane, 16)
            i = BYTES // 512
            if BYTES % 512 > 0 and left > 512 * i:
                size = min(16, left - 512 * i)
                lk.cuda.cp_async(rooms, to + 128 * i + 4 * lane, A, start + 128 * i + 4 * lane, size)
        else:
            for i in range(4 * lane, TILE, 128):
                size = max(0, min(16, left + 16 * lane - 4 * i))
                lk.cuda.cp_async(rooms, to + i, A, start + i if size > 0 else 0, size)

    @cuda.jit(max_registers=168)  # 3 blocks on a multiprocessor
    def opt11_direct_mma(parts, stats, Q, K, V, lengths, T, HQ):
        rooms = cuda.shared.array(SHARED, uint32, alignment=128)
        fragment = cuda.local.array((4, 4), uint32)
        sum_q = cuda.local.array((GROUPS, 2), float32)  # of heads 2 q and 2 q + 1
        by = cuda.local.array((2, GROUPS, 2), float32)  # scales and shifts of two rows
        s = cuda.local.array((4, 2), float32)
        top = cuda.local.array(2, float32)
        p = cuda.local.array((GROUPS, 4), uint32)
        row = cuda.local.array(4, int32)
        w = cuda.local.array(4, uint32)
        best = cuda.local.array(2, float32)  # the largest score of heads 2 q and 2 q + 1
        total = cuda.local.array(2, float32)  # the sum of p of this lane's tokens
        shifted = cuda.local.array((GROUPS, 2), float32)  # ... and of p (shift + 8 scale)
        ones = cuda.local.array(4, float32)  # sums of p' of group g % GROUPS
        o = cuda.local.array((8, 4), float32)  # p' (128 + n) for 8 x 16 numbers
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        g, q = lane // 4, lane % 4
        worker, workers, head0 = cuda.blockIdx.x, cuda.gridDim.x, HEADS * cuda.blockIdx.y
        B, room = len(lengths), warp * ROOM  # the warp's own

        # Where this block begins: each lane counts the tiles of `per` sequences, a scan makes sums of them.
        per, mine = (B + 31) // 32, 0
        for i in range(lane * per, min(B, (lane + 1) * per)):
            mine += tiles_of(lengths[i])
        upto, far = mine, 1
        while far < 32:
            more = cuda.shfl_up_sync(ALL, upto, far)
            upto += more if lane >= far else 0
            far *= 2
        tiles_all = cuda.shfl_sync(ALL, upto, 31)
        first, last = tiles_all * worker // workers, tiles_all * (worker + 1) // workers
        if first == last:
            return
        owner = cuda.popc(cuda.ballot_sync(ALL, upto <= first))  # lanes whose sequences end before
        b = owner * per
        before = cuda.shfl_sync(ALL, upto - mine, owner)  # tiles of all sequences before b
        while before + tiles_of(lengths[b]) <= first:
            before += tiles_of(lengths[b])
            b += 1

        while before < last:
            length = lengths[b]
            tile0 = max(first - before, 0) + warp
            tiles = (min(tiles_of(length), last - before) - tile0 + WARPS - 1) // WARPS  # of this warp, if positive

            # Q as the second operand: of 8 numbers from 8 (q + 4 j) on of head g, 0 and 4, 1 and 5, 2 and 6, 3 and 7.
            for group in range(GROUPS):
                for e in range(2):
                    sum_q[group, e] = float32(0)
            for j in range(4):
                w0 = w1 = w2 = w3 = uint32(0)
                if head0 + g < HQ:
                    start_q = (b * HQ + head0 + g) * (D // 2) + 4 * (q + 4 * j)
                    w0, w1, w2, w3 = Q[start_q], Q[start_q + 1], Q[start_q + 2], Q[start_q + 3]
                fragment[j, 0], fragment[j, 1] = low_halves(w0, w2), high_halves(w0, w2)
                fragment[j, 2], fragment[j, 3] = low_halves(w1, w3), high_halves(w1, w3)
                for i in range(4):
                    two = fragment[j, i]
                    sum_q[j // PER_GROUP, 0] += number_of(two << 16) + number_of(two & 0xFFFF0000)
            for group in range(GROUPS):
                whole = sum_q[group, 0]
                whole += cuda.shfl_xor_sync(ALL, whole, 1)
                whole += cuda.shfl_xor_sync(ALL, whole, 2)
                for e in range(2):
                    sum_q[group, e] = cuda.shfl_sync(ALL, whole, 8 * q + 4 * e)

            for e in range(2):
                best[e], total[e] = float32(LEAST), float32(0)
                for group in range(GROUPS):
                    shifted[group, e] = float32(0)
            for e in range(4):
                ones[e] = float32(0)
                for i in range(8):
                    o[i, e] = float32(0)
            # Rows of 17 words begin on 4 bytes only, copies on 16: `lead` words before. 32 rows on it is the same.
            lead = b * T * WORDS % 4
            start = b * T * WORDS - lead
            ### BEGIN SOLUTION
            if tiles > 0:
                t = TOKENS * tile0
                start_tile(rooms, room, K, start + t * WORDS, lead, min(TOKENS, length - t))
                start_tile(rooms, room + TILE, V, start + t * WORDS, lead, min(TOKENS, length - t))
            lk.cuda.cp_async_commit()
            for i in range(tiles):
                lk.cuda.cp_async_wait(0)
                cuda.syncwarp()  # this tile is there, and nobody reads the last one any more: the next goes over it
                t0 = TOKENS * (tile0 + WARPS * i)
                if i + 1 < tiles:
                    t, to = t0 + TOKENS * WARPS, room + (i + 1) % 2 * 2 * TILE
                    start_tile(rooms, to, K, start + t * WORDS, lead, min(TOKENS, length - t))
                    start_tile(rooms, to + TILE, V, start + t * WORDS, lead, min(TOKENS, length - t))
                lk.cuda.cp_async_commit()
                k = room + i % 2 * 2 * TILE + lead
                v = k + TILE

                # Scores s[m] of this lane's 4 tokens, row g of matrix m.
                for m in range(0, 4, 2):
                    for e in range(2):
                        row[e] = k + (R_STEP * g + M_STEP * (m + e)) * WORDS
                        for group in range(GROUPS):
                            by[e, group, 0], by[e, group, 1] = lk.cuda.unpack_f16x2(at(rooms, row[e] + group))
                        s[m + e, 0] = s[m + e, 1] = float32(0)
                    for group in range(GROUPS):
                        zero = float32(0)
                        c = (zero, zero, zero, zero)
                        for j in range(PER_GROUP * group, PER_GROUP * (group + 1)):
                            w0, w1 = (
                                at(rooms, row[0] + GROUPS + q + 4 * j), at(rooms, row[1] + GROUPS + q + 4 * j)
                            )
                            a = (pair(w0, 0), pair(w1, 0), pair(w0, 1), pair(w1, 1))
                            c = lk.cuda.mma_m16n8k16_bf16(a, (fragment[j, 0], fragment[j, 1]), c)
                            a = (pair(w0, 2), pair(w1, 2), pair(w0, 3), pair(w1, 3))
                            c = lk.cuda.mma_m16n8k16_bf16(a, (fragment[j, 2], fragment[j, 3]), c)
                        for e in range(2):
                            scale = by[e, group, 0]
                            shift = by[e, group, 1] - float32(128) * scale
                            for h in range(2):
                                s[m + e, h] += scale * c[2 * e + h] + shift * sum_q[group, h]
                if t0 + TOKENS > length:
                    for m in range(4):
                        if t0 + R_STEP * g + M_STEP * m >= length:
                            s[m, 0] = s[m, 1] = float32(LEAST)

                # Online softmax: sums so far shrink where a larger score has come.
                for e in range(2):
                    largest = max(max(s[0, e], s[1, e]), max(s[2, e], s[3, e]))
                    for far in (4, 8, 16):  # the lanes with the same heads
                        largest = max(largest, cuda.shfl_xor_sync(ALL, largest, far))
                    top[e] = largest
                if cuda.any_sync(ALL, top[0] > best[0] or top[1] > best[1]):
                    for e in range(2):
                        largest = max(top[e], best[e])
                        shrink = lk.cuda.exp2_approx((best[e] - largest) * float32(SCALE))
                        best[e] = largest
                        total[e] *= shrink
                        for group in range(GROUPS):
                            shifted[group, e] *= shrink
                        for half in range(2):
                            ones[2 * half + e] *= shrink
                            for n in range(8):
                                o[n, 2 * half + e] *= shrink

                # p' of heads 2 q and 2 q + 1 for one token in a word: turned round, of head g for the tokens of rows
                # 2 q and 2 q + 1.
                for m in range(4):
                    header = v + (R_STEP * g + M_STEP * m) * WORDS
                    p0 = lk.cuda.exp2_approx(s[m, 0] * float32(SCALE) - best[0] * float32(SCALE))
                    p1 = lk.cuda.exp2_approx(s[m, 1] * float32(SCALE) - best[1] * float32(SCALE))
                    total[0] += p0
                    total[1] += p1
                    for group in range(GROUPS):
                        scale, shift = lk.cuda.unpack_f16x2(at(rooms, header + group))
                        shift += float32(8) * scale
                        shifted[group, 0] += p0 * shift
                        shifted[group, 1] += p1 * shift
                        p[group, m] = lk.cuda.movmatrix_transposed(lk.cuda.pack_bf16x2(p0 * scale, p1 * scale))
                # The second product, 16 tokens at a time: matrices m and m + 1, of each the rows 2 q and 2 q + 1.
                for m in range(0, 4, 2):
                    for e in range(4):
                        row[e] = v + (R_STEP * (2 * q + e % 2) + M_STEP * (m + e // 2)) * WORDS + GROUPS
                    for group in range(GROUPS):
                        one = uint32(0x3F803F80 if g % GROUPS == group else 0)  # two of them in bfloat16
                        old = (ones[0], ones[1], ones[2], ones[3])
                        weights = (p[group, m], p[group, m + 1])
                        new = lk.cuda.mma_m16n8k16_bf16((one, one, one, one), weights, old)
                        for e in range(4):
                            ones[e] = new[e]
                    if GROUPS == 1:
                        # Rows g and g + 8 of product n are numbers n of words g and g + 8.
                        for half in range(2):
                            for e in range(4):  # 4 nibbles of one token and 4 of the next
                                two, word = e // 2 * 2, g + e % 2 * 8
                                x, y = at(rooms, row[two] + word), at(rooms, row[two + 1] + word)
                                w[e] = low_halves(x, y) if half == 0 else high_halves(x, y)
                            for i4 in range(4):
                                n = 4 * half + i4
                                a = (pair(w[0], i4), pair(w[1], i4), pair(w[2], i4), pair(w[3], i4))
                                weights, old = (p[0, m], p[0, m + 1]), (o[n, 0], o[n, 1], o[n, 2], o[n, 3])
                                new = lk.cuda.mma_m16n8k16_bf16(a, weights, old)
                                for e in range(4):
                                    o[n, e] = new[e]
                    else:
                        # Rows of a product are of one group: g and g + 8 are numbers 2 n and 2 n + 1 of half a word.
                        for group in range(GROUPS):
                            for e in range(2):
                                word = 4 * group + g % 4
                                x, y = at(rooms, row[2 * e] + word), at(rooms, row[2 * e + 1] + word)
                                w[e] = low_halves(x, y) if g < 4 else high_halves(x, y)
                            for i4 in range(0, 4, 2):
                                n = 2 * group + i4 // 2
                                a = (pair(w[0], i4), pair(w[0], i4 + 1), pair(w[1], i4), pair(w[1], i4 + 1))
                                weights, old = (p[group, m], p[group, m + 1]), (o[n, 0], o[n, 1], o[n, 2], o[n, 3])
                                new = lk.cuda.mma_m16n8k16_bf16(a, weights, old)
                                for e in range(4):
                                    o[n, e] = new[e]
            ### END SOLUTION

            # The 4 warps' parts of this sequence, put together through their own rooms.
            lk.cuda.cp_async_wait(0)
            cuda.syncwarp()  # nobody reads this warp's tiles any more
            for e in range(2):
                for far in (4, 8, 16):
                    total[e] += cuda.shfl_xor_sync(ALL, total[e], far)
                    for group in range(GROUPS):
                        shifted[group, e] += cuda.shfl_xor_sync(ALL, shifted[group, e], far)
            for i in range(8):
                for e in range(4):
                    group, h = i * GROUPS // 8, 2 * q + e % 2
                    all_p = cuda.shfl_sync(ALL, ones[e], 4 * group + q)
                    d = 8 * (g + e // 2 * 8) + i if GROUPS == 1 else (
                        32 * group + g % 4 * 8 + g // 4 * 4 + i % 2 * 2 + e // 2
                    )
                    number = o[i, e] - float32(136) * all_p + shifted[group, e % 2]
                    rooms[room + h * D + d] = bits_of(number)
            if g == 0:
                for e in range(2):
                    stat = room + HEADS * D + 2 * (2 * q + e)
                    rooms[stat], rooms[stat + 1] = bits_of(best[e]), bits_of(total[e])
            cuda.syncthreads()  # each warp's are there
            # Pieces of a block and pieces of a sequence follow each other: no two have the same worker + b.
            part = (cuda.blockIdx.y * (WORKERS + B) + worker + b) * HEADS
            d = 32 * warp + lane
            for h in range(HEADS):
                most, whole, number = float32(LEAST), float32(0), float32(0)
                for n in range(WARPS):
                    most = max(most, number_of(rooms[n * ROOM + HEADS * D + 2 * h]))
                for n in range(WARPS):
                    stat = n * ROOM + HEADS * D + 2 * h
                    times = lk.cuda.exp2_approx((number_of(rooms[stat]) - most) * float32(SCALE))
                    whole += times * number_of(rooms[stat + 1])
                    number += times * number_of(rooms[n * ROOM + h * D + d])
                parts[(part + h) * D + d] = number
                if d == 0:
                    stats[2 * (part + h)], stats[2 * (part + h) + 1] = most, whole
            cuda.syncthreads()  # before copies go over the rooms again
            before += tiles_of(length)
            b += 1

    return opt11_direct_mma


@cuda.jit
def combine(O, parts, stats, lengths, workers):
    """Put the pieces of a head together, a thread a column. Tile x belongs to worker ((x + 1) * workers - 1) / all."""
    h, b, d = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    B = len(lengths)
    before, tiles_all = 0, 0
    for i in range(d % 32, B, 32):
        tiles = tiles_of(lengths[i])
        tiles_all += tiles
        before += tiles if i < b else 0
    for far in (16, 8, 4, 2, 1):
        before += cuda.shfl_xor_sync(ALL, before, far)
        tiles_all += cuda.shfl_xor_sync(ALL, tiles_all, far)
    end = before + tiles_of(lengths[b])
    best, total, o = float32(LEAST), float32(0), float32(0)
    for w in range(((before + 1) * workers - 1) // tiles_all, (end * workers - 1) // tiles_all + 1):
        if tiles_all * w // workers < tiles_all * (w + 1) // workers:  # with more workers than tiles, some have none
            part = (h // HEADS * (WORKERS + B) + w + b) * HEADS + h % HEADS
            its = stats[2 * part]
            top = max(best, its)
            old = lk.cuda.exp2_approx((best - top) * float32(SCALE))
            mine = lk.cuda.exp2_approx((its - top) * float32(SCALE))
            total = total * old + stats[2 * part + 1] * mine
            o = o * old + parts[part * D + d] * mine
            best = top
    O[b, h, d] = rounded(o / total)


def launch(O, Q, K, V, lengths, split_k=16):
    (B, HQ, _), T, groups = O.shape, K.shape[1], (K.shape[3] - D // 2) // 4
    if (K.data_ptr() | V.data_ptr()) % 16:
        K, V = K.clone(), V.clone()  # copies of 16 bytes begin on 16
    blocks = (HQ + HEADS - 1) // HEADS  # of heads
    parts = O.new_empty(blocks * (WORKERS + B) * HEADS * D, dtype=torch.float32)
    stats = O.new_empty(blocks * (WORKERS + B) * HEADS * 2, dtype=torch.float32)
    workers = min(WORKERS, (B * ((T + TOKENS - 1) // TOKENS) + 7) // 8)
    Q, K, V = (x.view(torch.uint32).view(-1) for x in (Q, K, V))
    kernel_for(groups)[(workers, blocks), (32, WARPS)](parts, stats, Q, K, V, lengths, T, HQ)
    combine[(HQ, B), D](O.view(torch.int16), parts, stats, lengths, int32(workers))
