"""Wrong kernels of gemm_bf16, whose files are those of gemm_f16."""

from wrong import Wrong

WRONG = [
    Wrong(
        "float16 instructions on bfloat16",
        "mma_sync",
        None,
        ('#define KIND "bf16"', '#define KIND "f16"'),
        "value",
        r"C\[0, 0\] got .* want ",
    ),
]
