"""Wrong kernels of decode_attention_bf16."""

from wrong import Wrong

WRONG = [
    Wrong(
        "bits of float16",
        "split_kv_mma",
        None,
        ('#include <cuda_bf16.h>\nusing T16 = __nv_bfloat16;\n#define KIND "bf16"',
         '#include <cuda_bf16.h>\nusing T16 = __nv_bfloat16;\n#define KIND "f16"'),
        "value",
        r"O\[0, 0, \d+\] got",
    ),
    Wrong(
        "scores without the square root of D",
        "split_kv_mma",
        None,
        ("rsqrtf(D) * 1.4426950408889634f", "1.4426950408889634f"),
        "value",
        r"O\[0, 0, \d+\] got",
    ),
    Wrong(
        "the first part of a cut left out",
        "split_kv_mma",
        None,
        ("for (int i = warp; i < count; i += ACROSS)", "for (int i = warp + 1; i < count; i += ACROSS)"),
        "value",
        r"O\[\d, \d+, \d+\] got",
    ),
]
