"""The speed-of-light model: from what a launch does to the time that it takes, and to what binds it.

Each resource alone would take its work over its rate. One block alone takes as long as its longest chain of
instructions that wait for one another; blocks that fit side by side hide each other's waits, and so many rounds of
them follow. Terms overlap, though not perfectly: the time is their norm of order NORM, the only figure that was
fitted (see docs/models.md), plus what a launch costs by itself; and no less than a block alone takes in each round.

Rates are the ceilings measured on the device, or its datasheet's; latencies were measured on an H200 by
`labkit speed --record` and are taken in cycles for every device.
"""

from __future__ import annotations

import html
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from labkit import recorded
from labkit.errors import LabkitError
from labkit.models import devices
from labkit.models.occupancy import occupancy

NORM = 3.0
TAIL = 0.4  # of the time, from which on the tail binds, as in `explain`
REFERENCE = "NVIDIA H200"

# What one multiprocessor does per clock: CUDA Programming Guide, arithmetic throughput of native instructions (results
# per clock and multiprocessor); L1 serves a 128-byte line and shared memory a wavefront per clock.
LANES_PER_CLOCK = {
    "sm_75": {"FP64": 2, "special functions": 16, "integer": 64},
    "sm_80": {"FP64": 32, "special functions": 16, "integer": 64},
    "sm_86": {"FP64": 2, "special functions": 16, "integer": 64},
    "sm_89": {"FP64": 2, "special functions": 16, "integer": 64},
    "sm_90": {"FP64": 64, "special functions": 16, "integer": 64},
    "sm_100": {"FP64": 64, "special functions": 16, "integer": 64},
}
SCHEDULERS = 4
LINE, SECTOR, WARP = 128, 32, 32

TEXT = {
    "launch": "a launch by itself: an empty kernel",
    "dispatch": "handing out blocks, as measured with empty ones",
    "DRAM": "bytes from and to device memory, at the measured copy rate",
    "L2": "32-byte sectors that L1 asks L2 for; stores cost twice, stores of less than a sector more",
    "L1": "128-byte lines that L1 serves: one per clock and multiprocessor",
    "shared": "wavefronts of shared memory: one per clock and multiprocessor",
    "issue": "warp instructions: four per clock and multiprocessor",
    "FP32": "float32 operations at the measured rate",
    "tensor": "tensor operations at the measured rate",
    "FP64": "float64 operations",
    "special functions": "exponentials, roots, reciprocals: 16 lanes per clock and multiprocessor",
    "integer": "integer logic, comparisons, shifts: 64 lanes per clock and multiprocessor",
    "atomics": "atomics that meet in the same lines of L2",
    "latency": "waiting: the longest chain in a block, times the rounds of resident blocks",
    "tail": "of the total: lost because blocks, or their work, are not divided evenly over the multiprocessors",
}


@dataclass(frozen=True)
class Work:
    """What one launch does; all but the first line are sums over the launch.

    blocks, threads (per block), registers (per thread), shared (bytes per block).
    dram_read, dram_written: bytes; dram_filled: those that are read because only a part of them is written.
    l2_loaded, l2_stored, l2_partly: sectors that L1 asks L2 for, stores whole, and stores in part.
    lines: of 128 bytes, that L1 serves.  wavefronts: of shared memory.  instructions: of warps.
    fp32, tensor: operations.  fp64, special, integer: thread instructions.
    atomic_sectors, atomic_lines: atomics by sector, and the distinct lines that they hit.
    chain: cycles of the longest chain in a block, None where it is not known.  alone: cycles that a block takes alone
    on a multiprocessor.
    """

    blocks: int
    threads: int
    registers: int
    shared: int = 0
    dram_read: float = 0.0
    dram_written: float = 0.0
    dram_filled: float = 0.0
    l2_loaded: float = 0.0
    l2_stored: float = 0.0
    l2_partly: float = 0.0
    lines: float = 0.0
    wavefronts: float = 0.0
    instructions: float = 0.0
    fp32: float = 0.0
    fp64: float = 0.0
    tensor: float = 0.0
    special: float = 0.0
    integer: float = 0.0
    atomic_sectors: float = 0.0
    atomic_lines: float = 0.0
    chain: float | None = None
    alone: float = 0.0


@dataclass(frozen=True)
class Figures:
    """What the model knows of a device: measured where `measured`, else by its datasheet. Rates per ns.

    launch, dispatch, atomics, partial, dirty: see `_overheads`.
    """

    name: str
    arch: str
    sms: int
    clock: float  # GHz
    dram: float
    l2: float
    fp32: float
    tensor: float
    measured: bool
    launch: float
    dispatch: float
    atomics: float
    partial: float
    dirty: float


@cache
def latencies() -> dict[str, float]:
    """Cycles by what is waited for, as measured on an H200; medians, but of "DRAM" the first, which alone was cold."""
    data = _measured()["latencies"]
    return {k: v[0] if k == "DRAM" else statistics.median(v) for k, v in data.items() if not k.endswith("ms")}


@cache
def _measured() -> dict:
    files = recorded.files("speed", "launches")
    if not files:
        raise LabkitError("No latencies are recorded; on a GPU, labkit speed --record measures them.")
    return json.loads(files[0].read_text())


@cache
def figures(name: str = REFERENCE) -> Figures:
    """The figures of a device; LabkitError where the table lacks what the model needs."""
    device = devices.find(name)
    rates = {**device.rates, **recorded.ceilings(device.name)}
    missing = [k for k in ("sms", "clock_mhz", "bandwidth_gbps", "fp32_tflops") if getattr(device, k) is None]
    if missing:
        raise LabkitError(
            f"The table has no {' and no '.join(devices.COLUMNS[k] for k in missing)} of the {device.name}, so no time "
            "can be predicted for it."
        )
    here = figures(REFERENCE) if device.name != REFERENCE else None
    clock = device.clock_mhz / 1e3
    # Where L2 was not measured: as many bytes per clock as on the reference.
    l2 = rates.get("l2_gbps") or here.l2 * clock / here.clock * device.sms / here.sms
    return Figures(
        device.name, device.arch, device.sms, clock, rates["copy_gbps"], l2, 1e3 * rates["fp32_tflops"],
        1e3 * rates.get("bf16_tflops", rates["fp32_tflops"]), bool(recorded.ceilings(device.name)), **_overheads(),
    )  # fmt: skip


@cache
def _overheads() -> dict[str, float]:
    """What was read off five of the recorded launches, and is taken for every device.

    launch: an empty kernel, in ns, less what events add to a kernel's own time.  dispatch: blocks per ns, of empty
    ones.  atomics: sectors per ns and line, where all of a grid meet in two lines ("largest").  partial: sectors per ns
    that are stored in part ("scatter").  dirty: bytes that were written and had not left L2 by the end ("copy").
    """
    data = _measured()
    cases = {entry["case"]: entry for entry in data["entries"]}

    def duration(name: str) -> float:
        return cases[name]["metrics"]["gpu__time_duration.sum"]

    sectors = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
    events = statistics.median(
        1e6 * statistics.median(entry["samples_ms"]) - duration(name)
        for name, entry in cases.items()
        if duration(name) > 1e5
    )
    empty, many = (
        1e6 * statistics.median(data["latencies"][name])
        for name in ("empty launch, ms", "empty launch of 1056 blocks, ms")
    )
    return {
        "launch": empty - events,
        "dispatch": 1055 / (many - empty),
        "atomics": cases["largest"]["metrics"][sectors.format("red")] / duration("largest") / 2,
        "partial": cases["scatter"]["metrics"][sectors.format("st")] / duration("scatter"),
        "dirty": 2**28 - cases["copy"]["metrics"]["dram__bytes_write.sum"],
    }


@dataclass(frozen=True)
class Prediction:
    """A modeled time: `ms` from the kernel's start to its end, as Nsight Compute's gpu__time_duration counts it.

    terms: milliseconds that each resource would take alone.  binds: the largest of them; "tail" where more than 40% of
    the time is lost to multiprocessors without blocks (`tail_ms`).  certain: False where the chain of a block was not
    known, so that waiting is left out.
    """

    ms: float
    binds: str
    terms: dict[str, float]
    tail_ms: float
    device: str
    label: str = ""
    certain: bool = True
    notes: tuple[str, ...] = ()
    origin: str = "modelled"

    @property
    def _ranking(self) -> list[tuple[str, float]]:
        return sorted(self.terms.items(), key=lambda term: -term[1])

    @property
    def _verdict(self) -> str:
        about = f"{self.label}: " if self.label else ""
        return f"{about}{self.ms:.3g} ms (modeled, {self.device}), bound by {self.binds}"

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {ms:.3g}" for name, ms in self._ranking[:4])
        tail = f"; {self.tail_ms:.2g} ms are tail" if self.tail_ms > 0.1 * self.ms else ""
        left = "" if self.certain else "; waiting is left out, so it is a bound from below"
        return f"{self._verdict}; alone they would take: {shown} ms{tail}{left}"

    def _repr_html_(self) -> str:
        longest = max(self.ms, self._ranking[0][1])
        shown = [*self._ranking, ("tail", self.tail_ms)]
        bar = "height:10px;width:{}px;background:{}"
        rows = "".join(
            f"<tr><td style='text-align:left'>{name}</td><td style='text-align:right'>{ms:.3g}</td>"
            f"<td style='text-align:left;min-width:160px'><div style='"
            f"{bar.format(max(1, round(150 * ms / longest)), '#d9480f' if name == self.binds else '#9ecae1')}'>"
            f"</div></td><td style='color:gray;font-size:85%;text-align:left'>{html.escape(TEXT[name])}</td></tr>"
            for name, ms in shown
            if ms >= 2e-3 * longest
        )
        left = () if self.certain else ("Waiting is left out, since no chain of a block is known: a bound from below.",)
        notes = "".join(
            f"<div style='color:gray;font-size:85%'>{html.escape(note)}</div>" for note in (*left, *self.notes)
        )
        return (
            f"<div><b>{html.escape(self._verdict)}</b></div><table><thead><tr>"
            f"<th style='text-align:left'>resource</th><th>ms alone</th><th></th><th></th></tr></thead>"
            f"<tbody>{rows}</tbody></table>{notes}"
        )


def predict(
    launches: Sequence[Work], device: str = REFERENCE, *, label: str = "", notes: Sequence[str] = (), norm: float = NORM
) -> Prediction:
    """The time of launches one after the other on a device; LabkitError for a device of which too little is known."""
    if not launches:
        raise LabkitError("There is no launch to predict the time of.")
    at = figures(device)
    found: dict[str, float] = defaultdict(float)
    total = even = 0.0
    for work in launches:
        terms, alone = _terms(work, at, even=False)
        total += at.launch + max(norm_of(_grouped(terms), norm), alone)
        even += at.launch + norm_of(_grouped(_terms(work, at, even=True)[0]), norm)
        for name, ns in {**terms, "launch": at.launch}.items():
            found[name] += ns
    tail = max(0.0, total - even)
    binds = "tail" if tail > TAIL * total else max(found, key=found.__getitem__)
    return Prediction(
        total / 1e6, binds, {name: ns / 1e6 for name, ns in found.items() if ns}, tail / 1e6, at.name, label,
        all(work.chain is not None for work in launches), tuple(notes),
    )  # fmt: skip


# Terms of one group are the same instructions' or pass through the same place: of the first the longest counts, since
# they overlap entirely; those of the second add up.
_SAME = ("issue", "FP32", "tensor", "FP64", "special functions", "integer")
_ADDED = ("L1", "shared")


def _grouped(terms: Mapping[str, float]) -> list[float]:
    rest = [ns for name, ns in terms.items() if name not in _SAME + _ADDED]
    return [*rest, max(terms[name] for name in _SAME), sum(terms[name] for name in _ADDED)]


def norm_of(terms, order: float) -> float:
    """(sum of t^order)^(1/order): between the longest, where terms overlap perfectly, and their sum."""
    longest = max(terms)
    return longest * sum((t / longest) ** order for t in terms) ** (1 / order) if longest else 0.0


def _terms(work: Work, at: Figures, even: bool) -> tuple[dict[str, float], float]:
    """What each resource would take alone, and what rounds of single blocks would, in ns.

    even: as if the blocks could be divided evenly over the multiprocessors.
    """
    # The busiest multiprocessor decides about all that belongs to it.
    most = work.blocks / at.sms if even else -(-work.blocks // at.sms)
    uneven = most * at.sms / work.blocks
    per_ns = at.sms * at.clock / uneven
    lanes = LANES_PER_CLOCK[at.arch]
    # What is written stays in L2 for the most part, as long as there is room.
    written, filled = (max(0.0, moved - at.dirty) for moved in (work.dram_written, work.dram_filled))
    terms = {
        "DRAM": (work.dram_read + written + filled) / at.dram,
        "L2": SECTOR * (work.l2_loaded + 2 * work.l2_stored) / at.l2 + work.l2_partly / at.partial,
        "L1": work.lines / per_ns,
        "shared": work.wavefronts / per_ns,
        "issue": work.instructions / (SCHEDULERS * per_ns),
        "FP32": work.fp32 / at.fp32 * uneven,
        "tensor": work.tensor / at.tensor * uneven,
        "FP64": work.fp64 / (lanes["FP64"] * per_ns),
        "special functions": work.special / (lanes["special functions"] * per_ns),
        "integer": work.integer / (lanes["integer"] * per_ns),
        "atomics": work.atomic_sectors / (at.atomics * work.atomic_lines) if work.atomic_lines else 0.0,
        "dispatch": work.blocks / at.dispatch,
        "latency": 0.0,
    }
    if work.chain is None:
        return terms, 0.0
    resident = occupancy(work.threads, work.registers, work.shared, at.arch).blocks
    # Few rounds go in step; of many, each block begins as soon as there is room.
    rounds = most / resident if even or most > 2 * resident else math.ceil(most / resident)
    rounds = max(1.0, rounds)
    terms["latency"] = rounds * work.chain / at.clock
    return terms, 0.0 if even else rounds * work.alone / at.clock
