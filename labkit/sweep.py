"""What a constant of a kernel is worth: `labkit sweep gemm_f16/mma_tuned GROUP=1,8 STAGES=3,4`.

A kernel file names what may be tuned (`constexpr int GROUP = 8;`, in Python `GROUP = 8`). For each combination of the
values, a copy of the file with these in their place is checked, timed on this machine's GPU, and profiled: by Nsight
Compute where it may run, by the emulator elsewhere.
"""

from __future__ import annotations

import itertools
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit import recorded
from labkit.bench import progress
from labkit.errors import LabkitError
from labkit.problems.problem import as_argument
from labkit.profiling import ncu
from labkit.profiling.metrics import describe, metric_set
from labkit.timing import Timing, time_kernel

if TYPE_CHECKING:
    import pandas

    from labkit.ladder import Rung

# Metrics in the table: what tuning trades against each other.
SHOWN = (
    "launch__registers_per_thread",
    "labkit__spill_bytes",
    "sm__maximum_warps_per_active_cycle_pct",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "lts__t_sector_hit_rate.pct",
    "dram__bytes_read.sum",
)
# Shown too where there are no times: what a kernel does, which is all that tells its variants apart.
COUNTED = (
    "smsp__inst_executed.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
)


@dataclass
class Sweep:
    """`rows`: for each combination {"constants", "timing" (or None), "metrics", "why" (it was left out, or "")}.

    `own`: the values in the file itself. `label`: the rung's. `shape`: of the times, and of metrics by Nsight Compute.
    """

    label: str
    shape: dict[str, int]
    own: dict[str, str]
    rows: list[dict[str, Any]] = field(default_factory=list)
    origin: str = ""

    @property
    def table(self) -> pandas.DataFrame:
        """A row per combination: the constants, median and spread in ms, time against the file's own, metrics."""
        import pandas

        times = {tuple(row["constants"].items()): row["timing"] for row in self.rows}
        own = times.get(tuple(self.own.items()))
        shown = SHOWN if any(times.values()) else (*COUNTED, *SHOWN)
        rows = []
        for row in self.rows:
            timing, metrics = row["timing"], row["metrics"]
            found: dict[str, Any] = dict(row["constants"])
            if timing:
                found |= {"median ms": timing.median_ms, "spread ms": timing.spread_ms, "TFLOP/s": timing.tflops}
                found |= {"GB/s": timing.gbps} | ({"x own": own.median_ms / timing.median_ms} if own else {})
            found |= {describe(name).title: metrics[name] for name in shown if name in metrics}
            rows.append(found)
        return pandas.DataFrame(rows)

    def __repr__(self) -> str:
        def shown(value: float) -> str:
            return f"{value:,.0f}" if value.is_integer() else f"{value:.4g}"

        table = self.table.to_string(index=False, float_format=shown)
        lines = [f"{self.label} {_words(self.shape)}", table]
        lines += [f"{_words(row['constants'])}: {row['why']}" for row in self.rows if row["why"]]
        return "\n".join([*lines, self.origin])

    def to_dict(self) -> dict[str, Any]:
        """As plain data, with raw samples."""
        rows = [{**row, "timing": row["timing"].to_dict() if row["timing"] else None} for row in self.rows]
        return {"label": self.label, "shape": self.shape, "own": self.own, "rows": rows, "origin": self.origin}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Sweep:
        rows = [
            {**row, "timing": Timing.from_dict({**row["timing"], "origin": "recorded"}) if row["timing"] else None}
            for row in data["rows"]
        ]
        return cls(data["label"], data["shape"], data["own"], rows, data["origin"])


def _words(constants: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in constants.items())


# --- sources -------------------------------------------------------------------------------------------


def value_of(source: str, language: str, name: str) -> tuple[str, int, int]:
    """The value of a constant as the text has it, and where it begins and ends.

    Raises LabkitError where the text does not define it once, at the top level or in a `constexpr`.
    """
    if language == "cuda":
        found = [
            value
            for line in re.finditer(r"(?m)^[ \t]*constexpr\b[^;]*;", source)
            for value in re.compile(rf"\b{name}\s*=\s*([^,;]+?)\s*[,;]").finditer(source, line.start(), line.end())
        ]  # fmt: skip
        example = f"constexpr int {name} = 8;"
    else:
        found = list(re.finditer(rf"(?m)^{name}\s*=\s*([^#\n]+?)\s*(?=#|$)", source))
        example = f"{name} = 8"
    if len(found) != 1:
        there = "not" if not found else f"{len(found)} times"
        raise LabkitError(f"{name} is {there} defined in this kernel's file; write there, once, {example}")
    return found[0][1], found[0].start(1), found[0].end(1)


def with_constants(source: str, language: str, constants: Mapping[str, Any]) -> str:
    """The text of a kernel file with other values for some of its constants."""
    for name, value in constants.items():
        _, start, end = value_of(source, language, name)
        source = f"{source[:start]}{value}{source[end:]}"
    return source


# --- measuring -----------------------------------------------------------------------------------------


def sweep(
    rung: Rung, constants: Mapping[str, Sequence[Any]], *, check: bool = True, profile: bool = True, **shape: int
) -> Sweep:
    """Check, time and profile a rung with each combination of values for constants of its file.

    shape: by default the rung's bench shape on a GPU, and the problem's profile shape on the emulator.
    check, profile: without them, that is left out. A combination that does not compile, or that is wrong, is left out
    with its sentence. Raises LabkitError where the file does not define a constant.
    """
    from labkit.kernels import gpu

    on_gpu, p, source = gpu.available(), rung.problem, rung.source
    dims = p.dims_of(shape or (rung.bench_shape if on_gpu else p.profile_shape))
    own = {name: value_of(source, rung.language, name)[0] for name in constants}
    result = Sweep(rung.label, dims, own)
    combinations = list(itertools.product(*constants.values()))
    with tempfile.TemporaryDirectory() as folder:
        right = []
        for n, values in enumerate(combinations):
            chosen = {name: str(value) for name, value in zip(constants, values, strict=True)}
            progress(n, len(combinations), _words(chosen))
            path = Path(folder) / f"{n}" / rung.path.name
            path.parent.mkdir()
            path.write_text(with_constants(source, rung.language, chosen))
            row: dict[str, Any] = {"constants": chosen, "timing": None, "metrics": {}, "why": ""}
            result.rows.append(row)
            variant = rung.load(path)
            try:
                checked = variant.check() if check else None
                if checked and not checked.passed:
                    raise LabkitError(str(checked.failures[0]))
                if on_gpu:
                    row["timing"] = time_kernel(p, variant.kernel, rung.label, dims)
                right.append((variant, row))
            except LabkitError as error:
                row["why"] = str(error)
        progress(len(combinations), len(combinations), "done")
        if profile:
            for (_, row), metrics in zip(right, _metrics([v for v, _ in right], dims, on_gpu), strict=True):
                row["metrics"] = metrics
    machine = next((row["timing"].machine for row in result.rows if row["timing"]), "")
    result.origin = f"measured on {machine}, {recorded.today()}" if machine else "counted by the emulator"
    return result


def _metrics(variants: Sequence[Rung], dims: dict[str, int], on_gpu: bool) -> list[dict[str, float]]:
    """The metrics of each variant: of all in one run of Nsight Compute, where there is a GPU."""
    if not on_gpu:
        return [dict(variant.profile(**dims).metrics) for variant in variants]
    if not variants:
        return []
    p, kernels = variants[0].problem, [variant.kernel for variant in variants]
    inputs, out = p.make_inputs(dims), as_argument(p.make_outputs(dims))
    runs = [partial(kernel.launch, out, *inputs.values(), **p.options_of(dims)) for kernel in kernels]
    return ncu.read_each(runs, metrics=metric_set("memory"))


# --- recorded ------------------------------------------------------------------------------------------


def find_recorded(rung: Rung, constants: Sequence[str], **shape: int) -> Sweep:
    """The recorded sweep over just these constants of the rung's solution; LabkitError where there is none.

    shape: by default the rung's bench shape.
    """
    dims = rung.problem.dims_of(shape or rung.bench_shape)
    shapes = []
    for path in recorded.files("sweep", _name(rung, constants)):
        for entry in json.loads(path.read_text())["sweeps"]:
            shapes.append(_words(entry["shape"]))
            if entry["shape"] == dims:
                return Sweep.from_dict(entry)
    known = f"; recorded are {', '.join(shapes)}" if shapes else ""
    raise LabkitError(f"No sweep of {rung.label} over {', '.join(constants)} was recorded at {_words(dims)}{known}.")


def _name(rung: Rung, constants: Sequence[str]) -> str:
    return "-".join([rung.problem.name, rung.step.name, rung.language, *constants])


def record(rung: Rung, sweeps: Sequence[Sweep], folder: Path | None = None) -> Path:
    """Keep sweeps over the same constants, at several shapes."""
    data = {"fingerprint": rung.fingerprint, "sweeps": [sweep.to_dict() for sweep in sweeps]}
    return recorded.write("sweep", _name(rung, list(sweeps[0].own)), data, folder)
