"""The counting rules against Nsight Compute's readings and against brute force, one warp at a time."""

from __future__ import annotations

import json
import struct
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from engine_tools import add, nvrtc
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.emulator import Emulation
from labkit.emulator.counters import Counters
from labkit.emulator.launch import Launch
from labkit.emulator.trace import Trace

H200 = json.loads((Path(__file__).parent / "counters_h200.json").read_text())
BASE = 1 << 36
PTX = ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }"


@dataclass
class Mask:
    """The engine's mask: bool per thread of the chunk."""

    bits: np.ndarray
    threads: int = field(init=False)
    warps: int = field(init=False)

    def __post_init__(self):
        self.threads = int(self.bits.sum())
        self.warps = int(self.bits.reshape(-1, 32).any(axis=1).sum())


def instruction(index, op="ld", type_="f32", line=1, mods=(), guard=None):
    ahead = (SimpleNamespace(pc=(index + 1,)),)
    return SimpleNamespace(
        index=index, op=op, mods=mods, type=type_, operands=ahead, file="k.py", line=line, guard=guard, text=op
    )


def chunk_of(threads):
    return SimpleNamespace(
        valid=np.ones(threads, dtype=bool), first_block=0, blocks=1, warps_per_block=threads // 32
    )


def started(*instructions, **launch):
    counters = Counters(sass=False)
    counters.begin(launch_of(**launch), list(instructions))
    return counters


def launch_of(**fields):
    return Launch(**{"ptx": PTX, "entry": "k", "grid": (1, 1, 1), "block": (32, 1, 1), "params": (), **fields})


def program(*instructions):
    return SimpleNamespace(
        instructions=list(instructions), kernel="k", shared_size=0, shared={}, local={}
    )


def count(space, kind, width, lanes):
    """Metrics of one access; lanes: (warps, 32) of element numbers, -1 where inactive."""
    lanes = np.asarray(lanes, dtype=np.int64).reshape(-1)
    instr = instruction(0, kind)
    counters = started(instr)
    mask = Mask(lanes >= 0)
    base = BASE if space == "global" else 0
    counters.executed(0, mask, mask)
    counters.access(instr, space, kind, lanes * width + base, mask, width, chunk_of(len(lanes)))
    counters.end()
    return counters.metrics


def results(metrics, space, kind):
    if space == "shared":
        kind = "atom" if kind == "red" else kind
        names = ("data_pipe_lsu_wavefronts", "data_bank_conflicts_pipe_lsu")
        return [metrics[f"l1tex__{n}_mem_shared_op_{kind}.sum"] for n in names]
    return [metrics[f"l1tex__t_{n}_pipe_lsu_mem_{space}_op_{kind}.sum"] for n in ("requests", "sectors")]


@pytest.mark.parametrize("space, kind, width", sorted({tuple(r[:3]) for r in H200["readings"]}))
def test_counts_equal_the_hardware(space, kind, width):
    checked = 0
    for *at, pattern, want in H200["readings"]:
        if tuple(at) == (space, kind, width):
            name, lanes = H200["patterns"][pattern]
            assert results(count(space, kind, width, lanes), space, kind) == want, name
            checked += 1
    assert checked >= 62


def sectors(lanes, width):
    return len({i * width // 32 for i in lanes if i >= 0})


def shared_passes(lanes, width, kind):
    """The rule of notes in plain Python: (wavefronts, conflicts) of one warp."""
    groups, active = max(width // 4, 1), {n: i for n, i in enumerate(lanes) if i >= 0}
    if kind == "ld" and groups > 1:
        for step in (1, 2):
            if all(active.get(n ^ step, i) == i for n, i in active.items()):
                groups //= 2
                break
    waves = used = 0
    for group in range(groups):
        banks = defaultdict(set)
        for n, i in active.items():
            if n * groups // 32 == group:
                for byte in range(i * width, i * width + width, 4):
                    banks[byte // 4 % 32].add(byte // 4)
        if banks:
            waves += max(map(len, banks.values()))
            used += 1
    return [waves, waves - used]


LANES = st.one_of(
    st.lists(st.integers(-1, 150), min_size=32, max_size=32),
    st.builds(  # strides with an offset, a repeat and a mask
        lambda start, stride, repeat, mask: [
            start + n // repeat * stride if mask >> n & 1 else -1 for n in range(32)
        ],
        st.integers(0, 40),
        st.integers(0, 40),
        st.sampled_from([1, 2, 4, 16, 32]),
        st.one_of(st.just(2**32 - 1), st.integers(1, 2**32 - 1), st.integers(1, 31).map(lambda n: 2**n - 1)),
    ),
)
WARPS = st.lists(LANES, min_size=1, max_size=4).filter(lambda w: any(i >= 0 for lanes in w for i in lanes))


@settings(max_examples=150, deadline=None)
@given(WARPS, st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from(["ld", "st"]))
def test_global_against_brute_force(warps, width, kind):
    metrics = count("global", kind, width, warps)
    active = [lanes for lanes in warps if max(lanes) >= 0]
    assert results(metrics, "global", kind) == [len(active), sum(sectors(w, width) for w in warps)]
    elements = {i for lanes in warps for i in lanes if i >= 0}
    assert metrics[f"labkit__distinct_bytes_global_op_{kind}.sum"] == len(elements) * width
    granules = {i * width // 64 for i in elements}
    assert metrics["dram__bytes_read.sum"] == (len(granules) * 64 if kind == "ld" else 0)


@settings(max_examples=150, deadline=None)
@given(WARPS, st.sampled_from([4, 8, 16]), st.sampled_from(["ld", "st"]))
def test_shared_against_brute_force(warps, width, kind):
    want = np.sum([shared_passes(lanes, width, kind) for lanes in warps], axis=0).tolist()
    assert results(count("shared", kind, width, warps), "shared", kind) == want


@settings(max_examples=50, deadline=None)
@given(WARPS)
def test_atomics_against_brute_force(warps):
    waves = sum(max(Counter(i % 32 for i in w if i >= 0).values(), default=0) for w in warps)
    assert results(count("shared", "atom", 4, warps), "shared", "atom")[0] == waves
    want = 0
    for lanes in warps:
        often = Counter(i for i in lanes if i >= 0)
        want += sum(max(often[i] for i in often if i // 8 == s) for s in {i // 8 for i in often})
    assert results(count("global", "red", 4, warps), "global", "red")[1] == want


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("kind", ["ld", "st", "atom"])
def test_one_address_for_all_equals_an_array_of_it(space, width, kind):
    for bits in (np.ones(64, bool), np.arange(64) < 40, np.arange(64) == 3):
        found = []
        for addr in (np.int64(BASE + 64), np.full(64, BASE + 64)):
            if space == "shared":
                addr = addr - BASE
            instr = instruction(0, kind)
            counters = started(instr)
            counters.access(instr, space, kind, addr, Mask(bits), width, chunk_of(64))
            counters.end()
            found.append(counters.metrics)
        assert found[0] == found[1]


def test_counts_by_line_and_instruction():
    add, fma, load = instruction(0, "add", line=3), instruction(1, "fma", line=3), instruction(2, "ld", line=5)
    half = instruction(3, "mul", "f16x2", line=5)
    counters = started(add, fma, load, half)
    full, part = Mask(np.ones(64, bool)), Mask(np.arange(64) < 40)
    for pc, on in ((0, full), (1, part), (1, full), (2, full), (3, part)):
        counters.executed(pc, full, on)
    counters.access(load, "global", "ld", np.arange(64) * 128 + BASE, full, 4, chunk_of(64))
    counters.end()
    metrics = counters.metrics
    op = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
    assert [metrics[op.format(n)] for n in ("fadd", "fmul", "ffma", "hmul")] == [64, 0, 104, 80]
    assert metrics["smsp__inst_executed.sum"] == 10
    assert metrics["smsp__thread_inst_executed_per_inst_executed.ratio"] == 32
    assert metrics["l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"] == 32
    assert "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio" not in metrics
    three, five = counters.lines
    assert (three["line"], five["line"]) == (3, 5)
    assert three[op.format("ffma")] == 104 and five["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 2
    assert five["labkit__distinct_bytes_global_op_ld.sum"] == 256
    assert counters.fidelity["smsp__inst_executed.sum"] == "modeled"
    assert counters.fidelity["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == "bound"  # nobody asked ptxas
    assert counters.fidelity["labkit__distinct_bytes_global_op_ld.sum"] == "exact"


def test_divergent_branches_count_once_per_warp():
    branch = instruction(0, "bra", None, guard=("p", True))
    counters = started(branch)
    everyone = Mask(np.ones(96, bool))
    counters.executed(0, everyone, Mask(np.arange(96) < 48))  # only the second warp splits
    counters.executed(0, everyone, everyone)
    counters.end()
    assert counters.metrics["smsp__sass_branch_targets_threads_divergent.sum"] == 1


def test_launches_add_up_and_ratios_are_made_anew():
    load = instruction(0)
    counters = started(load)
    full = Mask(np.ones(32, bool))
    counters.access(load, "global", "ld", np.arange(32) * 4 + BASE, full, 4, chunk_of(32))
    counters.end()
    counters.begin(launch_of(grid=(2, 1, 1)), [load])
    counters.access(load, "global", "ld", np.arange(32) * 32 + BASE, full, 4, chunk_of(32))
    counters.end()
    metrics = counters.metrics
    assert metrics["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 36
    assert metrics["l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"] == 18
    assert metrics["launch__grid_size"] == 3 and metrics["launch__block_size"] == 32
    assert counters.buffers == {0: {"ld": 256, "st": 0}} and counters.launches == 2


COPIES = json.loads((Path(__file__).parent / "copies_h200.json").read_text())["readings"]


def test_copies_to_shared_memory():
    """Each by a warp of its own: all lanes' parts, zeros, both ways, against an H200."""
    unsure = 0
    for width, past_l1, requests, sectors, lanes in COPIES:
        table = np.zeros((32, 3), np.int64)
        table[: len(lanes)] = np.reshape(lanes, (-1, 3))
        addr, to, sizes = table.T
        instr = instruction(0, "cp", mods=("async", "cg" if past_l1 else "ca"))
        counters = started(instr)
        args = BASE + addr, Mask(sizes > 0), width, chunk_of(32), to, sizes
        counters.access(instr, "global", "ld", *args)
        counters.end()
        metrics = counters.metrics
        assert metrics["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == requests
        touched = {a + k for a, _, size in lanes for k in range(-size // 4 * -4)}
        assert metrics["labkit__distinct_bytes_global_op_ld.sum"] == len(touched)
        pieces = {(piece, a // 128) for a, piece, size in lanes if size}
        if past_l1 and len(pieces) > len({piece for piece, _ in pieces}):
            assert counters.fidelity["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == "bound"
            unsure += 1
        else:
            assert metrics["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == sectors
    assert unsure == 1 and len(COPIES) == 565


def test_distinct_bytes_of_mixed_widths_and_buffers():
    wide, narrow = instruction(0, line=1), instruction(1, "st", line=2)
    counters = started(wide, narrow)
    full = Mask(np.ones(32, bool))
    counters.access(wide, "global", "ld", np.arange(32) * 16 + BASE, full, 16, chunk_of(32))
    two = np.where(np.arange(32) < 16, BASE, 2 * BASE) + np.arange(32) * 4
    counters.access(wide, "global", "ld", two, full, 4, chunk_of(32))
    counters.access(narrow, "global", "st", two, full, 4, chunk_of(32))
    counters.end()
    assert counters.buffers == {0: {"ld": 512, "st": 64}, 1: {"ld": 64, "st": 64}}
    assert counters.metrics["dram__bytes_read.sum"] == 512 + 64


def test_trace_keeps_the_chosen_warp():
    load = instruction(0, line=7)
    trace = Trace(block=(1, 0, 0), warp=1, occurrences=2)
    buffer = SimpleNamespace(name="A", base=BASE, index=lambda offset: (offset // 64, offset % 64 // 4))
    memory = SimpleNamespace(find=lambda address: buffer)
    trace.begin(launch_of(grid=(2, 1, 1)), program(load), memory)
    chunk = SimpleNamespace(valid=np.ones(128, bool), first_block=0, blocks=2, warps_per_block=2)
    mask = Mask(np.arange(128) % 2 == 0)
    for turn in range(3):
        trace.access(load, "global", "ld", np.arange(128) * 4 + BASE + turn * 1024, mask, 4, chunk)
    first, second = trace.accesses
    assert (first.line, first.array, first.occurrence, second.occurrence) == (7, "A", 0, 1)
    assert first.addresses[:3] == (BASE + 96 * 4, -1, BASE + 98 * 4)
    assert first.indices[:3] == ((6, 0), None, (6, 2))
    assert first.lanes == tuple(range(0, 32, 2)) and len(first.sectors) == 4


def test_counting_keeps_to_its_budget():
    """A quarter of a naive GEMM at 256: 8.4 million lane accesses; the whole has 2 s on one core."""
    load = instruction(0)
    counters = started(load)
    threads = np.arange(65536)
    row, col = threads % 16 + threads // 4096 * 16, threads // 16 % 256
    full, chunk = Mask(np.ones(65536, bool)), chunk_of(65536)
    start = time.process_time()
    for k in range(64):
        counters.access(load, "global", "ld", BASE + (row * 256 + k) * 4, full, 4, chunk)
        counters.access(load, "global", "ld", 2 * BASE + (k * 256 + col) * 4, full, 4, chunk)
    counters.end()
    assert time.process_time() - start < 2.0  # four times the budget: slower machines exist


def test_work_of_the_busiest_block():
    """One block of 5 adds in a loop while the others leave: its share tells what the grid's size hides."""
    source = """
    extern "C" __global__ void k(float* a, int n, int first) {
        if (first && blockIdx.x != 3) return;
        for (int i = 0; i < n; ++i) a[blockIdx.x * 64 + threadIdx.x] += 1.0f;
    }
    """
    ptx = nvrtc(source)
    found = {}
    for first in (0, 1):
        for chunk in (64, 4096):
            counters = Counters(sass=False)
            emulation = Emulation(counters=counters, chunk_threads=chunk)
            data = add(emulation, np.zeros(16 * 64, np.float32), "a")
            args = (data, struct.pack("<i", 1000), struct.pack("<i", first))
            for _ in range(2):
                emulation.run(Launch(ptx, "k", (16, 1, 1), (64, 1, 1), args))
            busiest = counters.metrics["labkit__inst_executed_busiest_block.sum"]
            found[first, chunk] = counters.metrics["smsp__inst_executed.sum"] / busiest
    assert found[0, 64] == pytest.approx(16, rel=0.01) and found[0, 4096] == found[0, 64]
    assert found[1, 64] == pytest.approx(1, rel=0.1) and found[1, 4096] == found[1, 64]
