"""Wrong kernels of attention_bf16, whose files are those of attention_f16."""

from wrong import Wrong

WRONG = [
    Wrong(
        "float16 instructions on bfloat16",
        "flash_mma",
        None,
        ('#define KIND "bf16"', '#define KIND "f16"'),
        "value",
        r"[OL]\[0, 0, 0(, 0)?\] got .* want ",
    ),
]
