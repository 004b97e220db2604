"""How well the emulator's counters agree with Nsight Compute's, metric by metric.

On a GPU, `labkit.profiling.runs` keeps what ncu read of every solution of a ladder, or of the corpus, which is made to
be hard. Anywhere, `compare` runs the same on the emulator and sets its counters beside the recorded ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit import recorded
from labkit.emulator.counters import WITHIN
from labkit.errors import LabkitError

if TYPE_CHECKING:
    import pandas

    from labkit.ladder import Ladder, Rung

REPEATS = 3
CORPORA = ("corpus", "held_out")  # modules beside this one, each with a table of launches
# What another compilation of the same source changes although it counts the same.
OF_CODE = (
    "launch__registers_per_thread",
    "launch__occupancy_limit_registers",
    "sm__maximum_warps_per_active_cycle_pct",
)
# ncu's shared-memory data stage also counts replays when accesses of different warps collide. They differ from run to
# run, and are no property of the kernel: readings this much above the emulator's count are called equal.
NOISY, NOISE = "l1tex__data_", 0.04


@dataclass(frozen=True)
class Reading:
    """One metric of one case: what ncu read, what the emulator counted, and what it claims for its count.

    noise: what the hardware's own replays may add to the reading. slack: how far a count that is called modeled may be
    from it, where that is promised.
    """

    case: str
    metric: str
    ncu: tuple[float, ...]
    emulator: float
    claim: str
    noise: float = 0.0
    slack: float = 0.0

    @property
    def off(self) -> float:
        """The nearest reading less the emulator's count."""
        return min((reading - self.emulator for reading in self.ncu), key=abs)

    @property
    def equal(self) -> bool:
        rounding = 1e-6 * abs(self.emulator)
        return -rounding <= self.off <= self.noise + rounding

    @property
    def seen(self) -> bool:
        """Whether there is anything to compare: not zero on both sides."""
        return bool(self.emulator or any(self.ncu))

    @property
    def kept(self) -> bool:
        """Whether the claim holds: exact counts are equal, and modeled ones within what is promised of them."""
        if self.claim == "exact":
            return self.equal
        return self.claim != "modeled" or not self.slack or abs(self.off) <= self.slack

    @property
    def mark(self) -> str:
        """One letter for a table: E called exact and equal, X called exact and not, n within 5%, f farther."""
        if self.claim == "exact":
            return "E" if self.equal else "X"
        return "n" if self.equal or abs(self.off) <= 0.05 * max(map(abs, self.ncu)) else "f"


@dataclass(frozen=True)
class Case:
    """A run to compare: its name, a hash of its code, and the run as `profile_emulated` takes it.

    `run` may be called several times; each time it makes its inputs anew, and the same ones.
    """

    name: str
    fingerprint: str
    run: Callable[[], dict[str, Any]]


def cases(name: str) -> list[Case]:
    """The solutions of a problem, each at its profile shape and at one that no tile divides; or a corpus."""
    if name in CORPORA:
        return import_module(f"labkit.profiling.{name}").cases()
    from labkit.ladder import problem

    ladder = problem(name)
    even = ladder.problem.profile_shape
    odd = ladder.problem.odd_shape or {dim: size - 3 - 7 * n for n, (dim, size) in enumerate(even.items())}
    return [
        Case(f"{rung.label} {shape}", rung.fingerprint, partial(rung.launches, shape))
        for rung in solutions(ladder)
        for shape in (even, odd)
    ]


def recorded_cases(name: str) -> list[Case]:
    """The cases of which counters are recorded: a rung that is newer than the recording has none yet."""
    there = entries(name)
    return [case for case in cases(name) if case.name in there]


def solutions(ladder: Ladder) -> list[Rung]:
    """Every solution of a ladder in every language."""
    return [ladder[s.name, language].solution for s in ladder.problem.ladder for language in s.languages]


def machine_codes(fn: Callable[[], object]) -> list[str] | None:
    """A hash of the machine code of each launch of `fn`, as ptxas makes it here; None without the tools.

    Other versions of Python and numba make other PTX of the same numba kernel, and so other registers.
    """
    from labkit.emulator.sass import machine_code
    from labkit.kernels import recording

    with recording() as record:
        fn()
    found = []
    for launch in record.launches:
        try:
            code = machine_code(launch.ptx, launch.entry, launch.arch, launch.max_registers)
        except LabkitError:
            return None
        text = " ".join([str(code.registers), *(sass.op for sass in code.code)])
        found.append(hashlib.sha256(text.encode()).hexdigest()[:16])
    return found


def text_of(case: Case) -> str:
    """A hash of the PTX that the case launches: NVRTC does not make the same of the same source each time."""
    from labkit.kernels import recording

    with recording() as record:
        case.run()["fn"]()
    lines = (line for launch in record.launches for line in launch.ptx.splitlines())
    text = "\n".join(line for line in lines if not line.lstrip().startswith((".file", "//")))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def count(found: list[Case]) -> list[dict[str, Any]]:
    """What the emulator counts of each case, with its claims, as plain data; to be kept before a GPU is asked."""
    from labkit.profiling.emulated import profile_emulated

    counted = []
    for case in found:
        profile = profile_emulated(**case.run())
        counts = {metric: [profile.metrics[metric], claim] for metric, claim in profile.fidelity.items()}
        counted.append({"case": case.name, "fingerprint": case.fingerprint, "counts": counts})
    return counted


def names() -> list[str]:
    """All problems and corpora of which counters are recorded."""
    return sorted({path.name.split("--")[0] for path in recorded.files("counters")})


def entries(name: str) -> dict[str, dict[str, Any]]:
    """What was recorded, by the case's name; LabkitError where nothing was."""
    files = recorded.files("counters", name)
    if not files:
        raise LabkitError(f"No counters of {name} are recorded; on a GPU, labkit fidelity {name} --record keeps them.")
    return {entry["case"]: entry for entry in json.loads(files[0].read_text())["entries"]}


def compare(name: str) -> list[Reading]:
    """Recorded readings beside the emulator's counts of the same runs."""
    there = entries(name)
    return [reading for case in recorded_cases(name) for reading in readings(case, there[case.name])]


def readings(case: Case, entry: dict[str, Any]) -> list[Reading]:
    """One recorded entry beside the emulator's counts."""
    from labkit.profiling.emulated import profile_emulated

    if case.fingerprint != entry["fingerprint"]:
        raise LabkitError(f"{case.name} has changed since its counters were recorded; record them again.")
    emulated = profile_emulated(**case.run())
    counts = {metric: (emulated.metrics[metric], claim) for metric, claim in emulated.fidelity.items()}
    if not same_code(case, entry):
        counts.update({metric: (counts[metric][0], "modeled") for metric in OF_CODE if metric in counts})
    return _readings(entry, counts, len(entry.get("code") or "1"))


def same_code(case: Case, entry: dict[str, Any]) -> bool:
    """Whether what was measured is, instruction by instruction, what is compiled here."""
    code = entry.get("code")  # without one, it was recorded before codes were, or without the tools
    return code is not None and machine_codes(case.run()["fn"]) == code


def frozen(name: str) -> list[Reading]:
    """What the emulator had counted of a corpus before its readings were taken, beside these."""
    kept = json.loads(Path(__file__).with_name(f"{name}.json").read_text())["entries"]
    there = entries(name)
    changed = [entry["case"] for entry in kept if entry["fingerprint"] != there[entry["case"]]["fingerprint"]]
    if changed:
        raise LabkitError(f"{changed[0]} has changed since it was counted.")
    return [reading for entry in kept for reading in _readings(there[entry["case"]], entry["counts"], 0)]


def _readings(entry: dict[str, Any], counts: dict[str, tuple[float, str]], launches: int) -> list[Reading]:
    waves = sum(value for metric, (value, _) in counts.items() if "_wavefronts_" in metric)
    return [
        Reading(
            entry["case"],
            metric,
            tuple(values),
            *counts[metric],
            NOISE * waves if metric.startswith(NOISY) else 0.0,
            launches * WITHIN.get(metric, 0.0),
        )
        for metric, values in entry["readings"].items()
        if metric in counts
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
