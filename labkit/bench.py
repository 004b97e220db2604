"""A whole ladder timed in one process: checked, interleaved with PyTorch, recorded with raw samples."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit import problems, recorded
from labkit.errors import LabkitError
from labkit.ladder import Rung
from labkit.timing import Timing, time_kernel

if TYPE_CHECKING:
    import pandas


@dataclass
class Bench:
    """Timings of a ladder; `skipped` maps a rung's label to the sentence that says why it has none."""

    problem: str
    timings: list[Timing] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def table(self) -> pandas.DataFrame:
        """One row per timing: label, shape, median and spread in ms, TFLOP/s, GB/s, ratio to PyTorch, origin."""
        import pandas

        return pandas.DataFrame(
            {
                "kernel": t.label,
                **t.shape,
                "median ms": t.median_ms,
                "spread ms": t.spread_ms,
                "TFLOP/s": t.tflops,
                "GB/s": t.gbps,
                "of PyTorch": t.ratio if t.baseline_ms else None,
                "SM MHz": t.sm_clock_mhz[1] if t.sm_clock_mhz else None,
                "origin": t.origin,
            }
            for t in self.timings
        )

    def to_dict(self) -> dict[str, Any]:
        return {"timings": [t.to_dict() for t in self.timings], "skipped": self.skipped}

    def __repr__(self) -> str:
        lines = [self.table.to_string(index=False, float_format=lambda v: f"{v:.4g}")] if self.timings else []
        lines += [f"{label}: {why}" for label, why in self.skipped.items()]
        machines = {f"{t.origin} on {t.machine}, {t.date}" for t in self.timings}
        return "\n".join([*lines, *sorted(machines)])


def bench(
    name: str, shapes: Iterable[dict[str, int]], rungs: Iterable[Rung], *, cold: bool = True, check: bool = True
) -> Bench:
    """Check and time each rung at each shape on this machine's GPU.

    A rung that fails its check, or cannot be compiled, is skipped with its sentence; the others go on.
    check: without it, only the outputs that are timed are compared.
    Raises LabkitError where there is no GPU.
    """
    from labkit.kernels import gpu

    if not gpu.available():
        raise LabkitError("There is no GPU here to time kernels on; --recorded shows what was measured elsewhere.")
    import torch

    problem = problems.get(name)
    result = Bench(name)
    rungs, shapes = list(rungs), list(shapes)
    for n, rung in enumerate(rungs):
        progress(n, len(rungs), rung.label)
        started = time.perf_counter()
        checked = rung.check() if check else None
        compile_and_check_s = time.perf_counter() - started
        if checked and not checked.passed:
            result.skipped[rung.label] = str(checked.failures[0])
            continue
        for shape in (problem.dims_of(shape or rung.bench_shape) for shape in shapes):
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            try:
                timing = time_kernel(rung.problem, rung.kernel, rung.label, shape, cold=cold)
            except LabkitError as error:
                result.skipped[rung.label] = str(error)
                break
            if check:
                timing.extra["check_s"] = round(compile_and_check_s, 2)
            timing.extra["fingerprint"] = rung.fingerprint
            timing.extra["peak_bytes"] = torch.cuda.max_memory_allocated() - before
            result.timings.append(timing)
    for beside in [timing for timing in result.timings if timing.label == result.timings[-1].label]:
        _time_rivals(result, rungs, beside, cold)
    progress(len(rungs), len(rungs), "done")
    return result


def _time_rivals(result: Bench, rungs: list[Rung], beside: Timing, cold: bool) -> None:
    """PyTorch's other ways, each timed in turn with the highest rung that was timed, `beside`, at its shape."""
    rung = next(rung for rung in rungs if rung.label == beside.label)
    for name, function in rung.problem.rivals.items():
        label = f"{rung.problem.name}/{name}"
        try:
            against = replace(rung.problem, baseline=function)
            timing = time_kernel(against, rung.kernel, label, beside.shape, cold=cold)
        except (LabkitError, RuntimeError) as error:  # PyTorch's compiler needs Triton and a C compiler
            result.skipped[label] = str(error).strip().partition("\n")[0]
            continue
        result.timings.append(replace(timing, samples_ms=timing.baseline_ms, baseline_ms=()))


def show_recorded(name: str) -> Bench:
    """What was recorded of a problem's ladder on other machines."""
    import json

    result = Bench(name)
    for file in recorded.files("bench", name):
        entries = json.loads(file.read_text())["timings"]
        result.timings += [Timing.from_dict({**entry, "origin": "recorded"}) for entry in entries]
    if not result.timings:
        raise LabkitError(f"No times of {name} have been recorded.")
    return result


def record(result: Bench, folder: Path | None = None) -> Path:
    """Write the recorded file of a bench, raw samples and all."""
    return recorded.write("bench", result.problem, result.to_dict(), folder)


def progress(done: int, total: int, what: str) -> None:
    """A bar on standard error, where that is a terminal."""
    if sys.stderr.isatty():
        bar = "#" * (24 * done // total)
        print(f"\r[{bar:24}] {done}/{total} {what:40}", end="\n" if done == total else "", file=sys.stderr, flush=True)
