"""Profiles by Nsight Compute: launches are recorded here and replayed in a process that ncu watches."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labkit import recorded
from labkit.errors import LabkitError
from labkit.profiling import ncu
from labkit.profiling.emulated import profile_emulated
from labkit.profiling.metrics import DEFAULT
from labkit.profiling.profile import Profile

if TYPE_CHECKING:
    from labkit.kernels.recorder import Recording


def profile(
    fn: Callable[[], object],
    *,
    label: str,
    shape: Mapping[str, int],
    names: Mapping[str, Any],
    metrics: Sequence[str] = DEFAULT,
) -> Profile:
    """The profile of the launches in `fn`: by ncu where it may run, else the emulator's, which then says why.

    names : the tensors (on the CPU) by name.
    """
    from labkit.kernels import gpu

    note = None
    if gpu.available():
        try:
            return profile_measured(fn, label=label, shape=shape, names=names, metrics=metrics)
        except LabkitError as error:
            note = str(error)
    emulated = profile_emulated(fn, label=label, shape=shape, names=names)
    if note:
        emulated = Profile(**{**vars(emulated), "notes": (*emulated.notes, note)})
    return emulated


def profile_measured(
    fn: Callable[[], object],
    *,
    label: str,
    shape: Mapping[str, int],
    names: Mapping[str, Any],
    metrics: Sequence[str] = DEFAULT,
) -> Profile:
    """The same by Nsight Compute only; LabkitError, one sentence with the mend, where it cannot run."""
    from labkit.kernels import recording

    with recording(names) as record:
        fn()
    about = recorded.provenance()
    return Profile(
        origin="measured",
        kernel=label,
        shape=dict(shape),
        metrics=measure(record, metrics),
        fidelity=dict.fromkeys(metrics, "exact"),
        machine={"gpu": about["machine"], "driver": about["driver"], "date": about["date"]},
    )


def measure(record: Recording, metrics: Sequence[str] = DEFAULT) -> dict[str, float]:
    """What ncu reads for a recording, all launches together."""
    with tempfile.TemporaryDirectory() as folder:
        record.save(folder)
        return ncu.run(folder, metrics)
