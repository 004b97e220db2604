"""latency: W walks of `steps` hops each through a table that is one cycle in random order.

A hop needs the number that the hop before it read: it cannot begin earlier. Walks do not depend on each other.
"""

from __future__ import annotations

from labkit.problems._metrics import LOADS
from labkit.problems.problem import Problem, Question, Step, Tensor

SECTOR = 32
# Round figures for questions; `labkit latency` and `labkit ceilings` measure them.
GBPS, DRAM_NS, SMS, THREADS = 4500, 350, 132, 2048


def _cycle(shape, generator):
    """int32 [N]: table[i] is where to go from i; following it visits every place once and comes back."""
    import torch

    order = torch.randperm(*shape, generator=generator, device=generator.device)
    table = torch.empty(shape, dtype=torch.int32, device=generator.device)
    table[order] = order.roll(-1).int()
    return table


def _start(shape, generator):
    import torch

    return torch.randint(2**30, shape, generator=generator, device=generator.device, dtype=torch.int32)


def reference(table, start, steps=16):
    place = start % table.shape[0]
    for _ in range(steps):
        place = table.index_select(0, place)
    return place


_SMALL = {"N": 4096, "W": 64}

problem = Problem(
    name="latency",
    lab="01_gpu_basics",
    formula="place[w] = table[... table[table[start[w] mod N]]], `steps` times",
    dims=("N", "W"),
    inputs={"table": Tensor(("N",), "int32", _cycle), "start": Tensor(("W",), "int32", _start)},
    outputs={"place": Tensor(("W",), "int32")},
    reference=reference,
    baseline=reference,
    flops=lambda d: 0,
    # A hop takes a sector, and no two the same one, as long as there are more sectors than hops.
    traffic=lambda d: min(SECTOR * d["W"] * d["steps"], 4 * d["N"]) + 2 * 4 * d["W"],
    options={"steps": 16},
    ladder=(
        Step(
            "one_thread", "one walk after the other", "time per hop", bench_shape={"N": 2**27, "W": 64}
        ),
        Step(
            "interleaved", "one thread, eight walks side by side", "time per hop; loads in flight",
            bench_shape={"N": 2**27, "W": 512},
            timed=True,
        ),
        Step("many_threads", "a thread for each walk", "warps; loads in flight", gates=(LOADS,), timed=True),
        Step("both", "a thread for every four walks", "warps; the time stays", timed=True),
    ),
    shapes=(
        {"N": 100, "W": 40},
        {"N": 1, "W": 1},
        {"N": 5, "W": 17, "steps": 3},
        {"N": 33, "W": 123, "steps": 1},
        {"N": 1000, "W": 5, "steps": 7},
        {"N": 257, "W": 300, "steps": 2},
    ),
    large_shapes=({"N": 2**20, "W": 10_000}, {"N": 1_000_003, "W": 4097, "steps": 5}),
    profile_shape=_SMALL,
    bench_shape={"N": 2**27, "W": 2**20},  # a table of 512 MiB: far past any L2
    odd_shape={"N": 4001, "W": 61},
    questions={
        "one_thread/microseconds": Question(
            f"A load from device memory takes about {DRAM_NS} ns. How many microseconds do 64 walks of 16 hops take, "
            "one hop after the other?",
            lambda: 64 * 16 * DRAM_NS / 1e3,
            "microseconds",
            "1024 times the latency: nothing overlaps.",
        ),
        "interleaved/ratio": Question(
            "interleaved has eight loads in flight at a time, instead of one. How many times faster can it be, at "
            "best?",
            lambda: 8,
            "times",
            "Eight hops now share one latency.",
        ),
        "bytes_in_flight": Question(
            f"Device memory sends {GBPS:,} GB/s, {DRAM_NS} ns after it was asked. How many bytes must be in flight, at "
            "all times, to keep it busy?",
            lambda: GBPS * 1e9 * DRAM_NS * 1e-9,
            "bytes",
            "Little's law: in flight = rate * latency = 4500 bytes per ns * 350 ns.",
        ),
        "bytes_per_thread": Question(
            f"How many bytes is that for each thread, if each of {SMS} multiprocessors has the {THREADS} that it can "
            "hold?",
            lambda: GBPS * DRAM_NS / SMS / THREADS,
            "bytes per thread",
            "About 12 KB per multiprocessor. More than one number of 4 bytes per thread, even with every place taken.",
        ),
        "threads_needed": Question(
            "If every thread keeps one load of 16 bytes in flight, how many threads per multiprocessor are enough for "
            f"{GBPS:,} GB/s?",
            lambda: GBPS * DRAM_NS / SMS / 16,
            "threads per multiprocessor",
            "A good third of those that fit.",
        ),
        "both/threads_ratio": Question(
            "both follows four walks per thread. How many times fewer threads than many_threads does it take for as "
            "many loads in flight?",
            lambda: 4,
            "times",
            "In flight = threads * loads per thread.",
        ),
        "warps_for_fma": Question(
            "Each of the 4 schedulers of a multiprocessor can start a multiply-add of a warp in every cycle, and its "
            "result is there 4 cycles later. If each warp has two multiply-adds that do not depend on each other, how "
            "many warps keep the multiprocessor busy?",
            lambda: 4 * 4 / 2,
            "warps",
            "In flight = 4 per cycle * 4 cycles = 16 multiply-adds, two per warp.",
        ),
    },
)
