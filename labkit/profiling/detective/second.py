"""B[r, c] = A[r, c] - mean of row r; A: rows x 64, float32. A block takes 64 rows, each thread one of them."""

from numba import cuda, float32

ROWS, COLUMNS = 64, 64


@cuda.jit
def center_rows(B, A):
    tile = cuda.shared.array((ROWS, COLUMNS), float32)
    t = cuda.threadIdx.x
    first = cuda.blockIdx.x * ROWS
    for r in range(ROWS):  # row by row, neighboring threads on neighboring columns
        if first + r < A.shape[0]:
            tile[r, t] = A[first + r, t]
    cuda.syncthreads()
    total = float32(0)
    for c in range(COLUMNS):  # now thread t owns row t
        total += tile[t, c]
    mean = total / float32(COLUMNS)
    for c in range(COLUMNS):
        tile[t, c] -= mean
    cuda.syncthreads()
    for r in range(ROWS):
        if first + r < A.shape[0]:
            B[first + r, t] = tile[r, t]


def launch(B, A):
    center_rows[(A.shape[0] + ROWS - 1) // ROWS, COLUMNS](B, A)
