"""Wrong kernels of softmax."""

from wrong import Wrong

WRONG = [
    Wrong(
        "the largest not subtracted",
        "three_pass",
        (
            ("        total += math.exp(x[row, c] - largest)", "        total += math.exp(x[row, c])"),
            ("y[row, c] = math.exp(x[row, c] - largest) / total", "y[row, c] = math.exp(x[row, c]) / total"),
        ),
        (
            ("total += expf(from[c] - largest)", "total += expf(from[c])"),
            ("to[c] = expf(from[c] - largest) / total", "to[c] = expf(from[c]) / total"),
        ),
        "value",
        r"y\[\d+, \d+\] got (nan|inf|0) want ",
    ),
    Wrong(
        "the largest of each thread",
        "three_pass",
        ("    largest = block_max(largest, of_max)\n", ""),
        ("    largest = over_block(largest, larger);\n", ""),
        "value",
        r"y\[0, \d+\] got .* want ",
    ),
    Wrong(
        "one array for both reductions",
        "three_pass",
        ("total = block_sum(total, of_sum)", "total = block_sum(total, of_max)"),
        None,
        "race",
        r"barrier|syncthreads",
    ),
    Wrong(
        "missing barrier",
        "online",
        ("    cuda.syncthreads()  # all warps", "    # all warps"),
        ("    __syncthreads();  // all warps", "    // all warps"),
        "race|uninitialized",
        r"barrier|syncthreads|written",
    ),
    Wrong(
        "sum not corrected",
        "online",
        ("s = s * math.exp(m - largest) +", "s = s +"),
        ("s = a.s * expf(a.m - largest) +", "s = a.s +"),
        "value",
        r"y\[0, \d+\] got .* want ",
    ),
    Wrong(
        "begins at minus infinity",
        "online",
        ("np.float32(-3.4028234663852886e38)", "np.float32(-np.inf)"),
        ("constexpr float LOWEST = -3.402823466e38f;", "#define LOWEST (-__int_as_float(0x7f800000))"),
        "value",
        r"got nan want ",
    ),
    Wrong(
        "zeros past the end of a row",
        "vectorized",
        ("NONE = np.float32(-np.inf)", "NONE = np.float32(0)"),
        ("float none = -__int_as_float(0x7f800000);", "float none = 0.0f;"),
        "value",
        r"y\[\d+, \d+\] got .* want ",
    ),
    Wrong(
        "rows past the last",
        "vectorized",
        ("own = cols if row < rows else 0", "own = cols"),
        ("int own = row < rows ? cols : 0;", "int own = cols;"),
        "out_of_bounds",
        r"\b[xy]\[",
    ),
    Wrong(
        "pairs of the row before",
        "long_rows",
        ("range(row * chunks + t, (row + 1) * chunks, THREADS)", "range(t, chunks, THREADS)"),
        ("[(size_t)row * chunks + k]", "[k]"),
        "value",
        r"y\[1, \d+\] got .* want ",
    ),
    Wrong(
        "low precision sum",
        "three_pass",
        (
            ("import math\n", "import math\nfrom numba.cuda.types import float16\n"),
            ("    total = block_sum(total, of_sum)", "    total = float32(float16(block_sum(total, of_sum)))"),
        ),
        (
            ("constexpr int THREADS", "#include <cuda_fp16.h>\nconstexpr int THREADS"),
            ("    total = over_block(total, add);", "    total = __half2float(__float2half(over_block(total, add)));"),
        ),
        "value",
        r"allowed",
    ),
]
