"""Wrong kernels of gemm."""

from wrong import Wrong

FIRST_BARRIER = (
    "        cuda.syncthreads()  # nobody reads",
    "        __syncthreads();  // nobody reads",
)
SECOND_BARRIER = (
    "        cuda.syncthreads()  # nobody over",
    "        __syncthreads();  // nobody over",
)

WRONG = [
    Wrong(
        "missing first barrier",
        "smem_tile",
        (FIRST_BARRIER[0], "        # nobody reads"),
        (FIRST_BARRIER[1], "        // nobody reads"),
        "race",
        r"barrier|syncthreads",
        ("acc += tA[y, k]", "acc += tA[y][k]"),
    ),
    Wrong(
        "missing second barrier",
        "smem_tile",
        (SECOND_BARRIER[0], "        # nobody over"),
        (SECOND_BARRIER[1], "        // nobody over"),
        "race",
        r"barrier|syncthreads",
        ("tA[y, x] =", "tA[y][x] ="),
    ),
    Wrong(
        "transposed index",
        "smem_tile",
        ("acc += tA[y, k] * tB[k, x]", "acc += tA[y, k] * tB[x, k]"),
        ("acc += tA[y][k] * tB[k][x]", "acc += tA[y][k] * tB[x][k]"),
        "value",
        r"C\[0, 0\] got .* want ",
    ),
    Wrong(
        "off-by-one tail",
        "coalesced",
        ("for k in range(K)", "for k in range(K - 1)"),
        ("k < K;", "k < K - 1;"),
        "value",
        r"C\[0, 0\] got .* want ",
    ),
    Wrong(
        "stray read",
        "coalesced",
        ("if row < M and col < N:", "if row < M and col < N + 1:"),
        ("if (row < M && col < N)", "if (row < M && col < N + 1)"),
        "out_of_bounds",
        r"\b[BC]\b",
    ),
    Wrong(
        "stray write",
        "smem_tile",
        ("    if row < M and col < N:", "    if row < M:"),
        ("    if (row < M && col < N)\n", "    if (row < M)\n"),
        "out_of_bounds|value",
        r"C\[",
    ),
    Wrong(
        "wrong start of the accumulator",
        "coalesced",
        ("acc = float32(0)", "acc = C[row, col]"),
        ("float acc = 0.0f", "float acc = C[(size_t)row * N + col]"),
        "value|uninitialized",
        r"C\[0, 0\].*(nan|written)",
    ),
    Wrong(
        "half a tile unwritten",
        "smem_tile",
        ("        tB[y, x] = B[k0 + y, col]", "        if y < 8: tB[y, x] = B[k0 + y, col]"),
        ("        tB[y][x] = k0", "        if (y < 8) tB[y][x] = k0"),
        "uninitialized",
        r"tB\[128\]|no thread has written",
        ("acc += tA[y, k]", "acc += tA[y][k]"),
    ),
    Wrong(
        "half of the output unwritten",
        "coalesced",
        ("        C[row, col] = acc", "        if col % 2 == 0: C[row, col] = acc"),
        (
            "        C[(size_t)row * N + col] = acc",
            "        if (col % 2 == 0) C[(size_t)row * N + col] = acc",
        ),
        "unwritten",
        r"C\[0, 1\] was never written",
    ),
    Wrong(
        "reads past K",
        "smem_tile",
        ("A[row, k0 + x] if row < M and k0 + x < K", "A[row, k0 + x] if row < M"),
        ("row < M && k0 + x < K ?", "row < M ?"),
        "out_of_bounds|value",
        r"A\[|C\[",
    ),
    Wrong(
        "writes its input",
        "coalesced",
        (("        C[row, col] = acc", "        C[row, col] = acc\n        A[row, 0] = acc"),),
        (
            ("float *C, const float *A", "float *C, float *A"),
            ("+ col] = acc;", "+ col] = acc;\n        A[(size_t)row * K] = acc;"),
        ),
        "race",
        r"A\[\d+, 0\], which thread .* (reads|writes) at line",
    ),
    Wrong(
        "barrier in a branch",
        "smem_tile",
        (FIRST_BARRIER[0], "        if y < 8: cuda.syncthreads()  # nobody reads"),
        (FIRST_BARRIER[1], "        if (y < 8) __syncthreads();  // nobody reads"),
        "barrier",
        r"128 of 256",
        ("if y < 8: cuda", "if (y < 8) __sync"),
    ),
    Wrong(
        "never ends",
        "coalesced",
        ("        for k in range(K):\n", "        k = 0\n        while k < K:\n"),
        ("++k)", "k += 0)"),
        "no_progress",
        r"line \d+",
    ),
    Wrong(
        "half precision inside",
        "coalesced",
        (
            ("from numba import cuda", "from numba.cuda.types import float16\nfrom numba import cuda"),
            ("acc += A[row, k] * B[k, col]", "acc += float32(float16(A[row, k])) * B[k, col]"),
        ),
        (
            ('extern "C"', '#include <cuda_fp16.h>\nextern "C"'),
            ("A[(size_t)row * K + k] * B", "__half2float(__float2half(A[(size_t)row * K + k])) * B"),
        ),
        "value",
        r"allowed",
    ),
]
