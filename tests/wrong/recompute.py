"""Wrong kernels of recompute."""

from wrong import Wrong

FLOAT16 = ("from numba import cuda, float32", "from numba import cuda, float32\nfrom numba.cuda.types import float16")

WRONG = [
    Wrong(
        "the slope of the wrong sigmoid",
        "operators",
        ("(dx, d1, s1)", "(dx, d1, s2)"),
        ("(dx, d1, s1, N)", "(dx, d1, s2, N)"),
        "value",
        r"dx\[0\] got",
    ),
    Wrong(
        "an activation that was not stored",
        "store",
        ("        s2[i] = b\n", ""),
        ("        s2[i] = b;\n", ""),
        "uninitialized|value",
        r"written|dx\[0\] got",
    ),
    Wrong(
        "activations kept in float16",
        "store",
        (
            FLOAT16,
            ("s1[i] = a", "s1[i] = float32(float16(a))"),
        ),
        (
            ("static __device__", "#include <cuda_fp16.h>\nstatic __device__"),
            ("s1[i] = a", "s1[i] = __half2float(__float2half(a))"),
        ),
        "value",
        r"dx\[\d+\] got .* allowed",
    ),
    Wrong(
        "one sigmoid too few on the way back",
        "recompute",
        ("        c = sigmoid(b)", "        c = b"),
        ("c = sigmoid(b);", "c = b;"),
        "value",
        r"dx\[0\] got",
    ),
    Wrong(
        "the gradient from above forgotten",
        "recompute",
        ("dx[i] = dy[i] * c", "dx[i] = c"),
        ("dx[i] = dy[i] * c", "dx[i] = c"),
        "value",
        r"dx\[0\] got",
    ),
    Wrong(
        "no output on the way forward",
        "recompute",
        ("    recompute_forward[grid, block](y, x)\n", ""),
        ("// launch recompute_forward<<<((N + 255) / 256), (256), 0>>>(y, x, N)\n", ""),
        "unwritten",
        r"y\[0\] was never written",
    ),
    Wrong(
        "the last gradients left out",
        "vectorized",
        ("        for j in range(i, N):\n            dx", "        for j in range(i, N - 1):\n            dx"),
        ("        for (; i < N; ++i)\n            dx", "        for (; i < N - 1; ++i)\n            dx"),
        "unwritten",
        r"dx\[0\] was never written",
    ),
]  # fmt: skip
