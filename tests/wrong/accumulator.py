"""Wrong kernels of accumulator."""

from wrong import Wrong

FLOAT16 = ("from numba import cuda, float32", "from numba import cuda, float32\nfrom numba.cuda.types import float16")

WRONG = [
    Wrong(
        "float16 accumulators",
        "scalar",
        (
            FLOAT16,
            ("            total += float32(x[r, k])", "            total = float32(float16(total + float32(x[r, k])))"),
        ),
        ("total += __half2float(row[k])", "total = __half2float(__hadd(__float2half(total), row[k]))"),
        "value",
        r"y\[\d+\] got .* allowed",
    ),
    Wrong(
        "pairs added in float16",
        "wide",
        None,
        (
            ("        float2 both = __half22float2(pairs[k]);", "        half both = __hadd(pairs[k].x, pairs[k].y);"),
            ("total += both.x + both.y", "total += __half2float(both)"),
        ),
        "value",
        r"y\[\d+\] got .* allowed",
    ),
    Wrong(
        "half of the lanes left out",
        "scalar",
        ("(16, 8, 4, 2, 1)", "(8, 4, 2, 1)"),
        ("distance = 16", "distance = 8"),
        "value",
        r"y\[0\] got",
    ),
    Wrong(
        "the last numbers left out",
        "scalar",
        ("range(lane, K, 32)", "range(lane, K // 32 * 32, 32)"),
        ("k < K;", "k < K / 32 * 32;"),
        "value",
        r"y\[0\] got",
    ),
    Wrong(
        "a sum that begins with what was there",
        "scalar",
        ("total = float32(0)", "total = y[r]"),
        ("total = 0.0f", "total = y[r]"),
        "value|uninitialized",
        r"y\[0\].*(nan|written)",
    ),
    Wrong(
        "rows taken to begin at 16 bytes",
        "wide",
        None,
        ("int head = min(K, (int)((16 - (size_t)row % 16) % 16 / 2))", "int head = 0"),
        "misaligned",
        r"16",
    ),
    Wrong(
        "the rest of a row left out",
        "wide",
        None,
        ("    if (k < K)\n", "    if (k < K - 8)\n"),
        "value",
        r"y\[\d+\] got",
    ),
]  # fmt: skip
