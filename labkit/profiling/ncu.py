"""Profiles on a GPU: Nsight Compute on a recording that is replayed, or on a program, in a process of its own."""

from __future__ import annotations

import csv
import datetime
import functools
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit import cache
from labkit.emulator.counters import RATIOS
from labkit.emulator.launch import Launch
from labkit.errors import LabkitError
from labkit.profiling import source
from labkit.profiling.metrics import DEFAULT
from labkit.profiling.profile import Profile
from labkit.root import root

RANGE = "labkit@kernel/"
KEPT = 40  # reports that stay in the folder where they go by default; older ones make room
OLDEST = (2022, 3)  # the first Nsight Compute that knows GH100 and its names of metrics
_PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu", "/usr/local/NVIDIA-Nsight-Compute*/ncu")
_NOTHING = "No kernels were profiled"
_REPLAY = (
    "Nsight Compute could not replay a kernel, which it runs once for each group of counters: ask for fewer (--metrics "
    "quick), or leave out a kernel that waits for the host or for another kernel."
)
_FAILURES = {
    "ERR_NVGPUCTRPERM": "The driver lets only root read the GPU's performance counters (ERR_NVGPUCTRPERM); run as "
    "root, start the container with --cap-add=SYS_ADMIN, or load the driver's module with "
    "NVreg_RestrictProfilingToAdminUsers=0.",
    "LibraryNotLoaded": "Nsight Compute cannot reach the driver's profiling library here (LibraryNotLoaded); some "
    "sandboxes hide it: profile on the machine itself, or on the emulator.",
    "driver resource was unavailable": "Another tool holds the GPU's performance counters; stop it (for DCGM: "
    "dcgmi profile --pause), then profile again.",
    "is not supported on": "This Nsight Compute does not know this GPU; install the newest (developer.nvidia.com).",
    "Failed to prepare kernel for profiling": _REPLAY,
    "Failed to profile": _REPLAY,
    _NOTHING: "Nsight Compute saw no kernel in the recorded range; record at least one launch, and "
    "see that the package nvtx is installed.",
}


@dataclass(frozen=True)
class Reading:
    """What ncu read of one launch: its kernel's name, nvtx ranges around it from the outermost in, and the metrics."""

    kernel: str
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    ranges: tuple[str, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """A run of ncu: its launches in order, counts per line by kernel if they were asked for, and where the file is.

    status : the exit status of the program that ran. absent : metrics asked for that this GPU does not have.
    """

    launches: tuple[Reading, ...]
    lines: dict[str, list[dict[str, Any]]]
    path: Path | None
    status: int = 0
    absent: tuple[str, ...] = ()


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


def usable() -> str:
    """The path of ncu; LabkitError where it is absent, or too old."""
    ncu = find()
    if ncu is None:
        raise LabkitError(
            "Nsight Compute (ncu) is not installed; it comes with the CUDA toolkit. The emulator profiles without it."
        )
    version = _version(ncu, os.stat(ncu).st_mtime_ns)
    if version and version < OLDEST:
        raise LabkitError(
            f"{ncu} is Nsight Compute {version[0]}.{version[1]}, which is too old; install "
            f"{OLDEST[0]}.{OLDEST[1]} or newer."
        )
    return ncu


@functools.lru_cache
def _version(ncu: str, _: int) -> tuple[int, int] | None:
    try:
        said = subprocess.run([ncu, "--version"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"Version (\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else None


def run(
    folder: str | Path, metrics: Sequence[str] = DEFAULT, *, repeats: int = 1, timeout: float = 600
) -> list[dict[str, float]]:
    """What ncu reads for each launch of the recording in `folder` (`Recording.save`), run `repeats` times over.

    Values are in base units (bytes, nanoseconds); `combine` puts launches together.
    Raises LabkitError, one sentence with the mend, where it cannot be done.
    """
    return [launch.metrics for launch in _replay(folder, metrics, repeats=repeats, timeout=timeout).launches]


def _replay(
    folder: str | Path, metrics: Sequence[str], *, repeats: int = 1, timeout: float = 600, lines: bool = False,
    keep: Path | None = None, strict: bool = True,
) -> Report:  # fmt: skip
    target = [sys.executable, "-m", "labkit.kernels.replay", str(folder), "--repeats", str(repeats)]
    options = ["--nvtx-include", RANGE]
    report = read(target, metrics, options=options, lines=lines, keep=keep, timeout=timeout, quiet=True)
    if strict and report.absent:
        raise LabkitError(
            f"Nsight Compute has no metric {', '.join(report.absent)} on this chip; `ncu --query-metrics` lists those "
            "it has."
        )
    return report


def read(
    target: Sequence[str],
    metrics: Sequence[str],
    *,
    options: Sequence[str] = (),
    lines: bool = False,
    keep: Path | None = None,
    timeout: float | None = None,
    quiet: bool = False,
    stdout: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Report:
    """Run the command `target` under ncu with `options`, and read its report.

    metrics : ncu's names; `lines` adds counts per source line. keep : where the report shall stay, else it goes.
    quiet : what the program prints is swallowed (and its last line told where it fails); else it goes to
    `stdout`, a file descriptor, or to this process's own.
    A program that fails after some kernels is no error: `status` tells. Raises LabkitError, one sentence with the
    mend, where ncu cannot do it.
    """
    ncu = usable()
    with tempfile.TemporaryDirectory() as scratch:
        path, log = Path(scratch) / "report.ncu-rep", Path(scratch) / "log"
        command = [
            ncu, "--target-processes", "all", "--clock-control", "none", "--cache-control", "all", "--nvtx", *options,
            *(source.OPTIONS if lines else ()), "--metrics", ",".join(metrics), "--log-file", str(log),
            "-f", "-o", str(path), *target,
        ]  # fmt: skip
        streams: dict[str, Any] = {"capture_output": True} if quiet else {"stdout": stdout}
        try:
            done = subprocess.run(command, text=True, timeout=timeout, env=environment, **streams)
        except subprocess.TimeoutExpired:
            raise LabkitError(f"Nsight Compute did not end within {timeout:g} s; profile a smaller shape.") from None
        said = log.read_text(errors="replace") if log.exists() else ""
        said = "\n".join([done.stdout or "", done.stderr or "", said])
        if quiet and done.returncode:
            raise _failure(said, done.returncode)
        failed = next((text for key, text in _FAILURES.items() if key in said), None)
        if failed:
            raise LabkitError(failed if quiet or _NOTHING not in said else _nothing(said, options))
        if not path.exists():
            if "application returned an error code" in said:
                raise LabkitError(f"The program ended with exit status {done.returncode} before a kernel was profiled.")
            if done.returncode:
                raise _failure(said, done.returncode)
            raise LabkitError(_FAILURES[_NOTHING] if quiet else _nothing(said, options))
        bring_in = [ncu, "--import", str(path)]
        launches = parse(_call([*bring_in, "--page", "raw", "--csv", "--print-units", "base"]), metrics)
        if not launches:
            raise _failure(said, done.returncode)
        counted = source.read(_call([*bring_in, *source.PRINT])) if lines else {}
        if keep is not None:
            keep.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, keep)
    absent = tuple(name for name in metrics if not any(name in launch.metrics for launch in launches))
    return Report(tuple(launches), counted, keep, done.returncode, absent)


def report_path(label: str, keep: bool | str | Path = True) -> Path | None:
    """Where a report shall stay: keep=True, by default, `.labkit/reports` of the project; a folder; or a file.

    Of the default folder the oldest reports go, so that KEPT stay. keep=False is None.
    """
    if keep is False:
        return None
    if keep is not True and Path(keep).suffix == ".ncu-rep":
        return Path(keep).expanduser().absolute()
    folder = own_folder("reports") if keep is True else Path(keep).expanduser().absolute()
    if keep is True:
        make_room(folder, "*.ncu-rep", KEPT)
    return folder / f"{stamp(label)}.ncu-rep"


def own_folder(name: str) -> Path:
    """A folder for what profiling leaves behind: `.labkit/<name>` of the project, else of labkit's cache."""
    try:
        return root() / ".labkit" / name
    except LabkitError:  # a program of someone's own, outside of any project
        return cache.folder() / name


def stamp(label: str) -> str:
    """A file's name for `label`: the time, and the label's letters and digits."""
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S-%f")[:-3]
    return f"{now}-{re.sub(r'[^A-Za-z0-9]+', '-', label).strip('-')[:60] or 'kernel'}"


def make_room(folder: Path, pattern: str, kept: int) -> None:
    """Delete the oldest files in `folder` so that with one more there are at most `kept`."""
    files = sorted(folder.glob(pattern)) if folder.is_dir() else []
    for path in files[: max(len(files) - kept + 1, 0)]:
        path.unlink(missing_ok=True)


def profile_measured(
    fn: Callable[[], object],
    *,
    label: str | None = None,
    shape: Mapping[str, int] | None = None,
    names: Mapping[str, Any] | None = None,
    metrics: Sequence[str] = DEFAULT,
    lines: bool = False,
    keep: bool | str | Path = False,
    strict: bool = True,
) -> Profile:
    """Record the launches of `fn` and profile them with Nsight Compute, all together.

    label, shape, names : as for `profile_emulated`. Nothing runs in this process: outputs keep their values.
    lines : with counts per source line. keep : as for `report_path`; `.report` of the profile tells.
    strict : a metric that the GPU does not have is an error; else it is left out, and the notes say so.
    Raises LabkitError, one sentence with the mend, where it cannot be done.
    """
    from labkit.emulator.ptx import short_name

    with _recorded([fn], names) as (folder, launches, _):
        label = label or " + ".join(dict.fromkeys(short_name(launch.entry) for launch in launches))
        report = _replay(folder, metrics, lines=lines, keep=report_path(label, keep), strict=strict)
    _all_seen(report.launches, len(launches))
    return Profile(
        "measured",
        label,
        dict(shape or {}),
        combine([launch.metrics for launch in report.launches]),
        line_counts=source.together(report.lines.values()),
        machine=machine(),
        notes=notes(report),
        report=str(report.path) if report.path else None,
    )


def read_each(
    runs: Sequence[Callable[[], object]], names: Mapping[str, Any] | None = None, metrics: Sequence[str] = DEFAULT
) -> list[dict[str, float]]:
    """The metrics of each of `runs` apart, all launched in one process under Nsight Compute.

    Nothing runs in this process. Raises LabkitError, one sentence with the mend, where it cannot be done.
    """
    with _recorded(runs, names) as (folder, launches, ends):
        report = _replay(folder, metrics, strict=False)
    _all_seen(report.launches, len(launches))
    parts = zip([0, *ends], ends, strict=False)
    return [combine([launch.metrics for launch in report.launches[start:end]]) for start, end in parts]


def notes(report: Report) -> tuple[str, ...]:
    """What to mind of a report, in sentences."""
    found = []
    if report.absent:
        found.append(f"This GPU has no {', '.join(report.absent)}.")
    if report.lines:
        found.append("Lines inside functions that the compiler inlined are counted where they stand.")
    return tuple(found)


@contextmanager
def _recorded(
    runs: Sequence[Callable[[], object]], names: Mapping[str, Any] | None
) -> Iterator[tuple[str, list[Launch], list[int]]]:
    """A folder with the recording of all `runs`, its launches, and how many there are after each run."""
    from labkit.kernels import recording

    ends = []
    with recording(names) as record:
        for fn in runs:
            fn()
            ends.append(len(record.launches))
    if any(start == end for start, end in zip([0, *ends[:-1]], ends, strict=True)):
        raise LabkitError("No kernel was launched, so there is nothing to profile; launch one inside the function.")
    with tempfile.TemporaryDirectory() as folder:
        record.save(folder)
        yield folder, record.launches, ends


def _all_seen(found: Sequence[object], ran: int) -> None:
    if len(found) != ran:
        raise LabkitError(f"Nsight Compute saw {len(found)} launches where {ran} ran; profile again.")


def machine() -> dict[str, str]:
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


def _call(command: list[str]) -> str:
    """What ncu prints of a report."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise _failure(done.stdout + "\n" + done.stderr, done.returncode)
    return done.stdout


def _failure(output: str, status: int = 1) -> LabkitError:
    """The sentence for what ncu and the program printed."""
    for key, sentence in _FAILURES.items():
        if key in output:
            return LabkitError(sentence)
    said = [line for line in output.splitlines() if line.strip() and not line.startswith("==")]
    errors = [line for line in output.splitlines() if line.startswith("==ERROR==")]
    what = (said or errors or [f"exit status {status}"])[-1].removeprefix("==ERROR==").strip()
    return LabkitError(f"Nsight Compute or the kernel that it replayed failed: {what}")


def _nothing(said: str, options: Sequence[str]) -> str:
    """The sentence for a program of which no kernel was profiled."""
    kernels = list(dict.fromkeys(source.plain(n) for n in re.findall(r"^\s*\d+\. (.+)$", said, re.MULTILINE)))
    if not kernels:
        return "The program launched no kernel on the GPU, so there is nothing to profile."
    which = " and ".join(f"{a} {b}" for a, b in zip(options[::2], options[1::2], strict=False)) or "the options"
    return f"No launch fits {which}; the program's kernels are {', '.join(kernels)}."


def parse(text: str, metrics: Sequence[str]) -> list[Reading]:
    """The rows of `ncu --page raw --csv`, one per launch; the row after the header holds units."""
    start = text.find('"ID"')
    if start < 0:
        return []
    found = []
    for row in list(csv.DictReader(io.StringIO(text[start:])))[1:]:
        values = {}
        for name in metrics:
            try:
                values[name] = float((row.get(name) or "").replace(",", ""))
            except ValueError:
                continue
        nested = next((v for k, v in row.items() if k and "Push/Pop_Range" in k), None) or ""
        found.append(
            Reading(
                row.get("Kernel Name") or "", _size(row.get("Grid Size")), _size(row.get("Block Size")),
                tuple(map(_range, re.findall(r'"(.*?)"', nested))), values,
            )
        )  # fmt: skip
    return found


def parse_raw(text: str, metrics: Sequence[str]) -> list[dict[str, float]]:
    """The metrics of `parse` alone."""
    return [reading.metrics for reading in parse(text, metrics)]


def _size(text: str | None) -> tuple[int, int, int]:
    """`(5, 1, 1)`."""
    sizes = [int(n) for n in re.findall(r"\d+", text or "")]
    return tuple((*sizes, 1, 1, 1)[:3])


def _range(text: str) -> str:
    """`steps` of `<default domain>:steps:none:none:RGB:0xff:REGISTERED:steps`; `mine@step 0` in a domain."""
    parts = text.split(":")
    more = max(len(parts) - 8, 0)  # colons of the name itself, which may stand there twice
    name = ":".join(parts[1 : 2 + (more // 2 if parts[-1 - more // 2 :] == parts[1 : 2 + more // 2] else more)])
    return name if parts[0].startswith("<") else f"{parts[0]}@{name}"


def combine(launches: list[dict[str, float]]) -> dict[str, float]:
    """Several launches as one; ratios of counts anew, since ncu prints them rounded."""
    times = [launch.get("gpu__time_duration.sum", 1.0) or 1.0 for launch in launches]
    found = {}
    for name in launches[0]:
        values = [launch.get(name, 0.0) for launch in launches]
        if name.endswith(".sum") or name in ("launch__grid_size", "launch__thread_count"):
            found[name] = sum(values)
        elif name.startswith("launch__occupancy_limit_") or name == "sm__maximum_warps_per_active_cycle_pct":
            found[name] = min(values)
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
