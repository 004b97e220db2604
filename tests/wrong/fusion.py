"""Wrong kernels of fusion."""

from wrong import Wrong

WRONG = [
    Wrong(
        "the square of the wrong vector",
        "five_kernels",
        ("(c2, c)", "(c2, s)"),
        ("(c2, c, N)", "(c2, s, N)"),
        "value",
        r"y\[0\] got .* want 1 ",
    ),
    Wrong(
        "adds before it has squared",
        "five_kernels",
        (
            ("    fusion_add[grid, block](y, s2, c2)\n", ""),
            ("    fusion_square[grid, block](c2, c)\n",
             "    fusion_add[grid, block](y, s2, c2)\n    fusion_square[grid, block](c2, c)\n"),
        ),
        (
            ("// launch fusion_add<<<((N + 255) / 256), (256), 0>>>(y, s2, c2, N)\n", ""),
            ("// launch fusion_square<<<((N + 255) / 256), (256), 0>>>(c2, c, N)\n",
             "// launch fusion_add<<<((N + 255) / 256), (256), 0>>>(y, s2, c2, N)\n"
             "// launch fusion_square<<<((N + 255) / 256), (256), 0>>>(c2, c, N)\n"),
        ),
        "uninitialized|value",
        r"written|y\[0\] got",
    ),
    Wrong(
        "no bounds",
        "fused",
        ("if i < y.shape[0]:", "if i >= 0:"),
        ("if (i < N)", "if (i >= 0)"),
        "out_of_bounds",
        r"x\[",
    ),
    Wrong(
        "float16 in between",
        "fused",
        (
            ("from numba import cuda", "from numba import cuda, float32\nfrom numba.cuda.types import float16"),
            ("s = math.sin(x[i])", "s = float32(float16(math.sin(x[i])))"),
        ),
        (
            ('extern "C"', '#include <cuda_fp16.h>\nextern "C"'),
            ("s = sinf(x[i])", "s = __half2float(__float2half(sinf(x[i])))"),
        ),
        "value",
        r"y\[\d+\] got .* allowed",
    ),
    Wrong(
        "the last numbers left out",
        "vectorized",
        ("range(i, N)", "range(i, N - 3)"),
        ("for (; i < N; ++i)", "for (; i < N - 3; ++i)"),
        "unwritten",
        r"was never written",
    ),
    Wrong(
        "four at the end as well",
        "vectorized",
        ("if i + 3 < N:", "if i < N:"),
        ("if (i + 3 < N)", "if (i < N)"),
        "out_of_bounds",
        r"x\[",
    ),
]  # fmt: skip
