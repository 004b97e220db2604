"""transpose/swizzled: B[j, i] = A[i, j] in float32, one block per tile of 32 x 32.

Against padded: no word is wasted. Element (row, column) stands in column `column ^ row` of the tile: each row
holds its own elements, in an order that puts neighbors in a column into different banks.
Watch: shared-memory wavefronts stay as in padded; shared bytes per block fall to 4096.
"""

from numba import cuda, float32

TILE = 32
ROWS = 8  # of threads in a block: each thread moves 4 elements


@cuda.jit
def transpose_swizzled(B, A):
    M, N = A.shape
    tile = cuda.shared.array((TILE, TILE), float32)
    x = cuda.threadIdx.x
    row0 = cuda.blockIdx.y * TILE  # the tile's first row and column in A
    col0 = cuda.blockIdx.x * TILE
    ### BEGIN SOLUTION
    for k in range(0, TILE, ROWS):
        y = k + cuda.threadIdx.y
        if row0 + y < M and col0 + x < N:
            tile[y, x ^ y] = A[row0 + y, col0 + x]
    cuda.syncthreads()  # what a thread writes comes from others
    for k in range(0, TILE, ROWS):
        y = k + cuda.threadIdx.y
        if col0 + y < N and row0 + x < M:
            B[col0 + y, row0 + x] = tile[x, y ^ x]
    ### END SOLUTION


def launch(B, A):
    M, N = A.shape
    transpose_swizzled[((N + TILE - 1) // TILE, (M + TILE - 1) // TILE), (TILE, ROWS)](B, A)
