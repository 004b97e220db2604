"""accumulator: the sums of R rows of K float16 numbers each, y[r] = x[r, 0] + ... + x[r, K - 1], in float32."""

from __future__ import annotations

import torch

from labkit.problems.problem import Problem, Question, Step, Tensor


def _weights(shape, generator):
    """Numbers between 0 and 1: sums that grow, as losses, norms and attention weights do."""
    return torch.rand(shape, generator=generator, device=generator.device).half()


def baseline(x):
    return x.sum(1, dtype=torch.float32) if x.is_cuda else x.float().sum(1)


def _last_step(bits: int = 11) -> int:
    """The first whole number to which adding 1 changes nothing, with `bits` bits of mantissa."""
    return 2**bits


problem = Problem(
    name="accumulator",
    lab="01_gpu_basics",
    formula="y[r] = sum over k of x[r, k], x in float16, y in float32",
    dims=("R", "K"),
    inputs={"x": Tensor(("R", "K"), "float16", _weights)},
    outputs={"y": Tensor(("R",))},
    reference=lambda x: x.sum(1),
    baseline=baseline,
    flops=lambda d: d["R"] * d["K"],
    ladder=(
        Step("scalar", "a warp per row, float32 sums, one float16 per lane and load", "sectors per request"),
        Step("wide", "eight float16 per lane and load, four loads in flight", "requests; bytes in flight", ("cuda",),
             why="numba has no expression that loads eight float16 at once"),
    ),
    shapes=(
        {"R": 3, "K": 2048},
        {"R": 1, "K": 1},
        {"R": 5, "K": 123},
        {"R": 33, "K": 17},
        {"R": 2, "K": 4099},
        {"R": 9, "K": 40},
        {"R": 1, "K": 10_007},
    ),
    large_shapes=({"R": 1023, "K": 4104}, {"R": 17, "K": 100_003}),
    profile_shape={"R": 16, "K": 1024},
    bench_shape={"R": 131072, "K": 4096},
    odd_shape={"R": 13, "K": 1017},
    questions={
        "stagnates_at": Question(
            "A float16 has 11 bits of mantissa (one of them unwritten). Add 1 to it, again and again, starting at 0. "
            "At which number does the sum stop growing?",
            _last_step,
            "",
            "From 2048 on, neighboring float16 numbers are 2 apart, and 2049 is rounded to the even one, 2048.",
        ),
    },
)  # fmt: skip
