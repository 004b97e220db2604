"""attention_backward/recompute: dQ, dK, dV of attention in float32, with the weights computed again.

Against keeping the weights of the forward pass: they are computed again from Q, K and L, tile by tile, and no tensor of
N x NK numbers exists. A block that owns keys walks over the queries and sums dK and dV in registers; another kernel,
whose blocks own queries, walks over the keys for dQ. So nobody adds to what another block adds to, and the result is
the same each time; the price is that scores and dP are computed twice, seven products in place of five. Tiles are 16 x
16, for numba cannot ask for more than 48 KiB of shared memory.
Watch: peak of memory; FFMA against the forward pass.
"""

import functools
import math

import numpy as np
from numba import cuda, float32

import labkit as lk

TILE = 16  # queries and keys of a tile
THREADS = 64  # 8 down and 8 across: 2 queries, or 2 keys, for each
LP = TILE + 4  # rows of tiles are padded by 16 bytes: 8 rows at the same column fill the banks once
SIZE_P = TILE * LP
ALL = 0xFFFFFFFF


@cuda.jit
def attention_backward_rows(R, O, dO, D):
    """R = sum of dO O of each row, a warp per row."""
    row = cuda.blockIdx.x * 4 + cuda.threadIdx.x // 32
    if row >= R.shape[0]:
        return
    total = float32(0)
    for d in range(cuda.threadIdx.x % 32, D, 32):
        total += O[row * D + d] * dO[row * D + d]
    for d in (16, 8, 4, 2, 1):
        total += cuda.shfl_xor_sync(ALL, total, d)
    if cuda.threadIdx.x % 32 == 0:
        R[row] = total


@functools.cache
def kernels_for(D):
    """The kernels of dK and dV, and of dQ, for a head dimension."""
    LD = D + 4
    SIZE = TILE * LD
    COLUMNS = D // 32

    @cuda.jit(device=True)
    def load_tile(to, A, start, row0, rows):
        """Rows row0 .. row0 + 15 of the matrix at A[start:]; zeros past its last row."""
        zero = (float32(0), float32(0), float32(0), float32(0))
        for n in range(TILE * D // 4 // THREADS):
            i = n * THREADS + cuda.threadIdx.x
            r, c = i // (D // 4), i % (D // 4) * 4
            x = lk.cuda.load4(A, start + (row0 + r) * D + c) if row0 + r < rows else zero
            lk.cuda.store4(to, r * LD + c, x)

    @cuda.jit(device=True)
    def weights(tP, tS, tQ, tdO, tK, tV, L, R, first, row0, col0, N, NK, scale, causal):
        """P and dS (with the scale) of the tile at row0, col0 into shared memory; 0 where a query sees no key."""
        y, x = cuda.threadIdx.x // 8 * 2, cuda.threadIdx.x % 8  # queries y and y + 1, keys x and x + 8
        s = cuda.local.array((2, 2), float32)
        dp = cuda.local.array((2, 2), float32)
        ### BEGIN SOLUTION
        for i in range(2):
            for j in range(2):
                s[i, j] = dp[i, j] = float32(0)
        for d in range(0, D, 4):
            for j in range(2):
                k = lk.cuda.load4(tK, (x + 8 * j) * LD + d)
                v = lk.cuda.load4(tV, (x + 8 * j) * LD + d)
                for i in range(2):
                    q = lk.cuda.load4(tQ, (y + i) * LD + d)
                    o = lk.cuda.load4(tdO, (y + i) * LD + d)
                    for e in range(4):
                        s[i, j] += q[e] * k[e]
                        dp[i, j] += o[e] * v[e]
        for i in range(2):
            row = row0 + y + i
            l = L[first + row] if row < N else float32(0)
            r = R[first + row] if row < N else float32(0)
            for j in range(2):
                col = col0 + x + 8 * j
                seen = row < N and col < NK and (not causal or col <= row)
                p = math.exp(s[i, j] * scale - l) if seen else float32(0)
                tP[(y + i) * LP + x + 8 * j] = p
                tS[(y + i) * LP + x + 8 * j] = p * (dp[i, j] - r) * scale
        ### END SOLUTION

    @cuda.jit
    def attention_backward_keys(dK, dV, Q, K, V, L, dO, R, N, NK, group, scale, causal):
        """group: query heads per key head."""
        tK = cuda.shared.array(SIZE, float32, alignment=16)
        tV = cuda.shared.array(SIZE, float32, alignment=16)
        tQ = cuda.shared.array(SIZE, float32, alignment=16)
        tdO = cuda.shared.array(SIZE, float32, alignment=16)
        tP = cuda.shared.array(SIZE_P, float32, alignment=16)
        tS = cuda.shared.array(SIZE_P, float32, alignment=16)
        k = cuda.local.array((2, COLUMNS, 4), float32)
        v = cuda.local.array((2, COLUMNS, 4), float32)
        tiles = (NK + TILE - 1) // TILE
        head, col0 = cuda.blockIdx.x // tiles, cuda.blockIdx.x % tiles * TILE
        y, x = cuda.threadIdx.x // 8 * 2, cuda.threadIdx.x % 8  # keys y and y + 1, columns from 4 x + 32 c
        of_head = head * NK * D
        for j in range(2):
            for c in range(COLUMNS):
                for e in range(4):
                    k[j, c, e] = v[j, c, e] = float32(0)
        load_tile(tK, K, of_head, col0, NK)
        load_tile(tV, V, of_head, col0, NK)
        for h in range(head * group, (head + 1) * group):
            for row0 in range(col0 if causal else 0, N, TILE):  # queries before col0 see none of these keys
                cuda.syncthreads()  # nobody reads the last tiles any more
                load_tile(tQ, Q, h * N * D, row0, N)
                load_tile(tdO, dO, h * N * D, row0, N)
                cuda.syncthreads()  # the tiles are there
                weights(tP, tS, tQ, tdO, tK, tV, L, R, h * N, row0, col0, N, NK, scale, causal)
                cuda.syncthreads()  # P and dS are there
                ### BEGIN SOLUTION
                for i in range(TILE):
                    for c in range(COLUMNS):
                        o = lk.cuda.load4(tdO, i * LD + 4 * x + 32 * c)
                        q = lk.cuda.load4(tQ, i * LD + 4 * x + 32 * c)
                        for j in range(2):
                            for e in range(4):
                                v[j, c, e] += tP[i * LP + y + j] * o[e]
                                k[j, c, e] += tS[i * LP + y + j] * q[e]
                ### END SOLUTION
        for j in range(2):
            if col0 + y + j < NK:
                for c in range(COLUMNS):
                    at = of_head + (col0 + y + j) * D + 4 * x + 32 * c
                    lk.cuda.store4(dK, at, (k[j, c, 0], k[j, c, 1], k[j, c, 2], k[j, c, 3]))
                    lk.cuda.store4(dV, at, (v[j, c, 0], v[j, c, 1], v[j, c, 2], v[j, c, 3]))

    @cuda.jit
    def attention_backward_queries(dQ, Q, K, V, L, dO, R, N, NK, group, scale, causal):
        """group: query heads per key head."""
        tK = cuda.shared.array(SIZE, float32, alignment=16)
        tV = cuda.shared.array(SIZE, float32, alignment=16)
        tQ = cuda.shared.array(SIZE, float32, alignment=16)
        tdO = cuda.shared.array(SIZE, float32, alignment=16)
        tP = cuda.shared.array(SIZE_P, float32, alignment=16)
        tS = cuda.shared.array(SIZE_P, float32, alignment=16)
        q = cuda.local.array((2, COLUMNS, 4), float32)
        tiles = (N + TILE - 1) // TILE
        head, row0 = cuda.blockIdx.x // tiles, (tiles - 1 - cuda.blockIdx.x % tiles) * TILE
        y, x = cuda.threadIdx.x // 8 * 2, cuda.threadIdx.x % 8  # queries y and y + 1, columns from 4 x + 32 c
        of_head, of_keys = head * N * D, head // group * NK * D
        for i in range(2):
            for c in range(COLUMNS):
                for e in range(4):
                    q[i, c, e] = float32(0)
        load_tile(tQ, Q, of_head, row0, N)
        load_tile(tdO, dO, of_head, row0, N)
        for col0 in range(0, min(NK, row0 + TILE) if causal else NK, TILE):
            cuda.syncthreads()  # nobody reads the last tiles of K and V any more
            load_tile(tK, K, of_keys, col0, NK)
            load_tile(tV, V, of_keys, col0, NK)
            cuda.syncthreads()  # the tiles of K and V are there
            weights(tP, tS, tQ, tdO, tK, tV, L, R, head * N, row0, col0, N, NK, scale, causal)
            cuda.syncthreads()  # dS is there
            ### BEGIN SOLUTION
            for j in range(TILE):
                for c in range(COLUMNS):
                    k = lk.cuda.load4(tK, j * LD + 4 * x + 32 * c)
                    for i in range(2):
                        for e in range(4):
                            q[i, c, e] += tS[(y + i) * LP + j] * k[e]
            ### END SOLUTION
        for i in range(2):
            if row0 + y + i < N:
                for c in range(COLUMNS):
                    at = of_head + (row0 + y + i) * D + 4 * x + 32 * c
                    lk.cuda.store4(dQ, at, (q[i, c, 0], q[i, c, 1], q[i, c, 2], q[i, c, 3]))

    return attention_backward_keys, attention_backward_queries


def launch(out, Q, K, V, O, L, dO, scale=0.0, causal=0):
    (B, H, N, D), (_, HK, NK, _) = Q.shape, K.shape
    R = L.new_empty(B * H * N)
    dQ, dK, dV = (t.view(-1) for t in out)
    Q, K, V, O, L, dO = (t.view(-1) for t in (Q, K, V, O, L, dO))
    scale = np.float32(scale or 1 / math.sqrt(D))
    of_keys, of_queries = kernels_for(D)
    attention_backward_rows[(B * H * N + 3) // 4, 128](R, O, dO, D)
    shape = N, NK, H // HK, scale, causal
    of_keys[(NK + TILE - 1) // TILE * B * HK, THREADS](dK, dV, Q, K, V, L, dO, R, *shape)
    of_queries[(N + TILE - 1) // TILE * B * H, THREADS](dQ, Q, K, V, L, dO, R, *shape)
