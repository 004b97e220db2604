"""Profiles on a GPU: Nsight Compute replays a recording in a process of its own."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from labkit.emulator.counters import RATIOS
from labkit.emulator.launch import Launch
from labkit.errors import LabkitError
from labkit.profiling.metrics import DEFAULT
from labkit.profiling.profile import Profile

RANGE = "labkit@kernel/"
_PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu", "/usr/local/NVIDIA-Nsight-Compute*/ncu")
_FAILURES = {
    "ERR_NVGPUCTRPERM": "The driver lets only root read the GPU's performance counters (ERR_NVGPUCTRPERM); run as "
    "root, start the container with --cap-add=SYS_ADMIN, or load the driver's module with "
    "NVreg_RestrictProfilingToAdminUsers=0.",
    "LibraryNotLoaded": "Nsight Compute cannot reach the driver's profiling library here (LibraryNotLoaded); some "
    "sandboxes hide it: profile on the machine itself, or on the emulator.",
    "No kernels were profiled": "Nsight Compute saw no kernel in the recorded range; record at least one launch, and "
    "see that the package nvtx is installed.",
}


def find() -> str | None:
    """The path of ncu: on PATH, else where NVIDIA's installers put it; None if it is nowhere."""
    found = shutil.which("ncu")
    if found:
        return found
    for place in _PLACES:
        paths = sorted(Path("/").glob(place.lstrip("/")))
        if paths:
            return str(paths[-1])
    return None


def available() -> bool:
    """Whether ncu is installed; whether it may read counters only a run can tell."""
    return find() is not None


def run(
    folder: str | Path, metrics: Sequence[str] = DEFAULT, *, repeats: int = 1, timeout: float = 600
) -> list[dict[str, float]]:
    """What ncu reads for each launch of the recording in `folder` (`Recording.save`), run `repeats` times over.

    Values are in base units (bytes, nanoseconds); `combine` puts launches together.
    Raises LabkitError, one sentence with the mend, where it cannot be done.
    """
    ncu = find()
    if ncu is None:
        raise LabkitError(
            "Nsight Compute (ncu) is not installed; it comes with the CUDA toolkit. The emulator profiles without it."
        )
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.ncu-rep"
        command = [
            ncu, "--target-processes", "all", "--clock-control", "none", "--cache-control", "all",
            "--nvtx", "--nvtx-include", RANGE, "--metrics", ",".join(metrics), "-f", "-o", str(report),
            sys.executable, "-m", "labkit.kernels.replay", str(folder), "--repeats", str(repeats),
        ]  # fmt: skip
        output = _call(command, timeout)
        if not report.exists():
            raise LabkitError(_FAILURES["No kernels were profiled"])
        text = _call([ncu, "--import", str(report), "--page", "raw", "--csv", "--print-units", "base"], timeout)
    launches = parse_raw(text, metrics)
    if not launches:
        raise _failure(output)
    missing = [name for name in metrics if not any(name in launch for launch in launches)]
    if missing:
        raise LabkitError(
            f"Nsight Compute has no metric {', '.join(missing)} on this chip; `ncu --query-metrics` lists those it has."
        )
    return launches


def profile_measured(
    fn: Callable[[], object],
    *,
    label: str | None = None,
    shape: Mapping[str, int] | None = None,
    names: Mapping[str, Any] | None = None,
    metrics: Sequence[str] = DEFAULT,
) -> Profile:
    """Record the launches of `fn` and profile them with Nsight Compute, all together.

    label, shape, names : as for `profile_emulated`. Nothing runs in this process: outputs keep their values.
    Raises LabkitError, one sentence with the mend, where it cannot be done.
    """
    from labkit.emulator.ptx import short_name

    launches, ((found,),) = measure([fn], names=names, metrics=metrics)
    kernels = dict.fromkeys(short_name(launch.entry) for launch in launches)
    return Profile("measured", label or " + ".join(kernels), dict(shape or {}), found, machine=_machine())


def measure(
    runs: Sequence[Callable[[], object]],
    *,
    names: Mapping[str, Any] | None = None,
    metrics: Sequence[str] = DEFAULT,
    repeats: int = 1,
) -> tuple[list[Launch], list[list[dict[str, float]]]]:
    """The launches of all `runs`, and for each run what ncu reads for its launches together, once per repeat.

    All of them are measured in one process. Arrays that the runs use must live until this returns.
    """
    from labkit.kernels import recording

    ends = []
    with recording(names) as record:
        for fn in runs:
            fn()
            ends.append(len(record.launches))
    starts = [0, *ends[:-1]]
    if any(start == end for start, end in zip(starts, ends, strict=True)):
        raise LabkitError("No kernel was launched, so there is nothing to profile; launch one inside the function.")
    with tempfile.TemporaryDirectory() as folder:
        record.save(folder)
        found = run(folder, metrics, repeats=repeats)
    if len(found) != repeats * ends[-1]:
        raise LabkitError(f"Nsight Compute saw {len(found)} launches where {repeats * ends[-1]} ran; profile again.")
    turns = [found[turn * ends[-1] : (turn + 1) * ends[-1]] for turn in range(repeats)]
    return record.launches, [
        [combine(turn[start:end]) for turn in turns] for start, end in zip(starts, ends, strict=True)
    ]


def _machine() -> dict[str, str]:
    """The GPU, its driver and ncu, as far as they tell."""
    asked = {
        "GPU": ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
        "driver": ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        "ncu": [find() or "ncu", "--version"],
    }
    found = {}
    for name, command in asked.items():
        try:
            lines = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.split("\n")
        except (OSError, subprocess.TimeoutExpired):
            continue
        words = [line.strip() for line in lines if line.strip()]
        if words:
            found[name] = words[-1].removeprefix("Version ") if name == "ncu" else words[0]
    return found


def _call(command: list[str], timeout: float) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise LabkitError(f"Nsight Compute did not end within {timeout:g} s; profile a smaller shape.") from None
    if done.returncode:
        raise _failure(done.stdout + "\n" + done.stderr)
    failed = next((text for key, text in _FAILURES.items() if key in done.stdout + done.stderr), None)
    if failed:
        raise LabkitError(failed)
    return done.stdout


def _failure(output: str) -> LabkitError:
    """The sentence for what ncu printed."""
    for key, sentence in _FAILURES.items():
        if key in output:
            return LabkitError(sentence)
    said = [line for line in output.splitlines() if line.strip() and not line.startswith("==")]
    errors = [line for line in output.splitlines() if line.startswith("==ERROR==")]
    what = (said or errors or ["it said nothing"])[-1].removeprefix("==ERROR==").strip()
    return LabkitError(f"Nsight Compute or the kernel that it replayed failed: {what}")


def parse_raw(text: str, metrics: Sequence[str]) -> list[dict[str, float]]:
    """The rows of `ncu --page raw --csv`, one dict per launch; the row after the header holds units."""
    start = text.find('"ID"')
    if start < 0:
        return []
    rows = list(csv.DictReader(io.StringIO(text[start:])))[1:]
    found = []
    for row in rows:
        values = {}
        for name in metrics:
            cell = (row.get(name) or "").replace(",", "")
            try:
                values[name] = float(cell)
            except ValueError:
                continue
        found.append(values)
    return found


def combine(launches: list[dict[str, float]]) -> dict[str, float]:
    """Several launches as one; ratios of counts anew, since ncu prints them rounded."""
    times = [launch.get("gpu__time_duration.sum", 1.0) or 1.0 for launch in launches]
    found = {}
    for name in launches[0]:
        values = [launch.get(name, 0.0) for launch in launches]
        if name.endswith(".sum") or name in ("launch__grid_size", "launch__thread_count"):
            found[name] = sum(values)
        elif name.startswith("launch__"):
            found[name] = max(values)
        else:
            found[name] = sum(v * t for v, t in zip(values, times, strict=True)) / sum(times)
    for ratio, (above, below) in RATIOS.items():
        if ratio in found and above in found and below in found:
            found.pop(ratio)
            if found[below]:
                found[ratio] = found[above] / found[below]
    return found
