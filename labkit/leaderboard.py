"""A leaderboard of your own for the kernels of lab 04: a JSON file beside them, one entry per kernel and name.

    from labkit import leaderboard
    leaderboard.enter(lk.problem("int4_gqa")["opt10_pad_dequant", "cuda"], "Ada")

A kernel is checked first. On a GPU it is then timed at the problem's large shape; elsewhere the emulator runs a few of
its blocks, and what they do is given for each number of K and V in the cache. The two are never put into one order.
"""

from __future__ import annotations

import html
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import problems
from labkit.errors import LabkitError
from labkit.problems import _kv_int4 as kv
from labkit.recorded import today
from labkit.root import root

if TYPE_CHECKING:
    from labkit.ladder import Rung

LAB = "04_int4_gqa"
EMULATED_SHAPE = {"B": 32, "T": 8192, "HQ": 8, "split_k": 16}  # many tiles for each block, as on a GPU
BLOCKS = 4  # of each launch that the emulator runs
INSTRUCTIONS = "smsp__inst_executed.sum"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"


@dataclass(frozen=True)
class Entry:
    """One kernel on the board; `origin` says which of its figures there are.

    measured : median_ms, spread_ms (interquartile range) and gbps of compulsory bytes, on `machine`.
    emulated : for each number of the cache, instructions of a thread (32 a warp instruction), wavefronts of shared
               memory, and bytes of the sectors that global loads touch; a few blocks, scaled up.
    """

    name: str
    problem: str
    kernel: str
    fingerprint: str
    date: str
    shape: dict[str, int]
    origin: str
    machine: str = ""
    median_ms: float | None = None
    spread_ms: float | None = None
    gbps: float | None = None
    instructions: float | None = None
    wavefronts: float | None = None
    bytes: float | None = None

    @property
    def order(self) -> float:
        """What entries of one origin are put in order by: the time, or the instructions."""
        return self.median_ms if self.origin == "measured" else self.instructions


@dataclass(frozen=True)
class Board:
    """The entries of a problem: those measured on each machine and those emulated, the best first."""

    problem: str
    entries: tuple[Entry, ...]

    @property
    def tables(self) -> dict[str, list[Entry]]:
        """Entries in order under their headings, which say where figures come from."""
        found: dict[str, list[Entry]] = {}
        for entry in sorted(self.entries, key=lambda e: (e.origin != "measured", e.machine, e.order)):
            where = f"measured on {entry.machine}"
            if entry.origin == "emulated":
                where = f"emulated, {BLOCKS} blocks of each launch; per number of the cache; no time"
            dims = " ".join(f"{name}={size}" for name, size in entry.shape.items())
            found.setdefault(f"{where}; {dims}", []).append(entry)
        return found

    def __repr__(self) -> str:
        if not self.entries:
            return f"{self.problem}: nobody is on the board yet."
        lines = []
        for heading, entries in self.tables.items():
            lines += [f"{self.problem} ({heading})"]
            rows = [("", "name", "kernel", "date", *_heads(entries[0]))]
            rows += [(f"{n}.", e.name, e.kernel, e.date, *_cells(e)) for n, e in enumerate(entries, 1)]
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            for row in rows:
                words = [c.ljust(w) if k < 4 else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))]
                lines.append("  ".join(words).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if not self.entries:
            return f"<p>{html.escape(repr(self))}</p>"
        out = []
        for heading, entries in self.tables.items():
            left, right = "<td style='text-align:left'>", "<td style='text-align:right'>"
            head = "".join(f"<th>{c}</th>" for c in ("", "name", "kernel", "date", *_heads(entries[0])))
            body = "".join(
                "<tr>" + f"{right}{n}.</td>"
                + "".join(f"{left}{html.escape(c)}</td>" for c in (e.name, e.kernel, e.date))
                + "".join(f"{right}{c}</td>" for c in _cells(e)) + "</tr>"
                for n, e in enumerate(entries, 1)
            )  # fmt: skip
            out.append(f"<p><b>{self.problem}</b> ({html.escape(heading)})</p><table><tr>{head}</tr>{body}</table>")
        return "".join(out)


def _heads(entry: Entry) -> tuple[str, ...]:
    if entry.origin == "measured":
        return "ms", "spread, ms", "GB/s"
    return "instructions", "shared wavefronts", "bytes loaded"


def _cells(entry: Entry) -> tuple[str, ...]:
    if entry.origin == "measured":
        return f"{entry.median_ms:.4f}", f"{entry.spread_ms:.4f}", f"{entry.gbps:,.0f}"
    return f"{entry.instructions:.2f}", f"{entry.wavefronts:.3f}", f"{entry.bytes:.2f}"


def path() -> Path:
    """Where the board is kept: beside the learner's kernels, which are neither in git nor handed out."""
    return root() / "labs" / LAB / "kernels" / "leaderboard.json"


def show(problem: str = "int4_gqa") -> Board:
    """The board of a problem. Raises LabkitError where the file is not what `enter` writes."""
    return Board(problem, tuple(e for e in _read() if e.problem == problem))


def enter(rung: Rung, name: str) -> Board:
    """Check a kernel, measure it, and put it on the board under `name`; the board as it is then.

    The same kernel under the same name replaces its older entry. Raises LabkitError for a kernel that is wrong, and
    for a problem of another lab; nothing is entered then.
    """
    problem = rung.problem
    if problem.lab != LAB:
        raise LabkitError(f"The board is for the problems of lab {LAB}; {problem.name} is of {problem.lab}.")
    if not isinstance(name, str) or not name.strip():
        raise LabkitError("An entry needs a name, such as leaderboard.enter(rung, 'Ada').")
    result = rung.check()
    if not result.passed:
        raise LabkitError(f"{rung.label} is not right yet, so it was not entered. {result.failures[0]}")
    about = {"name": name.strip(), "problem": problem.name, "kernel": _kernel(rung), "fingerprint": rung.fingerprint}
    entry = Entry(**about, date=today(), **_figures(rung))
    same = ("name", "problem", "kernel", "fingerprint", "origin", "machine", "shape")
    kept = [e for e in _read() if any(getattr(e, field) != getattr(entry, field) for field in same)]
    _write([*kept, entry])
    return show(problem.name)


def _kernel(rung: Rung) -> str:
    """What the kernel is called: its rung, and its file where that is another."""
    own = rung.path.stem == rung.step.name
    return f"{rung.step.name} ({rung.language})" if own else rung.path.name


def _figures(rung: Rung) -> dict:
    """Time on a GPU, or counts of the emulator where there is none."""
    from labkit.kernels import gpu

    if gpu.available():
        t = rung.time()
        return {
            "shape": t.shape, "origin": "measured", "machine": t.machine,
            "median_ms": t.median_ms, "spread_ms": t.spread_ms, "gbps": t.gbps,
        }  # fmt: skip
    p = rung.profile(**EMULATED_SHAPE, sample=BLOCKS)
    numbers = 2 * EMULATED_SHAPE["B"] * EMULATED_SHAPE["T"] * kv.D
    return {
        "shape": dict(EMULATED_SHAPE), "origin": "emulated",
        "instructions": 32 * p[INSTRUCTIONS] / numbers,
        "wavefronts": sum(p[SHARED.format(kind)] for kind in ("ld", "st")) / numbers,
        "bytes": 32 * p[SECTORS] / numbers,
    }  # fmt: skip


def _read() -> list[Entry]:
    if not path().exists():
        return []
    try:
        entries = [Entry(**data) for data in json.loads(path().read_text(encoding="utf-8"))]
        for entry in entries:
            problems.get(entry.problem)
            _cells(entry)
    except (OSError, ValueError, TypeError, LabkitError):
        raise LabkitError(f"{path()} is not what leaderboard.enter writes; mend it, or move it away.") from None
    return entries


def _write(entries: list[Entry]) -> None:
    path().parent.mkdir(parents=True, exist_ok=True)
    new = path().with_name(f".{path().name}.{os.getpid()}")
    kept = ({name: value for name, value in asdict(e).items() if value not in (None, "")} for e in entries)
    new.write_text(json.dumps(list(kept), indent=1) + "\n", encoding="utf-8")
    new.replace(path())
