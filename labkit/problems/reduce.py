"""reduce: the sum of a float32 vector, any length of at least 1, in an order that is the same in every run."""

from __future__ import annotations

from labkit.problems._metrics import DIVERGENT, INSTRUCTIONS, SHARED_LOADS
from labkit.problems.problem import Problem, Question, Step, Tensor

BLOCK = 256  # numbers that a block of the first rungs adds up, one per thread


def flops(d) -> int:
    return d["N"] - 1  # additions


def reference(x):
    return x.sum(0, keepdim=True)


def _steps(block: int = BLOCK) -> list[int]:
    """1, 2, 4 ... block / 2: how far apart the two numbers of a step's additions are."""
    return [1 << k for k in range(block.bit_length() - 1)]


def _parted(works, block: int = BLOCK) -> int:
    """Warps in which `works(thread, step)` is true for some lanes only, over the steps of a tree."""
    warps = [range(first, first + 32) for first in range(0, block, 32)]
    return sum(len({works(t, step) for t in warp}) > 1 for step in _steps(block) for warp in warps)


def _conflicts(words) -> int:
    """Extra passes through the 32 banks for one warp that reads these words, of 4 bytes."""
    banks = [word % 32 for word in set(words)]
    return max(banks.count(bank) for bank in banks) - 1


def _strided_conflicts(block: int = BLOCK) -> int:
    """Bank conflicts of the reads of sums[j], j = 2 * step * t, over the steps of a tree."""
    found = 0
    for step in _steps(block):
        places = range(0, block, 2 * step)
        found += sum(_conflicts(places[k : k + 32]) for k in range(0, len(places), 32))
    return found


problem = Problem(
    name="reduce",
    lab="01_gpu_basics",
    formula="y[0] = sum over i of x[i]",
    dims=("N",),
    inputs={"x": Tensor(("N",))},
    outputs={"y": Tensor((1,))},
    reference=reference,
    baseline=reference,
    flops=flops,
    ladder=(
        Step("interleaved", "a tree in shared memory; every second, fourth ... thread adds", "divergent branches"),
        Step("strided", "the adding threads stand side by side, their numbers apart", "shared load bank conflicts",
             gates=(DIVERGENT,)),
        Step("sequential", "their numbers stand side by side too", "bank conflicts; divergent branches",
             gates=(SHARED_LOADS,)),  # conflicts count in them, and so do reads by a few lanes of many warps
        Step("shuffle", "warps add in registers, by shuffles", "shared wavefronts; barriers", gates=(SHARED_LOADS,)),
        Step("vectorized", "a thread adds many numbers first, loaded 16 bytes at a time", "instructions; GB/s",
             gates=(INSTRUCTIONS,), timed=True),
        Step("grid_wide", "the last block to finish adds the blocks' sums: one launch", "launches; time of short x",
             timed=True),
    ),
    shapes=tuple({"N": n} for n in (256, 1, 5, 17, 33, 123, 257, 1000, 4099, 70001)),
    large_shapes=({"N": 1 << 22}, {"N": 5_000_011}),
    profile_shape={"N": 65536},
    bench_shape={"N": 1 << 28},
    recorded_at={"bench": ({"N": 1 << 28}, {"N": 1 << 20})},
    questions={
        "interleaved/divergent_branches": Question(
            "interleaved: 256 threads, 8 warps; in the step s = 1, 2, 4 ... 128, thread t adds if t % (2 * s) == 0. A "
            "warp diverges where some of its lanes add and some do not. How often do the warps of one block "
            "diverge, over all 8 steps?",
            lambda: _parted(lambda t, s: t % (2 * s) == 0),
            "divergent branches",
            "In the 5 steps up to s = 16 each of the 8 warps diverges; then 4, 2 and 1 warps do.",
        ),
        "strided/divergent_branches": Question(
            "strided: in the step s, the threads t < 128 / s add. How often do the warps of one block diverge now, "
            "over all 8 steps?",
            lambda: _parted(lambda t, s: t < BLOCK // (2 * s)),
            "divergent branches",
            "128, 64 and 32 adding threads are whole warps; 16, 8, 4, 2 and 1 are a part of warp 0.",
        ),
        "strided/conflicts_of_second_step": Question(
            "strided: in the step s = 2, thread t reads sums[4 * t]. There are 32 banks, and the word w is in bank "
            "w % 32. How many wavefronts does this read take, for one full warp?",
            lambda: 1 + _conflicts([4 * t for t in range(32)]),
            "wavefronts",
            "The 32 words lie 4 apart, so they fall into 8 banks, 4 into each.",
        ),
        "strided/bank_conflicts": Question(
            "strided: a read of sums[2 * s * t] by a warp takes one wavefront, and one bank conflict for each further. "
            "How many bank conflicts do the reads of sums[2 * s * t] make in one block of 256 threads, over all 8 "
            "steps?",
            _strided_conflicts,
            "bank conflicts",
            "4 warps with 1 each, 2 with 3, and from then on one warp, with 7, 7, 7, 3, 1 and 0.",
        ),
        "shuffle/barriers": Question(
            "sequential passes 9 barriers: one after loading, one after each of 8 steps. In shuffle, each of the 8 "
            "warps adds its 32 numbers by itself, and then warp 0 adds the 8 sums. How many barriers are needed?",
            lambda: 1,
            "barriers",
            "Between the writing of the warps' sums and their reading by warp 0. Lanes of a warp need none.",
        ),
    },
)
