"""transpose/vectorized: B[j, i] = A[i, j] in float32, one block per tile of 64 x 64, 4 x 4 elements per thread.

Against swizzled: every access is 16 bytes wide, four of them in flight per thread. A thread loads 4 pieces of 4
neighbors below each other, turns the 4 x 4 square round in registers, and writes its 4 new rows to the tile.
The tile keeps rows of B, as 16 pieces of 16 bytes each; which piece stands where is swizzled by row. Blocks are
numbered down A, so that neighbors write neighboring pieces of B.
Watch: global and shared requests fall; every row of the tile is 256 bytes side by side, in A and in B.
"""

from numba import cuda, float32

import labkit as lk

TILE = 64
WORDS = TILE * TILE


@cuda.jit(device=True)
def load_row4(array, at, left, aligned):
    """4 floats from `at` on, of which the first `left` exist; in one piece where `at` is aligned."""
    if aligned and left >= 4:
        return lk.cuda.load4(array, at)
    return (
        array[at] if left > 0 else float32(0),
        array[at + 1] if left > 1 else float32(0),
        array[at + 2] if left > 2 else float32(0),
        array[at + 3] if left > 3 else float32(0),
    )


@cuda.jit(device=True)
def store_row4(array, at, values, left, aligned):
    if aligned and left >= 4:
        lk.cuda.store4(array, at, values)
    else:
        if left > 0:
            array[at] = values[0]
        if left > 1:
            array[at + 1] = values[1]
        if left > 2:
            array[at + 2] = values[2]
        if left > 3:
            array[at + 3] = values[3]


@cuda.jit
def transpose_vectorized(B, A, M, N, aligned_a, aligned_b):
    tile = cuda.shared.array(WORDS, float32, alignment=16)  # [64][64], rows of B
    x = cuda.threadIdx.x
    y = cuda.threadIdx.y
    row0 = cuda.blockIdx.x * TILE  # the tile's first row and column in A
    col0 = cuda.blockIdx.y * TILE
    ### BEGIN SOLUTION
    row = row0 + 4 * y
    col = col0 + 4 * x
    at = row * N + col
    a0 = load_row4(A, at, N - col if row < M else 0, aligned_a)
    a1 = load_row4(A, at + N, N - col if row + 1 < M else 0, aligned_a)
    a2 = load_row4(A, at + 2 * N, N - col if row + 2 < M else 0, aligned_a)
    a3 = load_row4(A, at + 3 * N, N - col if row + 3 < M else 0, aligned_a)
    # Row 4 x + j of the tile holds column 4 x + j of A; this thread has piece y of it. Lanes with different x
    # are 4 rows apart, all in the same banks: the exclusive or spreads 8 of them over all 32 banks.
    for j in range(4):
        lk.cuda.store4(tile, (4 * x + j) * TILE + 4 * (y ^ x), (a0[j], a1[j], a2[j], a3[j]))
    cuda.syncthreads()  # what a thread writes comes from others
    left = M - row0 - 4 * x
    for i in range(4):
        r = y + 16 * i  # row of the tile; piece x of it
        v = lk.cuda.load4(tile, r * TILE + 4 * (x ^ (r // 4)))
        store_row4(B, (col0 + r) * M + row0 + 4 * x, v, left if col0 + r < N else 0, aligned_b)
    ### END SOLUTION


def launch(B, A):
    M, N = A.shape
    aligned_a = A.data_ptr() % 16 == 0 and N % 4 == 0  # then every row of A starts on 16 bytes
    aligned_b = B.data_ptr() % 16 == 0 and M % 4 == 0
    grid = ((M + TILE - 1) // TILE, (N + TILE - 1) // TILE)
    transpose_vectorized[grid, (16, 16)](B.reshape(-1), A.reshape(-1), M, N, aligned_a, aligned_b)
