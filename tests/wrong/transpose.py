"""Wrong kernels of transpose."""

from wrong import Wrong

BARRIER = (
    "    cuda.syncthreads()  # what a thread writes comes from others\n",
    "    __syncthreads();  // what a thread writes comes from others\n",
)

WRONG = [
    Wrong(
        "plain copy",
        "naive",
        ("B[col, row] = A[row, col]", "B[(row * N + col) // M, (row * N + col) % M] = A[row, col]"),
        ("B[(size_t)col * M + row]", "B[(size_t)row * N + col]"),
        "value",
        r"B\[0, 1\] got",
    ),
    Wrong(
        "bounds exchanged",
        "naive",
        ("if row < M and col < N:", "if row < N and col < M:"),
        ("if (row < M && col < N)", "if (row < N && col < M)"),
        "unwritten|out_of_bounds",
        r"[AB]\[",
    ),
    Wrong(
        "missing barrier",
        "tiled",
        (BARRIER[0], ""),
        (BARRIER[1], ""),
        "race|uninitialized",
        r"barrier|syncthreads|no thread has written",
        ("= tile[x, y]", "= tile[x][y]"),
    ),
    Wrong(
        "missing barrier under the swizzle",
        "swizzled",
        (BARRIER[0], ""),
        (BARRIER[1], ""),
        "race|uninitialized",
        r"barrier|syncthreads|no thread has written",
        ("= tile[x, y ^ x]", "= tile[x][y ^ x]"),
    ),
    Wrong(
        "not turned",
        "padded",
        ("= tile[x, y]", "= tile[y, x]"),
        ("= tile[x][y]", "= tile[y][x]"),
        "value",
        r"B\[0, 1\] got",
    ),
    Wrong(
        "bounds of the other side",
        "padded",
        ("if col0 + y < N and row0 + x < M:", "if row0 + y < M and col0 + x < N:"),
        ("if (col0 + y < N && row0 + x < M)", "if (row0 + y < M && col0 + x < N)"),
        "unwritten|out_of_bounds|uninitialized",
        r"B\[|no thread has written",
    ),
    Wrong(
        "read without the swizzle",
        "swizzled",
        ("= tile[x, y ^ x]", "= tile[x, y]"),
        ("= tile[x][y ^ x]", "= tile[x][y]"),
        "value",
        r"B\[0, 1\] got",
    ),
    Wrong(
        "square not turned",
        "vectorized",
        ("(a0[j], a1[j], a2[j], a3[j])", "(a0[j], a2[j], a1[j], a3[j])"),
        ("((float *)&a[0])[j], ((float *)&a[1])[j]", "((float *)&a[1])[j], ((float *)&a[0])[j]"),
        "value",
        r"B\[0, [01]\] got",
    ),
    Wrong(
        "barrier for half of the block",
        "vectorized",
        ("    cuda.syncthreads()  # what", "    if y < 8: cuda.syncthreads()  # what"),
        ("    __syncthreads();  // what", "    if (y < 8) __syncthreads();  // what"),
        "barrier|race",
        r"128 of 256|barrier",
    ),
    Wrong(
        "misaligned rows",
        "vectorized",
        ("A.data_ptr() % 16 == 0 and N % 4 == 0", "A.data_ptr() % 16 == 0"),
        ("N % 4 == 0 && (size_t)A % 16 == 0", "(size_t)A % 16 == 0"),
        "misaligned",
        r"16",
    ),
]
