"""Wrong kernels of silu."""

from wrong import Wrong

WRONG = [
    Wrong(
        "wrong sign in the exponent",
        "plain",
        ("math.exp(-x[i])", "math.exp(x[i])"),
        ("dst[i] = x[i] / (1.0f + expf(-x[i]))", "dst[i] = x[i] / (1.0f + expf(x[i]))"),
        "value",
        r"dst\[0\] got .* want ",
    ),
    Wrong(
        "no bound",
        "plain",
        ("if i < x.shape[0]:", "if i < x.shape[0] + 1:"),
        ("if (i < N)", "if (i < N + 1)"),
        "out_of_bounds",
        r"x\[300\]",
    ),
    Wrong(
        "half precision inside",
        "plain",
        (
            ("from numba import cuda", "from numba.cuda.types import float16\nfrom numba import cuda"),
            ("        dst[i] = x[i] /", "        dst[i] = float32(float16(x[i])) /"),
        ),
        (
            ('extern "C"', '#include <cuda_fp16.h>\nextern "C"'),
            ("        dst[i] = x[i] /", "        dst[i] = __half2float(__float2half(x[i])) /"),
        ),
        "value",
        r"allowed",
    ),
    Wrong(
        "a piece left out",
        "vectorized",
        ("        for p in range(PIECES):\n            at", "        for p in range(PIECES - 1):\n            at"),
        (
            "        for (int p = 0; p < PIECES; ++p)\n            to",
            "        for (int p = 0; p < PIECES - 1; ++p)\n            to",
        ),
        "unwritten",
        r"dst\[3072\] was never written",
    ),
    Wrong(
        "vectors past the end",
        "vectorized",
        ("if aligned and begin + CHUNK <= N:", "if aligned:"),
        ("if (aligned && begin + CHUNK <= N)", "if (aligned)"),
        "out_of_bounds",
        r"x\[30[0-3]",
    ),
]
