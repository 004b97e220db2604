"""attention/flash_mma: O = softmax(scale Q K^T) V in float16, and L in float32, on tensor cores.

Against flash_double_buffered: both products move to the tensor cores, and weights never leave their registers. What a
lane holds of the scores after Q K^T, rounded to 16 bits in pairs, is what it has to hold of P to multiply by V. A warp
has 16 queries. scale * log2(e) goes into one multiply-add before exp2. Tiles of 64 queries and 64 keys fill the 48 KiB
that numba can ask for: K and V take turns. CUDA C++ has two stages of both, and 32 queries per warp, so that a fragment
of K or V serves two multiplications.
Watch: tensor operations; shared wavefronts per tensor operation; stalls on exp2 (MUFU) between the products.
"""

import functools
import math

import numpy as np
from numba import cuda, float32, uint32
from numba.cuda.types import float16

import labkit as lk

BM, BN = 64, 64  # queries and keys of a tile
THREADS = 128  # a warp has 16 queries
LOWEST = np.float32(-1e30)  # below any score; and not -inf: -inf - -inf is NaN
ALL = 0xFFFFFFFF
LOG2_E = 1.4426950408889634


@functools.cache
def kernel_for(D):
    """The kernel for a head dimension."""
    SIZE_Q, SIZE_K = BM * D, BN * D
    PIECES = min(D // 8, 8)
    ROWS = 8 // PIECES  # of the tile in a line of 128 bytes
    SLICES, SCORES, KEYS, SUMS = D // 16, BN // 8, BN // 16, D // 8

    @cuda.jit(device=True, inline=True)
    def place(r, c):
        """Where element (r, c) of a tile lies: 8 rows at the same c fill the 128 bytes of the banks once."""
        return r * D + ((c // 8) ^ (r // ROWS % PIECES)) * 8 + c % 8

    @cuda.jit(device=True)
    def start_tile(to, A, start, row0, rows):
        """Start copying rows row0 .. row0 + 63 of the matrix at A[start:]; zeros past its last row."""
        for i in range(cuda.threadIdx.x, BN * D // 8, THREADS):
            r, c = i // (D // 8), i % (D // 8) * 8
            row = min(row0 + r, rows - 1)
            lk.cuda.cp_async(to, place(r, c), A, start + row * D + c, 16 if row0 + r < rows else 0)
        lk.cuda.cp_async_commit()

    @cuda.jit(device=True)
    def arrive():
        """What this block has started is there, and nobody reads the other buffer any more."""
        lk.cuda.cp_async_wait(0)
        cuda.syncthreads()

    @cuda.jit
    def attention_flash_mma(O, L, Q, K, V, N, NK, group, scale, causal):
        """group: query heads per key head."""
        tQ = cuda.shared.array(SIZE_Q, float16, alignment=128)
        tK = cuda.shared.array(SIZE_K, float16, alignment=128)
        tV = cuda.shared.array(SIZE_K, float16, alignment=128)
        p = cuda.local.array((KEYS, 4), uint32)  # the weights as left factors of V
        s = cuda.local.array((SCORES, 4), float32)
        o = cuda.local.array((SUMS, 4), float32)
        m = cuda.local.array(2, float32)  # of rows lane // 4 and 8 further
        l = cuda.local.array(2, float32)
        tiles = (N + BM - 1) // BM
        head = cuda.blockIdx.x // tiles
        row0 = (tiles - 1 - cuda.blockIdx.x % tiles) * BM
        lane, wm = cuda.threadIdx.x % 32, cuda.threadIdx.x // 32 * 16
        first, kv = head * N, head // group * NK * D
        scale2 = scale * float32(LOG2_E)  # exp(x) is exp2(x log2(e))
        for i in range(2):
            m[i], l[i] = LOWEST, float32(0)
        for j in range(SUMS):
            for e in range(4):
                o[j, e] = float32(0)
        start_tile(tQ, Q, first * D, row0, N)
        start_tile(tK, K, kv, 0, NK)
        keys = min(NK, row0 + BM) if causal else NK
        for col0 in range(0, keys, BN):
            arrive()  # K is there, V is free
            ### BEGIN SOLUTION
            start_tile(tV, V, kv, col0, NK)
            for j in range(SCORES):
                for e in range(4):
                    s[j, e] = float32(0)
            for k in range(SLICES):
                q = lk.cuda.ldmatrix(tQ, place(wm + lane % 16, 16 * k + lane // 16 * 8))
                for j in range(KEYS):
                    # Rows of K are columns to the multiplication: lanes name 8 keys at k, at k + 8, then 8 keys more.
                    b = lk.cuda.ldmatrix(tK, place(16 * j + lane // 16 * 8 + lane % 8, 16 * k + lane // 8 % 2 * 8))
                    for half in range(2):
                        n = 2 * j + half
                        part = (b[0], b[1]) if half == 0 else (b[2], b[3])
                        new = lk.cuda.mma_m16n8k16(q, part, (s[n, 0], s[n, 1], s[n, 2], s[n, 3]))
                        for e in range(4):
                            s[n, e] = new[e]
            for half in range(2):
                row, largest, total = row0 + wm + 8 * half + lane // 4, m[half], float32(0)
                for j in range(SCORES):
                    for e in range(2):
                        col = col0 + 8 * j + lane % 4 * 2 + e
                        if col >= NK or causal and col > row:
                            s[j, 2 * half + e] = float32(-math.inf)
                        largest = max(largest, s[j, 2 * half + e])
                largest = max(largest, cuda.shfl_xor_sync(ALL, largest, 1))  # the 4 lanes that share a row
                largest = max(largest, cuda.shfl_xor_sync(ALL, largest, 2))
                correction = lk.cuda.exp2_approx((m[half] - largest) * scale2)
                for j in range(SCORES):
                    x = lk.cuda.exp2_approx(s[j, 2 * half] * scale2 - largest * scale2)
                    y = lk.cuda.exp2_approx(s[j, 2 * half + 1] * scale2 - largest * scale2)
                    total += x + y
                    p[j // 2, j % 2 * 2 + half] = lk.cuda.pack_f16x2(x, y)
                m[half] = largest
                l[half] = l[half] * correction + total  # of this lane's keys; the 4 lanes of a row add up at the end
                for j in range(SUMS):
                    o[j, 2 * half] *= correction
                    o[j, 2 * half + 1] *= correction
            arrive()  # V is there, K is free
            if col0 + BN < keys:
                start_tile(tK, K, kv, col0 + BN, NK)
            for k in range(KEYS):
                weights = (p[k, 0], p[k, 1], p[k, 2], p[k, 3])
                for j in range(SLICES):
                    b = lk.cuda.ldmatrix_transposed(tV, place(16 * k + lane % 16, 16 * j + lane // 16 * 8))
                    for half in range(2):
                        n = 2 * j + half
                        part = (b[0], b[1]) if half == 0 else (b[2], b[3])
                        new = lk.cuda.mma_m16n8k16(weights, part, (o[n, 0], o[n, 1], o[n, 2], o[n, 3]))
                        for e in range(4):
                            o[n, e] = new[e]
            ### END SOLUTION
        for half in range(2):
            total = l[half]
            total += cuda.shfl_xor_sync(ALL, total, 1)
            total += cuda.shfl_xor_sync(ALL, total, 2)
            row = row0 + wm + 8 * half + lane // 4
            if row < N:
                inverse = float32(1) / total if total > 0 else float32(0)  # a row of -inf has no sum
                for j in range(SUMS):
                    for e in range(2):
                        O[(first + row) * D + 8 * j + lane % 4 * 2 + e] = float16(o[j, 2 * half + e] * inverse)
                if lane % 4 == 0:
                    L[first + row] = m[half] * scale + math.log(total) if total > 0 else float32(-math.inf)

    return attention_flash_mma


def launch(out, Q, K, V, scale=0.0, causal=0):
    O, L = out
    (B, H, N, D), (_, HK, NK, _) = Q.shape, K.shape
    flat = [t.view(-1) for t in (O, L, Q, K, V)]
    scale = np.float32(scale or 1 / math.sqrt(D))
    kernel_for(D)[(N + BM - 1) // BM * B * H, THREADS](*flat, N, NK, H // HK, scale, causal)
