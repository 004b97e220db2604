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
        "a piece shifted",
        "vectorized",
        ("(silu(a), silu(b), silu(c), silu(d))", "(silu(b), silu(c), silu(d), silu(a))"),
        ("silu(v.x), silu(v.y), silu(v.z), silu(v.w)", "silu(v.y), silu(v.z), silu(v.w), silu(v.x)"),
        "value",
        r"dst\[0\] got",
    ),
    Wrong(
        "vectors past the end",
        "vectorized",
        ("if aligned and i + 4 <= N:", "if aligned and i < N:"),
        ("if (aligned && i + 4 <= N)", "if (aligned && i < N)"),
        "out_of_bounds",
        r"x\[\d",
    ),
]
