"""Three kernels that are slow, each for a reason of its own: their reports first, and the kernels only then.

What Nsight Compute read for them on an H200 is recorded (`labkit speed --record`); the kernels lie beside this file.
"""

from __future__ import annotations

import html
from dataclasses import dataclass, replace

from labkit import recorded
from labkit.errors import LabkitError
from labkit.models.speed import REFERENCE, figures, latencies
from labkit.problems.problem import Question, unknown
from labkit.profiling import speed
from labkit.profiling.explain import VERDICTS
from labkit.profiling.profile import Profile

NAMES = ("first", "second", "third")
_LOADS, _STORES = (f"l1tex__t_sectors_pipe_lsu_mem_global_op_{kind}.sum" for kind in ("ld", "st"))
_CHOICES = f"One of: {', '.join(VERDICTS)}."


@dataclass(frozen=True)
class Source:
    """The text of a kernel; in a notebook, folded out."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        style = "background:#f8f9fa;padding:8px;font-family:monospace"
        return f"<pre style='{style}'>{html.escape(self.text)}</pre>"


@dataclass(frozen=True)
class Mystery:
    """One case: `report`, what Nsight Compute read, and `kernel`, what it read it of."""

    name: str

    @property
    def report(self) -> Profile:
        """The recorded profile."""
        return replace(speed.profile(self.name), kernel=f"the {self.name} kernel")

    @property
    def kernel(self) -> Source:
        """The kernel's text. Look at it when you know what it suffers from."""
        return Source(speed.text_of(speed.cases()[self.name]))

    def __repr__(self) -> str:
        return f"the {self.name} kernel: .report is what Nsight Compute read; .kernel shows it, when you are done"


def detective(name: str) -> Mystery:
    """A case by its name: "first", "second" or "third"; LabkitError for another one."""
    if name not in NAMES:
        raise LabkitError(unknown("case", name, list(NAMES)))
    return Mystery(name)


def _binds(name: str) -> str:
    return Mystery(name).report.explain().binds


def _waiting() -> float:
    """Nanoseconds that a load from device memory takes, measured with nothing else going on."""
    return latencies()["DRAM"] / figures(REFERENCE).clock


def _ceiling() -> float:
    """GB/s that can be read from device memory, measured."""
    return recorded.ceilings(REFERENCE)["read_gbps"]


def _needed() -> float:
    return _ceiling() * _waiting() / 1e3


def _flying() -> float:
    profile = Mystery("third").report
    return profile["dram__bytes_read.sum"] / profile["gpu__time_duration.sum"] * _waiting() / 1e3


def _conflicts() -> float:
    profile = Mystery("second").report
    waves, conflicts = (
        sum(profile[f"l1tex__data_{what}_mem_shared_op_{kind}.sum"] for kind in ("ld", "st"))
        for what in ("pipe_lsu_wavefronts", "bank_conflicts_pipe_lsu")
    )
    return conflicts / waves


QUESTIONS = {
    "first/useful_sectors": Question(
        "How many sectors does a store request of the first kernel touch?",
        lambda: Mystery("first").report["l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio"],
        "sectors per request",
        "32 lanes that store side by side would fill 4: most lanes store nothing, or all the same word.",
    ),
    "first/stores": Question(
        "What fraction of all sectors that the first kernel moves between L1 and its threads are stores?",
        lambda: Mystery("first").report[_STORES] / (Mystery("first").report[_STORES] + Mystery("first").report[_LOADS]),
        "of the sectors",
        "However the stores are mended, the time can hardly change.",
    ),
    "first/binds": Question(
        f"What binds the first kernel? {_CHOICES}",
        lambda: _binds("first"),
        explain="The resource that is nearest to its ceiling, and the stalls name its pipe.",
    ),
    "second/conflicts": Question(
        "What fraction of the second kernel's wavefronts in shared memory (loads and stores) are bank conflicts?",
        _conflicts,
        "of the wavefronts",
        "Without them, as little as the rest would do.",
    ),
    "second/binds": Question(
        f"What binds the second kernel? {_CHOICES}",
        lambda: _binds("second"),
        explain="Wavefronts come one per clock and multiprocessor, and nothing else is as near to its ceiling.",
    ),
    "third/needed": Question(
        "A load from an idle device memory takes as long as `wait_ns` says. How many KB (1000 bytes) must be in flight "
        "at any time to read at the measured ceiling `read_gbps`?",
        _needed,
        "KB",
        "Little's law: bytes in flight = bytes per ns x ns.",
        names={"read_gbps": _ceiling, "wait_ns": _waiting},
    ),
    "third/flying": Question(
        "And how many KB does the third kernel have in flight on average, by what it reads from device memory in its "
        "time?",
        _flying,
        "KB",
        "The same law, with the rate that it reaches.",
        0.05,
        {"read_gbps": _ceiling, "wait_ns": _waiting},
    ),
    "third/binds": Question(
        f"What binds the third kernel? {_CHOICES}",
        lambda: _binds("third"),
        explain="No resource is near its ceiling, every multiprocessor has work, and the warps wait.",
    ),
}
