"""Wrong kernels of attention_backward_bf16, whose files are those of attention_backward_f16."""

from wrong import Wrong

WRONG = [
    Wrong(
        "float16 instructions on bfloat16",
        "mma",
        None,
        ('#define KIND "bf16"', '#define KIND "f16"'),
        "value",
        r"d[QKV]\[0, 0, 0, 0\] got .* want ",
    ),
]
