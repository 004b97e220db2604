"""kv_append/three_kernels: K[b, t] = half(RoPE of k[b, n] at t), V[b, t] = half(v[b, n]) at t = positions[b] + n.

The first rung, and llama.cpp's way: RoPE in float32, into memory; then a kernel that rounds numbers to float16 and puts
them into a cache, once for the keys and once for the values. One thread per pair, or per number.
Watch: launches; the turned keys go to memory and come back.
"""

from numba import cuda
from numba.cuda.types import float16


@cuda.jit
def kv_append_rope(turned, k, turn, positions):
    """turned, k: [B * N, HKV * D / 2, 2]; turn: [T, D / 2, 2]."""
    tokens, pairs, P = k.shape[0], k.shape[1], turn.shape[1]
    i = cuda.grid(1)
    token, pair = i // pairs, i % pairs
    if token >= tokens:
        return
    N = tokens // positions.shape[0]
    ### BEGIN SOLUTION
    t = positions[token // N] + token % N
    cosine, sine = turn[t, pair % P, 0], turn[t, pair % P, 1]
    a, b = k[token, pair, 0], k[token, pair, 1]
    turned[token, pair, 0] = a * cosine - b * sine
    turned[token, pair, 1] = a * sine + b * cosine
    ### END SOLUTION


@cuda.jit
def kv_append_copy(cache, rows, positions):
    """cache: [B, T, HKV * D]; rows: [B, N, HKV * D]."""
    B, N, C = rows.shape
    i = cuda.grid(1)
    token = i // C
    b, n = token // N, token % N
    if b >= B:
        return
    ### BEGIN SOLUTION
    cache[b, positions[b] + n, i % C] = float16(rows[b, n, i % C])
    ### END SOLUTION


def launch(out, k, v, turn, positions):
    K, V = out
    B, N, HKV, D = k.shape
    turned = k.new_empty(k.shape)
    pairs = (B * N, HKV * (D // 2), 2)
    kv_append_rope[(k.numel() // 2 + 255) // 256, 256](turned.view(pairs), k.view(pairs), turn, positions)
    for cache, rows in ((K, turned), (V, v)):
        kv_append_copy[(k.numel() + 255) // 256, 256](cache.flatten(2), rows.flatten(2), positions)
