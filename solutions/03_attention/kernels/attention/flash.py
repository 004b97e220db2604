"""attention/flash: O = softmax(scale Q K^T) V and L in float32, tiles of queries and keys.

Against online_softmax: a block of 32 queries shares what it loads. Tiles of 16 keys and values come into shared
memory; each thread computes 4 x 2 scores in registers, corrects its rows once per tile and not once per key, and adds
the tile's share to its 4 rows of O, of which it keeps D / 8 columns in registers. The 8 threads of a row are neighbors
in a warp: they find the row's maximum by shuffles, and pass weights on through shared memory. With causal, keys past
the block's last query are not even loaded, and blocks with most keys start first. Larger tiles would need more than the
48 KiB of shared memory that numba can ask for; CUDA C++ has them.
Watch: global load sectors fall; shared wavefronts per multiply-add.
"""

import functools
import math

import numpy as np
from numba import cuda, float32

import labkit as lk

BM, BN = 32, 16  # queries and keys of a tile
THREADS = 64  # 8 down, with 4 queries each, and 8 across
LOWEST = np.float32(-3.4028234663852886e38)  # and not -inf: exp(-inf - -inf) is NaN
ALL = 0xFFFFFFFF


@functools.cache
def kernel_for(D):
    """The kernel for a head dimension."""
    LQ, LP = D + 4, BN + 4  # rows are padded by 16 bytes: 8 rows at the same column then fill the banks once
    SIZE_Q, SIZE_K, SIZE_V, SIZE_P = BM * LQ, BN * LQ, BN * D, BM * LP
    COLUMNS = D // 32

    @cuda.jit(device=True)
    def load_tile(to, ld, A, start, row0, rows, count):
        """Rows row0 .. row0 + count - 1 of the matrix at A[start:], ld apart in the tile; zeros past its last row."""
        for i in range(cuda.threadIdx.x, count * D // 4, THREADS):
            r, c = i // (D // 4), i % (D // 4) * 4
            if row0 + r < rows:
                lk.cuda.store4(to, r * ld + c, lk.cuda.load4(A, start + (row0 + r) * D + c))
            else:
                lk.cuda.store4(to, r * ld + c, (float32(0), float32(0), float32(0), float32(0)))

    @cuda.jit
    def attention_flash(O, L, Q, K, V, N, NK, group, scale, causal):
        """group: query heads per key head."""
        tQ = cuda.shared.array(SIZE_Q, float32, alignment=16)
        tK = cuda.shared.array(SIZE_K, float32, alignment=16)
        tV = cuda.shared.array(SIZE_V, float32, alignment=16)
        tP = cuda.shared.array(SIZE_P, float32, alignment=16)
        s = cuda.local.array((4, 2), float32)
        o = cuda.local.array((4, COLUMNS, 4), float32)
        m = cuda.local.array(4, float32)
        l = cuda.local.array(4, float32)
        tiles = (N + BM - 1) // BM
        head = cuda.blockIdx.x // tiles
        row0 = (tiles - 1 - cuda.blockIdx.x % tiles) * BM
        # This thread has queries y .. y + 3, keys x + 8 j, and columns from 4 x + 32 c.
        y, x = cuda.threadIdx.x // 8 * 4, cuda.threadIdx.x % 8
        first, kv = head * N, head // group * NK * D
        for i in range(4):
            m[i], l[i] = LOWEST, float32(0)
            for c in range(COLUMNS):
                for e in range(4):
                    o[i, c, e] = float32(0)
        load_tile(tQ, LQ, Q, first * D, row0, N, BM)
        keys = min(NK, row0 + BM) if causal else NK
        for col0 in range(0, keys, BN):
            cuda.syncthreads()  # nobody reads the last tiles any more
            load_tile(tK, LQ, K, kv, col0, NK, BN)
            load_tile(tV, D, V, kv, col0, NK, BN)
            cuda.syncthreads()  # the tiles are there
            for i in range(4):
                for j in range(2):
                    s[i, j] = float32(0)
            for d in range(0, D, 4):
                k0, k1 = lk.cuda.load4(tK, x * LQ + d), lk.cuda.load4(tK, (x + 8) * LQ + d)
                for i in range(4):
                    q = lk.cuda.load4(tQ, (y + i) * LQ + d)
                    for e in range(4):
                        s[i, 0] += q[e] * k0[e]
                        s[i, 1] += q[e] * k1[e]
            ### BEGIN SOLUTION
            for i in range(4):
                largest, total = m[i], float32(0)
                for j in range(2):
                    col = col0 + x + 8 * j
                    seen = col < NK and (not causal or col <= row0 + y + i)
                    s[i, j] = s[i, j] * scale if seen else float32(-math.inf)
                    largest = max(largest, s[i, j])
                for d in (4, 2, 1):
                    largest = max(largest, cuda.shfl_xor_sync(ALL, largest, d))
                correction = math.exp(m[i] - largest)
                for j in range(2):
                    p = math.exp(s[i, j] - largest)
                    total += p
                    tP[(y + i) * LP + x + 8 * j] = p
                m[i] = largest
                l[i] = l[i] * correction + total  # of this thread's keys; the 8 threads of a row add up at the end
                for c in range(COLUMNS):
                    for e in range(4):
                        o[i, c, e] *= correction
            cuda.syncwarp()  # a warp reads the weights of its own rows alone
            for j in range(0, BN, 4):
                p0, p1 = lk.cuda.load4(tP, y * LP + j), lk.cuda.load4(tP, (y + 1) * LP + j)
                p2, p3 = lk.cuda.load4(tP, (y + 2) * LP + j), lk.cuda.load4(tP, (y + 3) * LP + j)
                for e in range(4):
                    for c in range(COLUMNS):
                        v = lk.cuda.load4(tV, (j + e) * D + 4 * x + 32 * c)
                        for f in range(4):
                            o[0, c, f] += p0[e] * v[f]
                            o[1, c, f] += p1[e] * v[f]
                            o[2, c, f] += p2[e] * v[f]
                            o[3, c, f] += p3[e] * v[f]
            ### END SOLUTION
        for i in range(4):
            for d in (4, 2, 1):
                l[i] += cuda.shfl_xor_sync(ALL, l[i], d)
            row = row0 + y + i
            if row < N:
                inverse = float32(1) / l[i] if l[i] > 0 else float32(0)  # a row of -inf has no sum
                for c in range(COLUMNS):
                    at = (first + row) * D + 4 * x + 32 * c
                    values = (o[i, c, 0] * inverse, o[i, c, 1] * inverse, o[i, c, 2] * inverse, o[i, c, 3] * inverse)
                    lk.cuda.store4(O, at, values)
                if x == 0:
                    L[first + row] = m[i] + math.log(l[i]) if l[i] > 0 else float32(-math.inf)

    return attention_flash


def launch(out, Q, K, V, scale=0.0, causal=0):
    O, L = out
    (B, H, N, D), (_, HK, NK, _) = Q.shape, K.shape
    flat = [t.view(-1) for t in (O, L, Q, K, V)]
    scale = np.float32(scale or 1 / math.sqrt(D))
    kernel_for(D)[(N + BM - 1) // BM * B * H, THREADS](*flat, N, NK, H // HK, scale, causal)
