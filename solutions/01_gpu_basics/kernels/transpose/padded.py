"""transpose/padded: B[j, i] = A[i, j] in float32, one block per tile of 32 x 32.

Against tiled: a word that nobody uses at the end of each row of the tile. Neighbors in a column are 33 words
apart, one bank further on each.
Watch: shared-memory wavefronts of loads fall.
"""

from numba import cuda, float32

TILE = 32
ROWS = 8  # of threads in a block: each thread moves 4 elements
PITCH = TILE + 1  # words from one row of the tile to the next


@cuda.jit
def transpose_padded(B, A):
    M, N = A.shape
    ### BEGIN SOLUTION
    tile = cuda.shared.array((TILE, PITCH), float32)
    x = cuda.threadIdx.x
    row0 = cuda.blockIdx.y * TILE  # the tile's first row and column in A
    col0 = cuda.blockIdx.x * TILE
    for k in range(0, TILE, ROWS):
        y = k + cuda.threadIdx.y
        if row0 + y < M and col0 + x < N:
            tile[y, x] = A[row0 + y, col0 + x]
    cuda.syncthreads()  # what a thread writes comes from others
    for k in range(0, TILE, ROWS):
        y = k + cuda.threadIdx.y
        if col0 + y < N and row0 + x < M:
            B[col0 + y, row0 + x] = tile[x, y]
    ### END SOLUTION


def launch(B, A):
    M, N = A.shape
    transpose_padded[((N + TILE - 1) // TILE, (M + TILE - 1) // TILE), (TILE, ROWS)](B, A)
