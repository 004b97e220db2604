"""Wrong kernels of cpy_f32_f16."""

from wrong import Wrong

WRONG = [
    Wrong(
        "order of x",
        "plain",
        ("dst[h, t, d] = x[t, h, d]\n    ###", "dst[h, t, d] = x[i // D // H, i // D % H, d]\n    ###"),
        ("x[(t * H + h) * D + d]", "x[i]"),
        "value",
        r"dst\[0, 1, 0\] got",
    ),
    Wrong(
        "rounded toward zero",
        "plain",
        None,
        ("__float2half(x", "__float2half_rz(x"),
        "value",
        r"allowed 0\)",
    ),
    Wrong(
        "by way of bfloat16",
        "plain",
        None,
        (
            ("#include <cuda_fp16.h>", "#include <cuda_fp16.h>\n#include <cuda_bf16.h>"),
            ("__float2half(x", "__float2half(__bfloat162float(__float2bfloat16(x"),
            ("* D + d])", "* D + d])))"),
        ),
        "value",
        r"allowed 0\)",
    ),
    Wrong(
        "no bound",
        "plain",
        ("if i < H * T * D:", "if i < H * T * D + 1:"),
        ("if (i < (size_t)T * H * D)", "if (i <= (size_t)T * H * D)"),
        "out_of_bounds",
        r"outside|past|\[",
    ),
    Wrong(
        "a token too many",
        "vectorized",
        ("tokens = min(TOKENS, T - t)", "tokens = TOKENS"),
        ("int tokens = min(TOKENS, T - t);", "int tokens = TOKENS;"),
        "out_of_bounds|race|value",
        r"x\[|dst\[",
    ),
    Wrong(
        "halves of a piece swapped",
        "vectorized",
        (("v[k, j] = a[j]", "v[k, j] = b[j]"), ("v[k, 4 + j] = b[j]", "v[k, 4 + j] = a[j]")),
        ("pack(a[k], b[k])", "pack(b[k], a[k])"),
        "value",
        r"dst\[0, 0, 0\] got",
    ),
]
