"""gqa_bf16/direct_mma: O[b, h] = softmax(Q[b, h] K[b]^T / sqrt(128)) V[b], K and V in bfloat16; tensor cores.

Against cu_optimized: nobody waits for loads. Each warp has tiles of 16 tokens of its own on their way by cp.async,
ldmatrix makes fragments of them (of V turned round), 16 tokens as rows and the 8 heads as columns of mma.m16n8k16;
movmatrix turns the scores into the operand of the second product, with 16 numbers as rows. The softmax is
kept online. The 16-byte pieces of a row change places, so that the 8 rows of a matrix find 32 banks. The tokens of all
sequences are cut evenly among the blocks; a second kernel puts the pieces together. (CUDA C++ has 4 warps in a block;
here 2 of them fill the 48 KiB of shared memory that numba can ask for, and twice as many blocks share the tokens.)
Watch: DRAM throughput; bytes in flight.

numba has no bfloat16: Q comes as words of two, K and V as words that are copied as they are, O as a number's bits.
"""

import torch
from numba import cuda, float32, int16, int32, uint32
from numba.cuda import libdevice

import labkit as lk

WORKERS = 528  # blocks that share all tokens, at most: 4 on each of 132 multiprocessors
D, HEADS, WARPS, TOKENS = 128, 8, 2, 16
ROW, TILE, STAGES = D // 2, TOKENS * D // 2, 3  # 4-byte words
ROOM = STAGES * 2 * TILE  # of a warp: K and V of each stage
SHARED = WARPS * ROOM
AHEAD = STAGES - 2  # groups of copies that are on their way while a tile is used
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
def place(r, c):
    """Where 16-byte piece c of row r of a tile lies."""
    return r * ROW + (c ^ r % 8) * 4


@cuda.jit(device=True)
def start_tile(rooms, to, K, V, row, rows):
    """Start copying `rows` rows of K and of V from row `row` on, zeros for those that are missing of 16."""
    lane = cuda.threadIdx.x
    for i in range(0, TOKENS, 2):
        r, c = i + lane // 16, lane % 16
        at = (row + (r if r < rows else 0)) * ROW + 4 * c
        size = 16 if r < rows else 0
        lk.cuda.cp_async(rooms, to + place(r, c), K, at, size)
        lk.cuda.cp_async(rooms, to + TILE + place(r, c), V, at, size)


@cuda.jit
def direct_mma(parts, stats, Q, K, V, lengths, T, HQ):
    rooms = cuda.shared.array(SHARED, float32, alignment=128)
    fragment = cuda.local.array((8, 2), uint32)
    o = cuda.local.array((8, 4), float32)  # p v for 8 x 16 numbers
    s = cuda.local.array(4, float32)
    top = cuda.local.array(2, float32)
    best = cuda.local.array(2, float32)  # the largest score of heads 2 q and 2 q + 1
    total = cuda.local.array(2, float32)  # the sum of p of this lane's tokens
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

        # Q as the second operand: of head g, numbers 16 j + 2 q and the next, and those 8 further.
        for j in range(8):
            for e in range(2):
                there = head0 + g < HQ
                fragment[j, e] = Q[(b * HQ + head0 + g) * ROW + 8 * j + q + 4 * e] if there else uint32(0)
        for e in range(2):
            best[e], total[e] = float32(LEAST), float32(0)
        for i in range(8):
            for e in range(4):
                o[i, e] = float32(0)
        ### BEGIN SOLUTION
        for i in range(STAGES - 1):
            if i < tiles:
                t = TOKENS * (tile0 + WARPS * i)
                start_tile(rooms, room + i * 2 * TILE, K, V, b * T + t, length - t)
            lk.cuda.cp_async_commit()  # an empty group keeps the count
        for i in range(tiles):
            lk.cuda.cp_async_wait(AHEAD)
            cuda.syncwarp()  # this tile is there, and nobody reads the last one any more: the next copy goes over it
            ahead = i + STAGES - 1
            if ahead < tiles:
                t = TOKENS * (tile0 + WARPS * ahead)
                start_tile(rooms, room + ahead % STAGES * 2 * TILE, K, V, b * T + t, length - t)
            lk.cuda.cp_async_commit()
            t0 = TOKENS * (tile0 + WARPS * i)
            k = room + i % STAGES * 2 * TILE
            v = k + TILE

            # Scores of heads 2 q and 2 q + 1 for tokens g (s[0], s[1]) and g + 8.
            for e in range(4):
                s[e] = float32(0)
            for j in range(8):  # rows 0 to 15 at 16 j, then the same at 16 j + 8
                a = lk.cuda.ldmatrix(rooms, k + place(lane % 16, 2 * j + lane // 16))
                new = lk.cuda.mma_m16n8k16_bf16(a, (fragment[j, 0], fragment[j, 1]), (s[0], s[1], s[2], s[3]))
                for e in range(4):
                    s[e] = new[e]
            for e in range(4):
                if t0 + g + e // 2 * 8 >= length:
                    s[e] = float32(LEAST)

            # Online softmax: sums so far shrink where a larger score has come.
            for e in range(2):
                largest = max(s[e], s[2 + e])
                for far in (4, 8, 16):  # the lanes with the same heads
                    largest = max(largest, cuda.shfl_xor_sync(ALL, largest, far))
                top[e] = largest
            if cuda.any_sync(ALL, top[0] > best[0] or top[1] > best[1]):
                for e in range(2):
                    largest = max(top[e], best[e])
                    shrink = lk.cuda.exp2_approx((best[e] - largest) * float32(SCALE))
                    best[e] = largest
                    total[e] *= shrink
                    for i8 in range(8):
                        o[i8, e] *= shrink
                        o[i8, 2 + e] *= shrink

            # p of heads 2 q, 2 q + 1 for one token in a word: turned round, of head g for tokens 2 q, 2 q + 1.
            for e in range(4):
                s[e] = lk.cuda.exp2_approx(s[e] * float32(SCALE) - best[e % 2] * float32(SCALE))
                total[e % 2] += s[e]
            p = (
                lk.cuda.movmatrix_transposed(lk.cuda.pack_bf16x2(s[0], s[1])),
                lk.cuda.movmatrix_transposed(lk.cuda.pack_bf16x2(s[2], s[3])),
            )
            for j in range(8):  # tokens 0 to 7 at 16 j and 16 j + 8, then tokens 8 to 15
                a = lk.cuda.ldmatrix_transposed(rooms, v + place(lane % 8 + lane // 16 * 8, 2 * j + lane // 8 % 2))
                new = lk.cuda.mma_m16n8k16_bf16(a, p, (o[j, 0], o[j, 1], o[j, 2], o[j, 3]))
                for e in range(4):
                    o[j, e] = new[e]
        ### END SOLUTION

        # The warps' parts of this sequence, put together through their own rooms.
        lk.cuda.cp_async_wait(0)
        cuda.syncwarp()  # nobody reads this warp's tiles any more
        for e in range(2):
            for far in (4, 8, 16):
                total[e] += cuda.shfl_xor_sync(ALL, total[e], far)
        for i in range(8):
            for e in range(4):
                rooms[room + (2 * q + e % 2) * D + 16 * i + g + e // 2 * 8] = o[i, e]
        if g == 0:
            for e in range(2):
                rooms[room + HEADS * D + 2 * (2 * q + e)] = best[e]
                rooms[room + HEADS * D + 2 * (2 * q + e) + 1] = total[e]
        cuda.syncthreads()  # each warp's are there
        # Pieces of a block and pieces of a sequence follow each other: no two have the same worker + b.
        part = (cuda.blockIdx.y * (WORKERS + B) + worker + b) * HEADS
        for h in range(HEADS):
            most, whole = float32(LEAST), float32(0)
            for w in range(WARPS):
                most = max(most, rooms[w * ROOM + HEADS * D + 2 * h])
            for d in range(32 * warp + lane, D, 32 * WARPS):
                number, whole = float32(0), float32(0)
                for w in range(WARPS):
                    at = w * ROOM + HEADS * D + 2 * h
                    times = lk.cuda.exp2_approx((rooms[at] - most) * float32(SCALE))
                    whole += times * rooms[at + 1]
                    number += times * rooms[w * ROOM + h * D + d]
                parts[(part + h) * D + d] = number
            if warp == 0 and lane == 0:
                stats[2 * (part + h)], stats[2 * (part + h) + 1] = most, whole
        cuda.syncthreads()  # before copies go over the rooms again
        before += tiles_of(length)
        b += 1


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
    (B, HQ, _), T = O.shape, K.shape[1]
    if (K.data_ptr() | V.data_ptr()) % 16:
        K, V = K.clone(), V.clone()  # copies of 16 bytes begin on 16
    groups = (HQ + HEADS - 1) // HEADS  # of heads
    parts = O.new_empty(groups * (WORKERS + B) * HEADS * D, dtype=torch.float32)
    stats = O.new_empty(groups * (WORKERS + B) * HEADS * 2, dtype=torch.float32)
    workers = min(WORKERS, (B * ((T + TOKENS - 1) // TOKENS) + 7) // 8)
    Q, K, V = (x.view(torch.uint32).view(-1) for x in (Q, K, V))
    direct_mma[(workers, groups), (32, WARPS)](parts, stats, Q, K, V, lengths, T, HQ)
    combine[(HQ, B), D](O.view(torch.int16), parts, stats, lengths, int32(workers))
