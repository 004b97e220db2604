"""What the labs keep of GPUs: which figures belong to kernels that have changed since, and how to take them anew.

Of every problem there are three files: times (`labkit bench`), profiles (`labkit record`) and counters to compare the
emulator with (`labkit fidelity`). `survey` compares what they hold with the ladders as they are; `renew` takes what is
missing or stale, each in a process of its own, one after the other.
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

    minutes: no more than that for all; what would go on longer is stopped. A crash costs its own recording alone.
    """
    begun = time.monotonic()
    for recording in found:
        started = time.monotonic()
        left = None if minutes is None else 60 * minutes - (started - begun)
        if left is not None and left <= 0:
            yield recording, "not begun: no time was left."
            continue
        try:
            words = [sys.executable, "-m", "labkit", *command(recording, folder)]
            done = subprocess.run(words, timeout=left, capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            yield recording, "stopped: no time was left."
            continue
        took = f"{time.monotonic() - started:.0f} s"
        if done.returncode:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or [f"exit status {done.returncode}"]
            yield recording, f"failed after {took}: {lines[-1]}"
        else:
            yield recording, f"taken in {took}."


def command(recording: Recording, folder: Path) -> list[str]:
    """The words of the labkit command that takes `recording`."""
    name = recording.problem
    if recording.kind == "counters":
        return ["fidelity", name, "--record", str(folder)]
    shapes = [",".join(f"{dim}={size}" for dim, size in shape.items()) for shape in shapes_of(recording.kind, name)]
    given = [word for shape in shapes if shape for word in ("--shape", shape)]
    if given and "" in shapes:
        raise LabkitError(f"recorded_at of {name} names its bench shape ({{}}) beside others; write that shape out.")
    return ["bench", name, *given, "--record", str(folder)] if recording.kind == "bench" else [
        "record", name, str(folder), *given,
    ]  # fmt: skip


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
    labels = {_label(key) for key in wanted}
    more = there.keys() - wanted.keys()
    for what, keys in (
        ("changed since", [key for key in wanted.keys() & there.keys() if there[key] not in (None, wanted[key])]),
        ("not there", wanted.keys() - there.keys()),
        ("no rung any more", [key for key in more if _label(key) not in labels]),
        ("at a shape that nothing asks for", more),
    ):
        if keys:
            return result("stale", f"{_some({_label(key) for key in keys})}: {what}")
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


def _label(key: str) -> str:
    return key.partition(" {")[0]


def _some(labels: Iterable[str]) -> str:
    labels = sorted(labels)
    more = f" and {len(labels) - NAMED} more" if len(labels) > NAMED else ""
    return ", ".join(labels[:NAMED]) + more
