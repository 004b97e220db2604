"""decode_attention_bf16: decode_attention_f16 on bfloat16 tensors, of its top rung."""

from __future__ import annotations

from labkit.problems.decode_attention_f16 import BF16_LADDER, in_16_bits

problem = in_16_bits("decode_attention_bf16", "bfloat16", 2.0**-8, ladder=BF16_LADDER)
