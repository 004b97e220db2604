"""What the labs keep of GPUs: which figures belong to kernels that have changed since, and how to take them anew.

Of every problem there are three files: times (`labkit bench`), profiles (`labkit record`) and counters to compare the
emulator with (`labkit fidelity`). `survey` compares what they hold with the ladders as they are; `renew` takes what is
missing or stale.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from labkit import problems, recorded
from labkit.errors import LabkitError
from labkit.labels import Label

KINDS = ("bench", "profiles", "counters")
NAMED = 2  # kernels that a line of the survey names


@dataclass(frozen=True)
class Recording:
    """The file of one kind for one problem: `state` is "current", "stale", "missing" or "unknown", `why` says more.

    unknown: the figures were taken before each was kept with a hash of its kernel's code.
    """

    kind: str
    problem: str
    state: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.kind:9} {self.problem:24} {self.state:8} {self.why}".rstrip()


def survey(names: Iterable[str] = (), kinds: Iterable[str] = KINDS) -> list[Recording]:
    """The state of each file of these problems, or of all; of each problem the newest file of any machine."""
    return [_look(kind, name) for name in names or problems.names() for kind in kinds]


def renew(
    found: Iterable[Recording], folder: Path, minutes: float | None = None
) -> Iterator[tuple[Recording, str]]:
    """Take each recording anew under `folder`, and say how that went, one sentence each.

    Times are taken problem by problem, each in a process of its own, so that a crash costs that one alone; what ncu
    reads, of all problems in one. minutes: no more than that for all; what would go on longer is stopped.
    """
    from labkit.profiling import runs

    begun, found = time.monotonic(), list(found)

    def left() -> float:
        return max(60 * minutes - (time.monotonic() - begun), 0.0) if minutes is not None else float("inf")

    for recording in found:
        if recording.kind == "bench":
            yield recording, _bench(recording.problem, folder, left())
    for kind in ("profiles", "counters"):
        asked = {recording.problem: recording for recording in found if recording.kind == kind}
        if not asked:
            continue
        if not left():
            yield from ((recording, "not begun: no time was left.") for recording in asked.values())
            continue
        try:
            said = runs.record(kind, list(asked), folder, seconds=min(left(), runs.LONG))
        except LabkitError as error:
            said = dict.fromkeys(asked, str(error))
        for name, why in said.items():
            yield asked[name], f"failed: {why}" if why else "taken."


def _bench(name: str, folder: Path, seconds: float) -> str:
    """How it went, in a sentence."""
    if not seconds:
        return "not begun: no time was left."
    try:
        words = [sys.executable, "-m", "labkit", *command(name, folder)]
        done = subprocess.run(words, timeout=min(seconds, 1e6), capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return "stopped: no time was left."
    except LabkitError as error:
        return f"failed: {error}"
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or [f"exit status {done.returncode}"]
        return f"failed: {lines[-1]}"
    return "taken."


def command(name: str, folder: Path) -> list[str]:
    """The words of the labkit command that takes a problem's times."""
    shapes = [",".join(f"{dim}={size}" for dim, size in shape.items()) for shape in shapes_of("bench", name)]
    given = [word for shape in shapes if shape for word in ("--shape", shape)]
    if given and "" in shapes:
        raise LabkitError(f"recorded_at of {name} names its bench shape ({{}}) beside others; write that shape out.")
    return ["bench", name, *given, "--record", str(folder)]


def shapes_of(kind: str, name: str) -> list[dict[str, int]]:
    """The shapes that recordings of a kind are taken at; {} is each rung's own bench shape."""
    return [dict(shape) for shape in problems.get(name).recorded_at.get(kind, ({},))]


def _look(kind: str, name: str) -> Recording:
    result = partial(Recording, kind, name)
    wanted = dict(_counters(name) if kind == "counters" else _figures(kind, name))
    file = next(iter(recorded.files(kind, name)), None)
    if file is None:
        return result("missing")
    there = _there(kind, name, json.loads(file.read_text()))
    labels = {Label.of(key) for key in wanted}
    more = there.keys() - wanted.keys()
    for what, keys in (
        ("changed since", [key for key in wanted.keys() & there.keys() if there[key] not in (None, wanted[key])]),
        ("not there", wanted.keys() - there.keys()),
        ("no rung any more", [key for key in more if Label.of(key) not in labels]),
        ("at a shape that nothing asks for", more),
    ):
        if keys:
            return result("stale", f"{_some({str(Label.of(key)) for key in keys})}: {what}")
    return result("unknown" if None in there.values() else "current")


def _figures(kind: str, name: str) -> Iterator[tuple[str, str]]:
    """(what, fingerprint) of every solution at every shape."""
    from labkit.ladder import problem
    from labkit.profiling.fidelity import solutions

    shapes = shapes_of(kind, name)
    for rung in solutions(problem(name)):
        mark = rung.fingerprint
        for shape in shapes:
            yield f"{rung.label} {rung.problem.dims_of(shape or rung.bench_shape)}", mark


def _counters(name: str) -> Iterator[tuple[str, str]]:
    from labkit.profiling import fidelity

    return ((case.name, case.fingerprint) for case in fidelity.cases(name))


def _there(kind: str, name: str, data: dict) -> dict[str, str | None]:
    """What a file holds, with the fingerprints that stand there."""
    if kind == "counters":
        return {entry["case"]: entry["fingerprint"] for entry in data["entries"]}
    rivals = {f"{name}/{rival}" for rival in problems.get(name).rivals}
    entries = data["timings"] if kind == "bench" else data["entries"]
    return {
        f"{e['label']} {e['shape']}": e["extra"].get("fingerprint") if kind == "bench" else e["fingerprint"]
        for e in entries
        if e["label"] not in rivals
    }


def _some(labels: Iterable[str]) -> str:
    labels = sorted(labels)
    more = f" and {len(labels) - NAMED} more" if len(labels) > NAMED else ""
    return ", ".join(labels[:NAMED]) + more
