"""attention_f16: attention on float16 tensors, scores, sums and L in float32, on tensor cores."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from labkit.problems.attention import keys, magnitude, queries, rival, shape
from labkit.problems.attention import problem as attention
from labkit.problems.problem import Question, Step, Tensor

# Multiply-adds of one m16n8k16, for a warp.
_MMA = 16 * 8 * 16
# What is published of other kernels is at these shapes.
LONG = tuple(shape(B=4, H=H, N=8192, D=D, causal=causal) for H, D in ((32, 64), (16, 128)) for causal in (1, 0))


def in_16_bits(problem, dtype: str, roundoff: float):
    """`problem` on tensors of 16 bits, L excepted; roundoff is their unit roundoff.

    P and O are each rounded to 16 bits once, which moves O by at most 2 u sum p |v|: c times a quarter of it. Scores
    are exact products summed in float32, and count as much less as float32 is finer.
    """
    tensors = {
        "Q": Tensor(("B", "H", "N", "D"), dtype, make=queries(dtype)),
        "K": Tensor(("B", "HK", "NK", "D"), dtype, make=keys(dtype)),
        "V": Tensor(("B", "HK", "NK", "D"), dtype),
    }
    return replace(
        problem,
        inputs=tensors,
        outputs={"O": Tensor(("B", "H", "N", "D"), dtype), "L": Tensor(("B", "H", "N"))},
        magnitude=partial(magnitude, weight=2 / problem.c, of_scores=2.0**-24 / roundoff),
        math=dtype,
        kernels="attention",
    )


problem = replace(
    in_16_bits(attention, "float16", 2.0**-11),
    name="attention_f16",
    ladder=(
        Step(
            "flash_mma", "both products on tensor cores, the weights stay in registers",
            "tensor operations; shared wavefronts per tensor operation",
        ),
    ),
    shapes=(*attention.shapes, shape(N=130, NK=384, causal=1)),  # tiles of 128 with and without a mask
    bench_shape=shape(B=4, H=16, N=8192, D=128),
    recorded_at={"bench": LONG},
    rivals={name: rival(name) for name in ("efficient", "cudnn")},
    questions={
        "flash_mma/register": Question(
            "A left factor of 16 x 16 has 4 registers in each lane: 0 for the upper left 8 x 8, 1 for the lower left, "
            "2 for the upper right, 3 for the lower right. Two products of 16 x 8 scores lie side by side, left and "
            "right. Sums 2 and 3 of the right one, as weights in 16 bits: which register do they become?",
            lambda: 2 * 1 + 1,
            "",
            "Right half, and sums 2 and 3 are 8 rows further down than 0 and 1.",
        ),
        "flash_mma/per_ldmatrix": Question(
            "A warp of flash_mma has 32 queries. One ldmatrix brings 16 x 16 of K. How many m16n8k16 does the warp do "
            "with it?",
            lambda: 32 * 16 * 16 / _MMA,
            "instructions",
            "32 queries times 16 keys times 16 of the head dimension.",
        ),
        "flash_mma/exponentials": Question(
            "A multiprocessor does 4096 tensor operations (FLOP) and 16 exponentials per cycle. For 128 queries and 64 "
            "keys at D = 128: how many cycles do the exponentials take, per cycle of multiplications?",
            lambda: (128 * 64 / 16) / (4 * 128 * 64 * 128 / 4096),
            "",
            "512 cycles and 1024: no small matter, unless they overlap.",
        ),
        "flash_mma/shared_bytes": Question(
            "How many bytes of shared memory do 128 queries and two stages of 64 keys and values take at D = 128 in "
            "float16?",
            lambda: 2 * 128 * (128 + 2 * 2 * 64),
            "bytes",
            "Two such blocks fit on a multiprocessor with 227 KiB.",
        ),
    },
)
