"""Wrong kernels of matvec."""

from wrong import Wrong

WRONG = [
    Wrong(
        "last column left out",
        "thread_per_row",
        ("for k in range(K):", "for k in range(K - 1):"),
        ("k < K; ++k", "k < K - 1; ++k"),
        "value",
        r"y\[0\] got .* want ",
    ),
    Wrong(
        "no bound on rows",
        "thread_per_row",
        ("if row < M:", "if row < M + 1:"),
        ("if (row < M)", "if (row < M + 1)"),
        "out_of_bounds",
        r"W",
    ),
    Wrong(
        "float16 sum",
        "warp_per_row",
        (
            ("from numba import cuda", "from numba.cuda.types import float16\nfrom numba import cuda"),
            (
                "        total += float32(W[row, k]) * x[k]",
                "        total = float32(float16(total + float32(W[row, k]) * x[k]))",
            ),
        ),
        (
            (
                "        sum += __half2float(W[(size_t)row * K + k]) * x[k];",
                "        sum = __half2float(__float2half(sum + __half2float(W[(size_t)row * K + k]) * x[k]));",
            ),
        ),
        "value",
        r"allowed",
    ),
    Wrong(
        "one step of the tree left out",
        "warp_per_row",
        ("while far > 0:", "while far > 1:"),
        ("far > 0; far /= 2", "far > 1; far /= 2"),
        "value",
        r"y\[0\] got",
    ),
    Wrong(
        "tree that starts too far away",
        "warp_per_row",
        ("far = 16", "far = 32"),
        ("int far = 16", "int far = 32"),
        "value|shuffle",
        r"y\[0\] got|lane",
    ),
    Wrong(
        "missing barrier",
        "block_transpose",
        ("    cuda.syncthreads()  # all", "    # all"),
        ("    __syncthreads();  // all", "    // all"),
        "race|uninitialized",
        r"sums|barrier|syncthreads",
        ("y[mine] = sums[lane]", "y[mine] = sums[lane]"),
    ),
    Wrong(
        "warps leave before the barrier",
        "block_transpose",
        ("    total = float32(0)\n    if", "    total = float32(0)\n    if row >= M:\n        return\n    if"),
        ("    float sum = 0.0f;\n    if", "    float sum = 0.0f;\n    if (row >= M)\n        return;\n    if"),
        "barrier",
        r"reached by 3",
    ),
    Wrong(
        "both rows from one",
        "vectorized",
        ("load8(W, begin + K + k)\n            a", "load8(W, begin + k)\n            a"),
        ("__ldcs(w + (size_t)r * pieces + p)", "__ldcs(w + p)"),
        "value",
        r"y\[1\] got",
    ),
    Wrong(
        "alignment taken for granted",
        "vectorized",
        ("aligned = K % 8 == 0 and", "aligned = True or"),
        ("bool aligned = K % 8 == 0 &&", "bool aligned = true ||"),
        "misaligned|out_of_bounds|value",
        r"16|outside|y\[",
    ),
]
