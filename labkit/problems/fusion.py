"""fusion: y[i] = sin(x[i])^2 + cos(x[i])^2 in float32, which PyTorch computes as five operators."""

from __future__ import annotations

import functools

import torch

from labkit.problems._metrics import LOAD_SECTORS, STORE_SECTORS
from labkit.problems.problem import Problem, Question, Step, Tensor

READS, WRITES = 1 + 1 + 1 + 1 + 2, 5  # of vectors: sin, cos, two squares, a sum


def _angles(shape, generator):
    """Angles of up to a few turns."""
    return 4 * torch.randn(shape, generator=generator, device=generator.device)


def baseline(x):
    """Five operators; x * x, since a power would be a slower kernel than a product."""
    s, c = torch.sin(x), torch.cos(x)
    return s * s + c * c


@functools.cache
def _compiled():
    return torch.compile(baseline)


problem = Problem(
    name="fusion",
    lab="01_gpu_basics",
    formula="y[N] = sin(x[N])^2 + cos(x[N])^2",
    dims=("N",),
    inputs={"x": Tensor(("N",), make=_angles)},
    outputs={"y": Tensor(("N",))},
    reference=lambda x: torch.sin(x) ** 2 + torch.cos(x) ** 2,
    baseline=baseline,
    flops=lambda d: 5 * d["N"],  # an operator counts as one operation per number, as in the lecture
    rivals={"compiled": lambda x: _compiled()(x)},
    ladder=(
        Step("five_kernels", "a kernel per operator, as PyTorch does it", "global loads and stores; bytes"),
        Step("fused", "one kernel, intermediate results in registers", "global loads and stores; bytes",
             gates=(LOAD_SECTORS, STORE_SECTORS), timed=True),
        Step("vectorized", "four numbers per thread, one sine-cosine for both", "instructions; requests"),
    ),
    shapes=({"N": 512}, {"N": 1}, {"N": 5}, {"N": 33}, {"N": 123}, {"N": 1031}),
    large_shapes=({"N": 1 << 22}, {"N": 10_000_019}),
    profile_shape={"N": 2048},
    bench_shape={"N": 1 << 26},
    questions={
        "five_kernels/memory_operations": Question(
            "Five kernels: s = sin(x), c = cos(x), p = s * s, q = c * c, y = p + q. Count every vector that a kernel "
            "reads from global memory or writes to it. How many vectors travel?",
            lambda: READS + WRITES,
            "vectors",
            "Four kernels with one in and one out, and the sum with two in and one out.",
        ),
        "fused/memory_operations": Question(
            "And with one kernel?",
            lambda: problem.bytes({"N": 1024}) / 4096,
            "vectors",
            "x in, y out; all else stays in registers.",
        ),
        "fused/speedup": Question(
            "If memory is all that counts, how many times as fast is one kernel as the five?",
            lambda: (READS + WRITES) / 2,
            "times",
            "11 vectors against 2.",
        ),
    },
)
