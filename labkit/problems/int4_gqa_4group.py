"""int4_gqa_4group: int4_gqa on rows of 80 bytes, with a scale and a shift for each 32 numbers; the same kernels,
compiled with -DGROUPS=4 (numba's tell by the length of a row)."""

from __future__ import annotations

from dataclasses import replace

from labkit.problems import _kv_int4 as kv
from labkit.problems.int4_gqa import problem as int4_gqa
from labkit.problems.problem import Question, Tensor

_CACHE = Tensor(("B", "T", 1, kv.row_bytes(4)), "uint8", kv.random_cache)

problem = replace(
    int4_gqa,
    name="int4_gqa_4group",
    kernels="int4_gqa",
    inputs={**int4_gqa.inputs, "K": _CACHE, "V": _CACHE},
    ladder=tuple(replace(step, defines=("GROUPS=4",)) for step in int4_gqa.ladder),
    recorded_at={"bench": ({**int4_gqa.bench_shape, "B": 64},)},  # `labkit reproduce int4-gqa` has other batch sizes
    questions={
        "ceiling": Question(
            "And how many times faster than bfloat16 can it be with 4 groups?",
            lambda: 2 * kv.D / kv.row_bytes(4),
            "times",
            "256 bytes a row against 80.",
        ),
        "requests": Question(
            "With 4 groups, rows begin on 16 bytes. A lane needs the 16 words of nibbles of a token of K, two for each "
            "product. How many loads of nibbles is that with 8 bytes a load?",
            lambda: kv.D // 2 / 8,
            "loads",
            "64 bytes, 8 at a time, where it was 4 at a time.",
        ),
    },
)
