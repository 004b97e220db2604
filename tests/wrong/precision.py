"""Wrong kernels of precision."""

from wrong import Wrong

FLOAT16 = ("from numba import cuda, float32", "from numba import cuda, float32\nfrom numba.cuda.types import float16")

WRONG = [
    Wrong(
        "float16 inside float32",
        "fp32",
        (
            FLOAT16,
            ("max(x[i], float32(0))", "max(float32(float16(x[i])), float32(0))"),
        ),
        (
            ('extern "C"', '#include <cuda_fp16.h>\nextern "C"'),
            ("fmaxf(x[i], 0.0f)", "fmaxf(__half2float(__float2half(x[i])), 0.0f)"),
        ),
        "value",
        r"y\[\d+\] got .* allowed",
    ),
    Wrong(
        "absolute value",
        "fp32",
        ("max(x[i], float32(0))", "abs(x[i])"),
        ("fmaxf(x[i], 0.0f)", "fabsf(x[i])"),
        "value",
        r"want 0 ",
    ),
    Wrong(
        "reads past the end",
        "fp16",
        ("i < y.shape[0]", "i <= y.shape[0]"),
        ("i < N", "i <= N"),
        "out_of_bounds",
        r"x\[",
    ),
    Wrong(
        "the smaller one",
        "fp16",
        ("max(float32", "min(float32"),
        ("__hmax(", "__hmin("),
        "value",
        r"y\[\d+\] got -",
    ),
    Wrong(
        "the odd one forgotten",
        "half2",
        None,
        ("} else if (i < N) {", "} else if (i + 1 < N) {"),
        "unwritten",
        r"y\[0\] was never written",
    ),
    Wrong(
        "pairs begin at odd places",
        "half2",
        None,
        ("blockDim.x + threadIdx.x);", "blockDim.x + threadIdx.x) + 1;"),
        "misaligned",
        r"multiple of 4|4 bytes|align",
    ),
    Wrong(
        "eight at the end as well",
        "half8",
        None,
        ("if (i + 7 < N)", "if (i < N)"),
        "out_of_bounds",
        r"x\[",
    ),
    Wrong(
        "seven of eight",
        "half8",
        None,
        ("k < 4; ++k", "k < 3; ++k"),
        "value",
        r"y\[\d+\] got -.* want 0 ",
    ),
]  # fmt: skip
