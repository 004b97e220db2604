"""Wrong kernels of rmsnorm."""

from wrong import Wrong

WRONG = [
    Wrong(
        "sum in lane 0 only",
        "two_kernels",
        ("cuda.shfl_xor_sync", "cuda.shfl_down_sync"),
        ("__shfl_xor_sync", "__shfl_down_sync"),
        "value",
        r"y\[0, \d+\] got .* want ",
    ),
    Wrong(
        "weights of the wrong columns",
        "two_kernels",
        ("w[i % w.shape[0]]", "w[i // y.shape[0]]"),
        ("w[i % cols]", "w[i / size]"),
        "value",
        r"y\[0, 1\] got .* want ",
    ),
    Wrong(
        "without eps",
        "fused",
        (" + float32(eps))", ")"),
        ("squares / cols + eps", "squares / cols"),
        "value",
        r"y\[\d+, \d+\] got .* want ",
    ),
    Wrong(
        "eps outside of the root",
        "fused",
        (
            "float32(1) / math.sqrt(squares / float32(cols) + float32(eps))",
            "float32(1) / (math.sqrt(squares / float32(cols)) + float32(eps))",
        ),
        ("rsqrtf(squares / cols + eps)", "1.0f / (sqrtf(squares / cols) + eps)"),
        "value",
        r"y\[\d+, \d+\] got .* want ",
    ),
    Wrong(
        "sum in place of the mean",
        "fused",
        ("squares / float32(cols)", "squares"),
        ("squares / cols", "squares"),
        "value",
        r"y\[0, 0\] got .* want ",
    ),
    Wrong(
        "missing barrier",
        "vectorized",
        ("    cuda.syncthreads()  # all warps", "    # all warps"),
        ("    __syncthreads();  // all warps", "    // all warps"),
        "race|uninitialized",
        r"barrier|syncthreads|written",
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
        "alignment assumed",
        "vectorized",
        ("aligned = cols % 4 == 0 and all", "aligned = all"),
        ("bool aligned = cols % 4 == 0 && ", "bool aligned = "),
        "misaligned|out_of_bounds",
        r"16",
    ),
    Wrong(
        "half precision of the squares",
        "fused",
        (
            ("import math\n", "import math\nfrom numba.cuda.types import float16\n"),
            ("        squares += x[row, c] * x[row, c]", "        squares += float32(float16(x[row, c] * x[row, c]))"),
        ),
        (
            ('extern "C"', '#include <cuda_fp16.h>\nextern "C"'),
            ("squares += from[c] * from[c]", "squares += __half2float(__float2half(from[c] * from[c]))"),
        ),
        "value",
        r"allowed|nan|want",
    ),
]
