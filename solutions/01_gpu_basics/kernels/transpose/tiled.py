"""transpose/tiled: B[j, i] = A[i, j] in float32, one block per tile of 32 x 32.

Against naive: the tile goes through shared memory. It is read row by row and written row by row, rows of B
this time, so that both are coalesced; the turn happens in between, where no sectors exist.
Watch: sectors per store request fall; shared-memory wavefronts appear.
"""

from numba import cuda, float32

TILE = 32
ROWS = 8  # of threads in a block: each thread moves 4 elements


@cuda.jit
def transpose_tiled(B, A):
    M, N = A.shape
    tile = cuda.shared.array((TILE, TILE), float32)
    x = cuda.threadIdx.x
    row0 = cuda.blockIdx.y * TILE  # the tile's first row and column in A
    col0 = cuda.blockIdx.x * TILE
    for k in range(0, TILE, ROWS):
        y = k + cuda.threadIdx.y
        if row0 + y < M and col0 + x < N:
            tile[y, x] = A[row0 + y, col0 + x]
    ### BEGIN SOLUTION
    cuda.syncthreads()  # what a thread writes comes from others
    for k in range(0, TILE, ROWS):
        y = k + cuda.threadIdx.y
        if col0 + y < N and row0 + x < M:
            B[col0 + y, row0 + x] = tile[x, y]
    ### END SOLUTION


def launch(B, A):
    M, N = A.shape
    transpose_tiled[((N + TILE - 1) // TILE, (M + TILE - 1) // TILE), (TILE, ROWS)](B, A)
