"""divergence: N independent items, each with rounds[i] rounds of one of two short formulas, as kind[i] says.

    kind 0:  z <- z + z / 1024          kind 1:  z <- z - z * z / 1024         starting from z = x[i], |x[i]| <= 1

Neither settles, so that every round counts in the result.
"""

from __future__ import annotations

import torch

from labkit.problems._metrics import LANES
from labkit.problems.problem import Problem, Question, Step, Tensor

CYCLE = 32  # the lengths of so many items differ
FLOPS = (2, 3)  # of a round of each kind: a multiply-add; a product and a multiply-add


def _length(p):
    """The rounds of the p-th item before shuffling: few are long. From 1 to 241, on average 82."""
    return 1 + (p % CYCLE) ** 2 // 4


def _starts(shape, generator):
    return 2 * torch.rand(shape, generator=generator, device=generator.device) - 1


def _order(shape, seed, device):
    """A permutation of the items, the same for `kind` and `rounds`."""
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randperm(shape[0], generator=generator, device=device)


def _rounds(shape, generator):
    return _length(_order(shape, generator.initial_seed(), generator.device)).int()


def _kind(shape, generator):
    return (_order(shape, generator.initial_seed(), generator.device) // CYCLE % 2).int()


def reference(x, kind, rounds):
    z = x.clone()
    for k in range(int(rounds.max())):
        step = torch.where(kind == 0, z, -z * z) / 1024
        z = torch.where(rounds > k, z + step, z)
    return z


def flops(d) -> int:
    total, cycle = 0, 2 * CYCLE
    for p in range(min(cycle, d["N"])):
        times = (d["N"] - p + cycle - 1) // cycle
        total += times * _length(p) * FLOPS[p // CYCLE % 2]
    return total


_LENGTHS = [_length(p) for p in range(CYCLE)]

problem = Problem(
    name="divergence",
    lab="01_gpu_basics",
    formula="y[i] = x[i] after rounds[i] rounds of z + z / 1024 (kind 0) or z - z * z / 1024 (kind 1)",
    dims=("N",),
    inputs={
        "x": Tensor(("N",), make=_starts),
        "kind": Tensor(("N",), "int32", make=_kind),
        "rounds": Tensor(("N",), "int32", make=_rounds),
    },
    outputs={"y": Tensor(("N",))},
    reference=reference,
    baseline=None,
    magnitude=lambda x, kind, rounds: 1.0 + rounds.double(),  # each round rounds a number near 1
    flops=flops,
    ladder=(
        Step("branch", "a loop in each side of a branch", "active lanes per instruction"),
        Step("select", "one loop for both kinds, its coefficients selected", "active lanes per instruction",
             gates=(LANES,)),
        Step("sorted", "a block sorts its items by length, neighbors get equal ones", "active lanes per instruction",
             gates=(LANES,), timed=True),
    ),
    shapes=({"N": 1024}, {"N": 1}, {"N": 5}, {"N": 33}, {"N": 123}, {"N": 1031}, {"N": 2500}),
    large_shapes=({"N": 1 << 20}, {"N": 1_000_003}),
    profile_shape={"N": 2048},
    bench_shape={"N": 1 << 22},
    questions={
        "lecture/passes": Question(
            "In the lecture's warp, some lanes run A; B and the others X; Y; Z. Count these five as one "
            "instruction each. How many does the warp execute?",
            lambda: 2 + 3,
            "instructions",
            "First one side with the other lanes idle, then the other way round.",
        ),
        "branch/loop_efficiency": Question(
            "A warp's 32 lanes run loops of 1 + k * k // 4 rounds, for k = 0 ... 31, in any order. The warp is busy "
            "until the longest is done. What fraction of its lanes is active in a round, on average?",
            lambda: sum(_LENGTHS) / (32 * max(_LENGTHS)),
            "",
            "All rounds of all lanes, divided by 32 times the most that any lane has.",
        ),
        "sorted/rounds_ratio": Question(
            "Sort such items by their lengths and give each warp 32 neighbors, all of one length. How many times "
            "fewer rounds do the warps execute, all together?",
            lambda: 32 * max(_LENGTHS) / sum(_LENGTHS),
            "times",
            "32 unsorted warps take 32 times the longest; sorted, one warp takes each of the 32 lengths.",
        ),
    },
)
