"""How well the emulator's counters agree with Nsight Compute's, metric by metric.

On a GPU, `record` runs every solution of a ladder under ncu and keeps what it read. Anywhere, `compare` runs the same
solutions on the emulator and sets its counters beside the recorded ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit import recorded
from labkit.errors import LabkitError
from labkit.profiling import ncu

if TYPE_CHECKING:
    import pandas

    from labkit.ladder import Ladder, Rung

REPEATS = 3
# ncu's shared-memory data stage also counts replays when accesses of different warps collide. They differ from run to
# run, and are no property of the kernel: readings this much above the emulator's count are called equal.
NOISY, NOISE = "l1tex__data_", 0.02


@dataclass(frozen=True)
class Reading:
    """One metric of one kernel: what ncu read, what the emulator counted, and what it claims for its count.

    noise: what the hardware's own replays may add to the reading.
    """

    kernel: str
    shape: dict[str, int]
    metric: str
    ncu: tuple[float, ...]
    emulator: float
    claim: str
    noise: float = 0.0

    @property
    def off(self) -> float:
        """The nearest reading less the emulator's count."""
        return min((reading - self.emulator for reading in self.ncu), key=abs)

    @property
    def equal(self) -> bool:
        rounding = 1e-6 * abs(self.emulator)
        return -rounding <= self.off <= self.noise + rounding


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
            run = rung.launches(shape)
            _, samples = ncu.measure(run["fn"], names=run["names"], repeats=REPEATS)
            readings = {metric: [sample[metric] for sample in samples] for metric in samples[0]}
            entries.append(
                {
                    "rung": rung.step.name,
                    "language": rung.language,
                    "fingerprint": rung.fingerprint,
                    "shape": run["shape"],
                    "readings": readings,
                }
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
    if rung.fingerprint != entry["fingerprint"]:
        raise LabkitError(f"{rung.label} has changed since its counters were recorded; record them again.")
    emulated = profile_emulated(**rung.launches(entry["shape"]))
    waves = sum(value for metric, value in emulated.metrics.items() if "_wavefronts_" in metric)
    return [
        Reading(
            rung.label,
            entry["shape"],
            metric,
            tuple(values),
            emulated.metrics[metric],
            emulated.fidelity[metric],
            NOISE * waves if metric.startswith(NOISY) else 0.0,
        )
        for metric, values in entry["readings"].items()
        if metric in emulated.fidelity
    ]


def table(found: list[Reading]) -> pandas.DataFrame:
    """Per metric and claim: how many readings, how many equal, and the largest relative difference."""
    import pandas

    rows = [
        {"metric": r.metric, "claim": r.claim, "equal": r.equal, "off": abs(r.off) / max(abs(r.emulator), 1)}
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
