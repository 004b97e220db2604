"""kv_append/vectorized: K[b, t] = half(RoPE of k[b, n] at t), V[b, t] = half(v[b, n]) at t = positions[b] + n.

Against fused: a thread has 4 pairs, 16 bytes of a cache's row, of up to 4 heads. It reads cosines and sines once for
these heads, and asks for everything before it computes. Heads whose size is no multiple of 8 go pair by pair.
Watch: instructions; load and store requests.
"""

from numba import cuda, float32
from numba.cuda.types import float16

import labkit as lk

HEADS = 4  # of a thread


@cuda.jit(device=True)
def turned(x, by):
    """Two pairs, turned by the cosines and sines of `by`."""
    return (
        x[0] * by[0] - x[1] * by[1],
        x[0] * by[1] + x[1] * by[0],
        x[2] * by[2] - x[3] * by[3],
        x[2] * by[3] + x[3] * by[2],
    )


@cuda.jit
def kv_append_vectorized(K, V, k, v, turn, positions, N, T, HKV, D):
    """All arrays in a row, without their shapes."""
    i = cuda.grid(1)  # counts pieces, then groups of heads, tokens, sequences
    pieces, groups = (D + 7) // 8, (HKV + HEADS - 1) // HEADS
    d, h, token = i % pieces * 8, i // pieces % groups * HEADS, i // pieces // groups
    b = token // N
    if b >= positions.shape[0]:
        return
    t = positions[b] + token % N
    by = t * D + d
    start, to = (token * HKV + h) * D + d, ((b * T + t) * HKV + h) * D + d
    heads = min(HEADS, HKV - h)
    if D % 8 == 0:
        ### BEGIN SOLUTION
        by0, by1 = lk.cuda.load4(turn, by), lk.cuda.load4(turn, by + 4)
        x = cuda.local.array((HEADS, 16), float32)  # 8 numbers of k, then 8 of v
        for e in range(HEADS):
            if e < heads:
                at = start + e * D
                a, c = lk.cuda.load4(k, at), lk.cuda.load4(k, at + 4)
                f, g = lk.cuda.load4(v, at), lk.cuda.load4(v, at + 4)
                for j in range(4):
                    x[e, j], x[e, 4 + j], x[e, 8 + j], x[e, 12 + j] = a[j], c[j], f[j], g[j]
        for e in range(HEADS):
            if e < heads:
                at = to + e * D
                a = turned((x[e, 0], x[e, 1], x[e, 2], x[e, 3]), by0)
                c = turned((x[e, 4], x[e, 5], x[e, 6], x[e, 7]), by1)
                lk.cuda.store8(K, at, (a[0], a[1], a[2], a[3], c[0], c[1], c[2], c[3]))
                a, c = (x[e, 8], x[e, 9], x[e, 10], x[e, 11]), (x[e, 12], x[e, 13], x[e, 14], x[e, 15])
                lk.cuda.store8(V, at, (a[0], a[1], a[2], a[3], c[0], c[1], c[2], c[3]))
        ### END SOLUTION
    else:
        for e in range(heads):
            for j in range(0, min(8, D - d), 2):
                at, there = start + e * D + j, to + e * D + j
                cosine, sine = turn[by + j], turn[by + j + 1]
                K[there] = float16(k[at] * cosine - k[at + 1] * sine)
                K[there + 1] = float16(k[at] * sine + k[at + 1] * cosine)
                V[there] = float16(v[at])
                V[there + 1] = float16(v[at + 1])


def launch(out, k, v, turn, positions):
    K, V = out
    B, N, HKV, D = k.shape
    work = B * N * ((HKV + HEADS - 1) // HEADS) * ((D + 7) // 8)
    flat = [t.view(-1) for t in (K, V, k, v, turn)]
    kv_append_vectorized[(work + 127) // 128, 128](*flat, positions, N, K.shape[1], HKV, D)
