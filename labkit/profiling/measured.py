"""The profile of a kernel: by Nsight Compute where it may run, by the emulator elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from labkit.errors import LabkitError
from labkit.profiling import ncu
from labkit.profiling.emulated import profile_emulated
from labkit.profiling.metrics import metric_set
from labkit.profiling.profile import Profile


def profile(
    fn: Callable[[], object], *, label: str, shape: Mapping[str, int], names: Mapping[str, Any], metrics: str = "full"
) -> Profile:
    """The profile of the launches in `fn`, on CPU tensors called `names`.

    metrics : a set of `labkit.profiling.metrics.SETS`, for ncu; the emulator counts all that it can.
    On a GPU whose counters ncu cannot read, the emulator's, with ncu's sentence in its `notes`.
    """
    from labkit.kernels import gpu

    wanted = metric_set(metrics)
    if not gpu.available():
        return profile_emulated(fn, label=label, shape=shape, names=names)
    try:
        return ncu.profile_measured(fn, label=label, shape=shape, names=names, metrics=wanted)
    except LabkitError as error:
        emulated = profile_emulated(fn, label=label, shape=shape, names=names)
        return dataclasses.replace(emulated, notes=(*emulated.notes, str(error)))
