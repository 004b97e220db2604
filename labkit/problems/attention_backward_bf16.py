"""attention_backward_bf16: attention_backward_f16 on bfloat16; the same kernels, compiled with -DBF16."""

from __future__ import annotations

from dataclasses import replace

from labkit.problems.attention_backward_f16 import in_16_bits
from labkit.problems.attention_backward_f16 import problem as attention_backward_f16

problem = replace(
    in_16_bits(attention_backward_f16, "bfloat16", 2.0**-8),
    name="attention_backward_bf16",
    ladder=tuple(replace(step, defines=("BF16",)) for step in attention_backward_f16.ladder),
    questions={},
)
