"""kv_append/fused: K[b, t] = half(RoPE of k[b, n] at t), V[b, t] = half(v[b, n]) at t = positions[b] + n.

Against three_kernels: one thread has a pair of k and the same pair of v; it turns the one, and rounds and stores both.
The turned keys never go to memory in float32, and there is one launch.
Watch: launches; load and store requests; bytes moved.
"""

from numba import cuda
from numba.cuda.types import float16


@cuda.jit
def kv_append_fused(K, V, k, v, turn, positions):
    """K, V: [B, T, HKV * D]; k, v: [B * N, HKV * D]; turn: [T, D / 2, 2]."""
    tokens, C, P = k.shape[0], k.shape[1], turn.shape[1]
    i = cuda.grid(1)
    token, c = i // (C // 2), i % (C // 2) * 2
    if token >= tokens:
        return
    N = tokens // positions.shape[0]
    ### BEGIN SOLUTION
    b = token // N
    t = positions[b] + token % N
    p = c // 2 % P
    cosine, sine = turn[t, p, 0], turn[t, p, 1]
    first, second = k[token, c], k[token, c + 1]
    K[b, t, c] = float16(first * cosine - second * sine)
    K[b, t, c + 1] = float16(first * sine + second * cosine)
    V[b, t, c] = float16(v[token, c])
    V[b, t, c + 1] = float16(v[token, c + 1])
    ### END SOLUTION


def launch(out, k, v, turn, positions):
    K, V = out
    B, N, HKV, D = k.shape
    rows = (B * N, HKV * D)
    grid = (k.numel() // 2 + 255) // 256
    kv_append_fused[grid, 256](K.flatten(2), V.flatten(2), k.view(rows), v.view(rows), turn, positions)
