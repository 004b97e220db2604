"""Profiles by Nsight Compute of all solutions of a ladder, kept so that they can be read where there is no GPU."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import recorded
from labkit.errors import LabkitError
from labkit.profiling import ncu
from labkit.profiling.metrics import DEFAULT, STALLS
from labkit.profiling.profile import Profile

if TYPE_CHECKING:
    from labkit.ladder import Rung


def record(problem: str, rungs: Iterable[Rung], shapes: Iterable[dict[str, int]], folder: Path | None = None) -> Path:
    """Profile each rung at each shape ({}: its bench shape), stall reasons included; write the recorded file."""
    metrics = (*DEFAULT, *(metric.name for metric in STALLS))
    shapes = list(shapes)
    entries = []
    for rung in rungs:
        for shape in shapes:
            profile = ncu.profile_measured(**rung.launches(shape or rung.bench_shape), metrics=metrics)
            entries.append(
                {
                    "label": profile.kernel,
                    "fingerprint": rung.fingerprint,
                    "shape": profile.shape,
                    "metrics": profile.metrics,
                }
            )
    return recorded.write("profiles", problem, {"entries": entries}, folder)


def find(problem: str, label: str, shape: dict[str, int]) -> Profile:
    """The recorded profile of `label` at `shape`; LabkitError in one sentence where there is none."""
    known = []
    for path in recorded.files("profiles", problem):
        data = json.loads(path.read_text())
        for entry in data["entries"]:
            if entry["label"] != label:
                continue
            if entry["shape"] == shape:
                about = {key: data[key] for key in ("machine", "driver", "date")}
                return Profile("recorded", label, shape, entry["metrics"], machine=about)
            known.append(" ".join(f"{name}={size}" for name, size in entry["shape"].items()))
    there = f"; recorded are {', '.join(known)}" if known else ""
    raise LabkitError(f"No profile of {label} was recorded at {shape}{there}.")
