"""How well the emulator's counters agree with Nsight Compute's, metric by metric.

On a GPU, `record` runs every solution of a ladder under ncu and keeps what it read. Anywhere, `compare` runs the same
solutions on the emulator and sets its counters beside the recorded ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit import recorded
from labkit.errors import LabkitError

if TYPE_CHECKING:
    import pandas

    from labkit.ladder import Ladder, Rung

Shapes = Iterable[dict[str, int]]


@dataclass(frozen=True)
class Reading:
    """One metric of one kernel: what ncu read, what the emulator counted, and what it claims for its count."""

    kernel: str
    shape: dict[str, int]
    metric: str
    ncu: float
    emulator: float
    claim: str

    @property
    def equal(self) -> bool:
        return abs(self.ncu - self.emulator) <= 1e-6 * abs(self.ncu)


def solutions(ladder: Ladder) -> list[Rung]:
    """Every solution of a ladder in every language."""
    return [ladder[s.name, language].solution for s in ladder.problem.ladder for language in s.languages]


def shapes(ladder: Ladder) -> list[dict[str, int]]:
    """The profile shape, and one that no tile divides."""
    even = ladder.problem.profile_shape
    return [even, {name: size - 3 - 7 * n for n, (name, size) in enumerate(even.items())}]


def record(ladder: Ladder, folder: Path | None = None) -> Path:
    """Run every solution under ncu and write the recorded file; LabkitError where ncu cannot run."""
    entries = []
    for rung in solutions(ladder):
        for shape in shapes(ladder):
            profile = rung.profile(**shape)
            if profile.origin != "measured":
                raise LabkitError(profile.notes[-1] if profile.notes else "There is no GPU here to measure on.")
            entries.append(
                {"rung": rung.step.name, "language": rung.language, "shape": shape, "metrics": profile.metrics}
            )
    return recorded.write("counters", ladder.problem.name, {"entries": entries}, folder)


def entries(problem: str) -> list[dict[str, Any]]:
    """What was recorded of a problem; LabkitError where nothing was."""
    files = recorded.files("counters", problem)
    if not files:
        raise LabkitError(f"No counters of {problem} are recorded; on a GPU, labkit fidelity --record keeps them.")
    return json.loads(files[0].read_text())["entries"]


def compare(ladder: Ladder) -> list[Reading]:
    """Recorded readings beside the emulator's counts of the same kernels at the same shapes."""
    return [reading for entry in entries(ladder.problem.name) for reading in readings(ladder, entry)]


def readings(ladder: Ladder, entry: dict[str, Any]) -> list[Reading]:
    """One recorded entry beside the emulator's counts."""
    from labkit.profiling.emulated import profile_emulated

    rung = ladder[entry["rung"], entry["language"]].solution
    emulated = profile_emulated(**rung.launches(entry["shape"]))
    return [
        Reading(rung.label, entry["shape"], metric, value, emulated.metrics[metric], emulated.fidelity[metric])
        for metric, value in entry["metrics"].items()
        if metric in emulated.fidelity
    ]


def table(found: list[Reading]) -> pandas.DataFrame:
    """Per metric and claim: how many readings, how many equal, and the largest relative difference."""
    import pandas

    rows = [
        {"metric": r.metric, "claim": r.claim, "equal": r.equal, "off": abs(r.emulator - r.ncu) / max(abs(r.ncu), 1)}
        for r in found
    ]
    grouped = pandas.DataFrame(rows).groupby(["metric", "claim"])
    return pandas.DataFrame(
        {
            "readings": grouped["equal"].size(),
            "equal": grouped["equal"].sum(),
            "largest difference": grouped["off"].max(),
        }
    ).reset_index()
