"""attention_backward_f16: attention_backward on float16 tensors, L and all sums in float32, on tensor cores."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from labkit.problems.attention import shape
from labkit.problems.attention_backward import magnitude, tensors
from labkit.problems.attention_backward import problem as attention_backward
from labkit.problems.attention_f16 import LONG
from labkit.problems.problem import Question, Step


def in_16_bits(problem, dtype: str, roundoff: float):
    """`problem` on tensors of 16 bits, L excepted; roundoff is their unit roundoff.

    P, dS and the results are rounded to 16 bits once each, and O was: an own rounding counts a quarter of c, as in
    attention_f16. All sums are of exact products in float32 and count as much less as float32 is finer.
    """
    inputs, outputs = tensors(dtype)
    return replace(
        problem,
        inputs=inputs,
        outputs=outputs,
        magnitude=partial(magnitude, weight=2 / problem.c, of_scores=2.0**-24 / roundoff),
        math=dtype,
        kernels="attention_backward",
    )


problem = replace(
    in_16_bits(attention_backward, "float16", 2.0**-11),
    name="attention_backward_f16",
    ladder=(
        Step(
            "mma", "five products on tensor cores; dQ summed by atomics", "tensor operations; atomic sectors",
            languages=("cuda",), why="its tiles need more shared memory than numba can ask for",
        ),
    ),
    # Of D = 128, several tiles of queries and of keys, some of them cut by the diagonal.
    shapes=(*attention_backward.shapes, shape(N=130, D=128, causal=1)),
    bench_shape=shape(B=4, H=16, N=8192, D=128),
    recorded_at={"bench": LONG},
    questions={
        "mma/atomic_bytes": Question(
            "Blocks of 128 keys each add their share of dQ, in float32, for every tile of 64 queries. How many bytes "
            "of additions are that for one head at N = 8192, D = 128?",
            lambda: 8192 // 128 * 8192 * 128 * 4,
            "bytes",
            "64 blocks, each of which adds to all of dQ.",
        ),
        "mma/registers": Question(
            "A block of 8 warps keeps dK and dV of 128 keys in registers, in float32, at D = 128. How many registers "
            "of each thread does that take?",
            lambda: 2 * 128 * 128 / (8 * 32),
            "registers",
            "Two tiles of 128 x 128 numbers over 256 threads. That leaves 127 for all else.",
        ),
    },
)
