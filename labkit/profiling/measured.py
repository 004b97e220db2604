"""The profile of a kernel: by Nsight Compute where it may run, by the emulator elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from labkit.errors import LabkitError
from labkit.profiling import ncu
from labkit.profiling.emulated import profile_emulated
from labkit.profiling.metrics import metric_set
from labkit.profiling.profile import Profile

TRACED = 2**17  # threads: a second or so of emulation


def profile(
    fn: Callable[[], object],
    *,
    label: str,
    shape: Mapping[str, int],
    names: Mapping[str, Any],
    metrics: str = "full",
    keep: bool | str | Path = True,
) -> Profile:
    """The profile of the launches in `fn`, on CPU tensors called `names`.

    metrics : a set of `labkit.profiling.metrics.SETS`, for ncu; the emulator counts all that it can. "source" has
    counts per line measured. keep : whether, or where, ncu's report stays; `profile.report` is its path.
    Pictures need addresses, which ncu does not give: up to TRACED threads, the emulator's trace of the same launches
    is added. On a GPU whose counters ncu cannot read, all is the emulator's, with ncu's sentence in its `notes`.
    """
    from labkit.kernels import gpu

    def emulated() -> Profile:
        return profile_emulated(fn, label=label, shape=shape, names=names)

    wanted = metric_set(metrics)
    if not gpu.available():
        return emulated()
    try:
        measured = ncu.profile_measured(
            fn, label=label, shape=shape, names=names, metrics=wanted, lines=metrics == "source", keep=keep,
            strict=False,
        )  # fmt: skip
    except LabkitError as error:
        try:
            found = emulated()
        except LabkitError as other:
            raise LabkitError(f"{error} The emulator cannot stand in: {other}") from other
        return dataclasses.replace(found, notes=(*found.notes, str(error)))
    if measured.metrics.get("launch__thread_count", TRACED + 1) > TRACED:
        return measured
    try:
        traced = emulated()
    except LabkitError as error:
        return dataclasses.replace(measured, notes=(*measured.notes, f"There are no pictures: {error}"))
    lines = measured.line_counts
    what = "addresses" if lines else "lines and addresses"
    return dataclasses.replace(
        measured,
        accesses=traced.accesses,
        steps=traced.steps,
        arrays=traced.arrays,
        line_counts=lines or traced.line_counts,
        notes=(*measured.notes, f"Counters are measured; {what}, which pictures show, are emulated."),
    )
