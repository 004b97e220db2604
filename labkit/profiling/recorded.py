"""Profiles by Nsight Compute of all solutions of a ladder, kept so that they can be read where there is no GPU."""

from __future__ import annotations

import json

from labkit import recorded
from labkit.errors import LabkitError
from labkit.profiling.profile import Profile


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
