"""int4_gqa/cuda_core: O[b, h] = softmax(Q[b, h] K[b]^T / sqrt(128)) V[b], K and V in 4 bits; no tensor cores.

The bottom rung: a block has one head of a sequence and 1 of split_k pieces of its tokens, and 4 warps take turns at
the tokens. A lane has 4 of the 128 numbers: 2 bytes of a row. The score of a token is a sum over the lanes, after
which all of them know it; the softmax is kept online, so that one walk over the tokens does. The warps' results,
and in a second kernel those of the pieces, are put together at the end.
Watch: instructions per number; each of the 8 heads reads all of K and V.

A row of the cache is a float16 scale and a float16 shift for each of 1 or 4 groups, and 64 bytes; byte i has number 2 i
in its low bits. It comes twice: as float16 and as int16. numba has no bfloat16: Q and O come as int16, a number's bits.
"""

import torch
from numba import cuda, float32, int16, int32
from numba.cuda import libdevice

D = 128
WARPS = 4
SCALE = 1.44269504 / 11.3137085  # exp(s / sqrt(128)) = 2^(s * SCALE)
LEAST = -3.4e38  # no score is smaller


@cuda.jit(device=True)
def widened(bits):
    """The float32 whose upper half is the bfloat16 `bits`."""
    return libdevice.int_as_float(int32(bits) << 16)


@cuda.jit(device=True)
def rounded(x):
    """The bits of the bfloat16 nearest to x; of two that are as near, the even one."""
    bits = libdevice.float_as_int(x)
    return int16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)


@cuda.jit
def pieces(parts, stats, Q, K_halves, K_pairs, V_halves, V_pairs, lengths, split_k):
    o_of = cuda.shared.array((WARPS, D), float32)
    best_of = cuda.shared.array(WARPS, float32)
    sum_of = cuda.shared.array(WARPS, float32)
    h = cuda.blockIdx.x
    b = cuda.blockIdx.y
    s = cuda.blockIdx.z
    lane = cuda.threadIdx.x
    warp = cuda.threadIdx.y
    d = 4 * lane
    groups = K_halves.shape[2] // 2 - 16
    group = lane * groups // 32  # of this lane's numbers
    length = lengths[b]
    piece = (length + split_k - 1) // split_k
    first = piece * s
    last = min(first + piece, length)
    best = float32(LEAST)
    total = float32(0)
    o0 = o1 = o2 = o3 = float32(0)
    q0 = widened(Q[b, h, d])
    q1 = widened(Q[b, h, d + 1])
    q2 = widened(Q[b, h, d + 2])
    q3 = widened(Q[b, h, d + 3])
    ### BEGIN SOLUTION
    for t in range(first + warp, last, WARPS):
        scale = float32(K_halves[b, t, 2 * group])
        shift = float32(K_halves[b, t, 2 * group + 1])
        packed = int32(K_pairs[b, t, 2 * groups + lane])
        k0 = float32(packed & 15) * scale + shift
        k1 = float32(packed >> 4 & 15) * scale + shift
        k2 = float32(packed >> 8 & 15) * scale + shift
        k3 = float32(packed >> 12 & 15) * scale + shift
        score = q0 * k0 + q1 * k1 + q2 * k2 + q3 * k3
        far = 16
        while far > 0:
            score += cuda.shfl_xor_sync(0xFFFFFFFF, score, far)
            far //= 2
        top = max(best, score)
        old = libdevice.exp2f((best - top) * float32(SCALE))
        p = libdevice.exp2f((score - top) * float32(SCALE))
        scale = float32(V_halves[b, t, 2 * group])
        shift = float32(V_halves[b, t, 2 * group + 1])
        packed = int32(V_pairs[b, t, 2 * groups + lane])
        o0 = o0 * old + p * (float32(packed & 15) * scale + shift)
        o1 = o1 * old + p * (float32(packed >> 4 & 15) * scale + shift)
        o2 = o2 * old + p * (float32(packed >> 8 & 15) * scale + shift)
        o3 = o3 * old + p * (float32(packed >> 12 & 15) * scale + shift)
        total = total * old + p
        best = top
    ### END SOLUTION
    o_of[warp, d] = o0
    o_of[warp, d + 1] = o1
    o_of[warp, d + 2] = o2
    o_of[warp, d + 3] = o3
    if lane == 0:
        best_of[warp] = best
        sum_of[warp] = total
    cuda.syncthreads()  # each warp's are there
    best = best_of[0]
    total = sum_of[0]
    d = warp * 32 + lane  # each thread has a column from here on
    o = o_of[0, d]
    for w in range(1, WARPS):
        top = max(best, best_of[w])
        old = libdevice.exp2f((best - top) * float32(SCALE))
        its = libdevice.exp2f((best_of[w] - top) * float32(SCALE))
        o = o * old + o_of[w, d] * its
        total = total * old + sum_of[w] * its
        best = top
    parts[s, b, h, d] = o
    if d == 0:
        stats[s, b, h, 0] = best
        stats[s, b, h, 1] = total


@cuda.jit
def combine(O, parts, stats):
    """Put the pieces of a head together, one thread per column: each is scaled to the largest maximum of all."""
    h = cuda.blockIdx.x
    b = cuda.blockIdx.y
    d = cuda.threadIdx.x
    best = float32(LEAST)
    total = float32(0)
    o = float32(0)
    for s in range(parts.shape[0]):
        top = max(best, stats[s, b, h, 0])
        old = libdevice.exp2f((best - top) * float32(SCALE))
        its = libdevice.exp2f((stats[s, b, h, 0] - top) * float32(SCALE))
        o = o * old + parts[s, b, h, d] * its
        total = total * old + stats[s, b, h, 1] * its
        best = top
    O[b, h, d] = rounded(o / total)


def launch(O, Q, K, V, lengths, split_k=16):
    B, HQ = O.shape[:2]
    parts = O.new_empty((split_k, B, HQ, D), dtype=torch.float32)
    stats = O.new_empty((split_k, B, HQ, 2), dtype=torch.float32)
    K, V = K.squeeze(2), V.squeeze(2)
    halves, pairs = torch.float16, torch.int16
    pieces[(HQ, B, split_k), (32, WARPS)](
        parts, stats, Q.view(pairs), K.view(halves), K.view(pairs), V.view(halves), V.view(pairs), lengths, split_k
    )
    combine[(HQ, B), D](O.view(pairs), parts, stats)
