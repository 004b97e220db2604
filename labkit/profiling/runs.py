"""Many kernels under one Nsight Compute, to keep what it reads: profiles of solutions, counters for the emulator.

To start Python, PyTorch, a context and ncu takes longer than to measure a kernel. So all kernels are compiled first, in
as many processes as there are cores, and then run in one: `python -m labkit.profiling.runs ORDER.json`, under ncu.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit import problems, recorded
from labkit.errors import LabkitError
from labkit.kernels import gpu, recorder
from labkit.kernels.arrays import Array
from labkit.profiling import fidelity, ncu
from labkit.profiling.metrics import DEFAULT, STALLS

if TYPE_CHECKING:
    from labkit.ladder import Rung

DOMAIN = "labkit.runs"  # of nvtx ranges that number the runs
LONG = 3600.0  # seconds
METRICS = {"profiles": (*DEFAULT, *(metric.name for metric in STALLS)), "counters": DEFAULT}


@dataclass(frozen=True)
class Order:
    """What the measured process does. shapes: of profiles, in place of those of `Problem.recorded_at`.

    seconds: after so many, nothing is begun. results: the JSON file that it writes.
    """

    kind: str
    names: list[str]
    shapes: list[dict[str, int]] | None
    seconds: float
    results: str


def record(
    kind: str,
    names: Sequence[str],
    folder: Path | None = None,
    *,
    shapes: Sequence[dict[str, int]] | None = None,
    seconds: float = LONG,
) -> dict[str, str]:
    """Take the recordings of a kind ("profiles" or "counters") of all these problems, and write their files.

    shapes: of profiles, in place of those where each is recorded. seconds: after so many, no problem is begun.
    Returns for each problem "" or, where its file was not written or lacks something, the sentence that says why.
    Raises LabkitError, one sentence, where ncu cannot run.
    """
    began = time.monotonic()
    ncu.usable()
    codes = _prepare(kind, names)
    with tempfile.TemporaryDirectory() as scratch:
        order = Order(
            kind, list(names), list(shapes) if shapes else None, max(seconds - (time.monotonic() - began), 0.0),
            str(Path(scratch) / "results.json"),
        )  # fmt: skip
        path = Path(scratch) / "order.json"
        path.write_text(json.dumps(dataclasses.asdict(order)))
        report = ncu.read(
            [sys.executable, "-m", "labkit.profiling.runs", str(path)], METRICS[kind],
            options=["--nvtx-include", ncu.RANGE], quiet=True,
        )  # fmt: skip
        results = json.loads(Path(order.results).read_text())
    seen: dict[str, list[dict[str, float]]] = {}
    for launch in report.launches:
        seen.setdefault(next(r for r in launch.ranges if r.startswith(f"{DOMAIN}@")), []).append(launch.metrics)
    entries: dict[str, list[dict[str, Any]]] = {}
    for n, run in results["runs"].items():
        found = seen.get(f"{DOMAIN}@{n}", [])
        if len(found) != run["launches"]:
            saw = f"Nsight Compute saw {len(found)} launches where {run['launches']} ran; record again."
            results["said"][run["problem"]] = f"{_name(run['entry'])}: {saw}"
            continue
        entries.setdefault(run["problem"], []).append(_entry(kind, run["entry"], found, codes))
    for name, found in entries.items():
        if name not in results["unfinished"]:
            recorded.write(kind, name, {"entries": found}, folder)
    return {name: results["said"].get(name, "") for name in names}


def _name(entry: dict[str, Any]) -> str:
    return entry.get("case") or entry["label"]


def _entry(kind: str, known: dict[str, Any], found: list[dict[str, float]], codes: dict) -> dict[str, Any]:
    if kind == "profiles":
        return {**known, "metrics": ncu.combine(found)}
    size = len(found) // fidelity.REPEATS
    turns = [ncu.combine(found[i : i + size]) for i in range(0, len(found), size)]
    code = codes.get(known["case"])
    return {**known, "code": code, "readings": {metric: [turn[metric] for turn in turns] for metric in turns[0]}}


# --- compiling, many at a time -------------------------------------------------------------------------


def _prepare(kind: str, names: Sequence[str]) -> dict[str, list[str] | None]:
    """Compile all kernels into labkit's cache; of cases for the emulator, the hashes of their machine code."""
    codes: dict[str, list[str] | None] = {}
    jobs = max((os.cpu_count() or 1) - 1, 1)
    parts = max(jobs // len(names), 1)
    with ProcessPoolExecutor(min(jobs, parts * len(names)), mp_context=get_context("spawn")) as pool:
        waiting: list[Future] = [
            pool.submit(_compile, kind, name, slice(part, None, parts)) for name in names for part in range(parts)
        ]
        for future in as_completed(waiting):
            codes.update(future.result())
    return codes


def _compile(kind: str, name: str, part: slice) -> dict[str, list[str] | None]:
    import torch

    torch.set_num_threads(1)
    codes = {}
    for case in fidelity.cases(name)[part]:
        try:
            if kind == "counters":
                codes[case.name] = fidelity.machine_codes(case.run()["fn"])
            else:
                with recorder.recording():
                    case.run()["fn"]()
        except LabkitError:  # it is said where the kernel runs
            continue
    return codes


# --- the measured process ------------------------------------------------------------------------------


class _OnGpu(recorder.Session):
    """Runs each launch on the GPU, in the range at which ncu looks."""

    launches = 0

    def launch(self, ptx: str, entry: str, grid: Any, block: Any, args: Sequence[Any], **options: Any) -> None:
        import nvtx

        shared, cluster = options.get("shared", 0), options.get("cluster", (1, 1, 1))
        recorder.check_size(grid, block, shared)
        params = [struct.pack("<Q", a.address) if isinstance(a, Array) else a for a in args]
        with nvtx.annotate("kernel", domain="labkit"):
            gpu.launch_code(
                ptx.encode(), entry, grid, block, params,
                shared=shared, cluster=cluster, max_registers=options.get("max_registers"),
            )  # fmt: skip
        self.launches += 1


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0; what ran, and in a sentence what did not, is in the order's file of results."""
    import nvtx

    (path,) = sys.argv[1:] if argv is None else argv
    order = Order(**json.loads(Path(path).read_text()))
    deadline = time.monotonic() + order.seconds
    results: dict[str, Any] = {"runs": {}, "said": {}, "unfinished": []}
    runs, numbers = {"profiles": _profiles, "counters": _counters}[order.kind], itertools.count()
    for name in order.names:
        for entry, run in runs(name, order.shapes):
            if time.monotonic() > deadline:
                results["said"][name] = "No time was left."
                results["unfinished"].append(name)
                break
            number = str(next(numbers))
            try:
                with nvtx.annotate(number, domain=DOMAIN):
                    launches = run()
            except (LabkitError, RuntimeError) as error:  # memory of the GPU, too
                results["said"][name] = f"{_name(entry)}: {str(error).splitlines()[0]}"
                continue
            results["runs"][number] = {"problem": name, "entry": entry, "launches": launches}
        Path(order.results).write_text(json.dumps(results))
    return 0


def _counters(name: str, _: Any) -> Iterator[tuple[dict[str, Any], Callable[[], int]]]:
    """Each case on the same inputs that the emulator gets, some times over."""
    from labkit.kernels.replay import replay

    def run(case: fidelity.Case) -> int:
        made = case.run()
        with recorder.recording() as record:
            made["fn"]()
        replay(record, fidelity.REPEATS)
        return fidelity.REPEATS * len(record.launches)

    for case in fidelity.cases(name):
        yield {"case": case.name, "fingerprint": case.fingerprint}, lambda case=case: run(case)


def _profiles(name: str, shapes: Any) -> Iterator[tuple[dict[str, Any], Callable[[], int]]]:
    """Each solution once, at each shape, on inputs made on the GPU."""
    import torch

    from labkit.ladder import problem
    from labkit.recordings import shapes_of

    made: dict[str, Any] = {}  # the inputs of the last run, which the next one may take again

    def run(rung: Rung, dims: dict[str, int]) -> int:
        p, key = rung.problem, (rung.problem.inputs, dims)
        if made.get("key") != key:
            made.clear()
            made.update(key=key, inputs=p.make_inputs(dims, device="cuda"))
        outputs = p.make_outputs(dims, device="cuda")
        session = _OnGpu()
        kernel = rung.kernel
        torch.cuda.synchronize()
        with recorder.entered(session):
            kernel.launch(problems.problem.as_argument(outputs), *made["inputs"].values(), **p.options_of(dims))
        torch.cuda.synchronize()
        return session.launches

    for rung in fidelity.solutions(problem(name)):
        for shape in shapes or shapes_of("profiles", name):
            dims = rung.problem.dims_of(shape or rung.bench_shape)
            entry = {"label": rung.label, "fingerprint": rung.fingerprint, "shape": dims}
            yield entry, lambda rung=rung, dims=dims: run(rung, dims)


if __name__ == "__main__":
    sys.exit(main())
