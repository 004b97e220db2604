"""Run someone's program and watch its launches: `python -m labkit.profiling.host ORDER.json`, a process of its own.

The order (see `Order`) says what to do with launches: "count" them on the emulator, "list" them on the emulator,
"trace" them on the GPU with torch's profiler, or only "lines": let numba's kernels keep line information for ncu.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.errors import LabkitError

LONG = 2**23  # threads of a launch from which the emulator may take a minute and more


@dataclass
class Order:
    """What to run, and how. `results` is the JSON file that is written; `kernel`, `range`, `skip` and `count` choose
    among the launches as the options of ncu do; `sample` is how many blocks of each launch the emulator runs."""

    script: str
    args: list[str]
    what: str
    results: str
    kernel: str | None = None
    range: str | None = None
    skip: int = 0
    count: int | None = None
    sample: int | None = None

    def wants(self, kernel: str, ranges: Sequence[str]) -> bool:
        """Whether a launch is chosen by its kernel and ranges."""
        named = self.kernel is None or self.kernel == kernel
        return named and (self.range is None or self.range in ranges)


@dataclass
class Log:
    """Launches as they come; a profile of each that is wanted."""

    order: Order
    launches: list[dict[str, Any]] = field(default_factory=list)
    fitting: int = 0
    told: set[str] = field(default_factory=set)

    def launch(self, args: tuple, options: dict) -> None:
        from labkit.emulator.engine import Emulation
        from labkit.emulator.ptx import short_name
        from labkit.kernels.recorder import Emulating, modules
        from labkit.profiling import ranges
        from labkit.profiling.emulated import profile_of

        _, entry, grid, block = args[:4]
        kernel, around = short_name(entry), ranges.current()
        made: dict[str, Any] = {
            "kernel": kernel, "grid": list(grid), "block": list(block), "shared": options.get("shared", 0),
            "ranges": list(around), "profile": None,
        }  # fmt: skip
        wanted = self.order.what == "count" and self.order.wants(kernel, around)
        if wanted:
            self.fitting += 1
            last = self.order.skip + self.order.count if self.order.count is not None else self.fitting
            wanted = self.order.skip < self.fitting <= last
        self._warn(kernel, grid, block)
        emulation = self._emulation(kernel) if wanted else Emulation(sample=self.order.sample, modules=modules)
        Emulating(emulation).launch(*args, **options)
        if wanted:
            made["profile"] = profile_of(emulation, kernel).to_dict()
            self.told.add(kernel)
        self.launches.append(made)

    def _emulation(self, kernel: str) -> Any:
        """One that counts; of a kernel's first launch it also keeps one warp's accesses, for pictures."""
        from labkit.emulator.counters import Counters
        from labkit.emulator.engine import Emulation
        from labkit.emulator.sampling import Sampled
        from labkit.emulator.trace import Trace
        from labkit.kernels.recorder import modules
        from labkit.profiling.emulated import Watched

        sample = self.order.sample
        counters = Counters() if sample is None else Sampled(sample)
        if kernel in self.told:
            return Emulation(counters=counters, sample=sample, modules=modules)
        return Watched(counters=counters, trace=Trace(), sample=sample, modules=modules)

    def _warn(self, kernel: str, grid: Sequence[int], block: Sequence[int]) -> None:
        threads = grid[0] * grid[1] * grid[2] * block[0] * block[1] * block[2]
        if threads < LONG or self.order.sample is not None or kernel in self.told:
            return
        print(
            f"labkit: {kernel} has {threads:,} threads, which the emulator runs for a while; --sample 64 runs 64 "
            "blocks of each launch and scales the counts up, but leaves outputs incomplete.",
            file=sys.stderr,
        )


def main(argv: Sequence[str] | None = None) -> int:
    """The program's exit status; what was seen of it is in the order's file of results."""
    (path,) = sys.argv[1:] if argv is None else argv
    order = Order(**json.loads(Path(path).read_text()))
    watching = {"count": _emulated, "list": _emulated, "trace": _traced, "lines": _with_lines}[order.what]
    results: dict[str, Any] = {"status": 0, "error": None}
    with watching(order, results):
        results["status"], results["error"] = _run(order)
        sys.stdout.flush()
    if order.what != "lines":
        Path(order.results).write_text(json.dumps(results))
    return results["status"]


def _run(order: Order) -> tuple[int, str | None]:
    """Run the program as `python script args` would; its exit status, and in a sentence what ended it early."""
    sys.argv = [order.script, *order.args]
    sys.path.insert(0, str(Path(order.script).resolve().parent))
    try:
        runpy.run_path(order.script, run_name="__main__")
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0, None
        print(stop.code, file=sys.stderr)
        return 1, None
    except LabkitError as error:
        at = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == order.script]
        where = f"{order.script}:{at[-1].lineno}: " if at else ""
        print(f"{where}{error}", file=sys.stderr)
        return 1, f"{where}{error}"
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != order.script:  # frames of ours and of runpy
            trace = trace.tb_next
        traceback.print_exception(type(error), error, trace)
        return 130 if isinstance(error, KeyboardInterrupt) else 1, f"{type(error).__name__}: {error}"
    return 0, None


@contextlib.contextmanager
def _emulated(order: Order, results: dict[str, Any]) -> Iterator[None]:
    from labkit.kernels import recorder
    from labkit.profiling import ranges

    log = Log(order)

    class Watching(recorder.Session):
        def launch(self, *args: Any, **options: Any) -> None:
            log.launch(args, options)

    ranges.watch()
    recorder.watch(Watching())
    with contextlib.ExitStack() as stack:

        def keep_on_host() -> None:
            from labkit.profiling.torch_host import cuda_on_host

            stack.enter_context(cuda_on_host())

        ranges.when_imported("torch", keep_on_host)
        yield
    recorder.watch(None)
    results["launches"] = log.launches


@contextlib.contextmanager
def _with_lines(order: Order, results: dict[str, Any]) -> Iterator[None]:
    from labkit.kernels import numba_host

    numba_host.keep_lines()
    yield


@contextlib.contextmanager
def _traced(order: Order, results: dict[str, Any]) -> Iterator[None]:
    import torch
    from torch.profiler import ProfilerActivity, profile

    from labkit.profiling import ranges

    def opened(name: str) -> Any:
        record = torch.autograd.profiler.record_function(name)
        base_enter(record)
        return record

    base = torch.autograd.profiler.record_function
    base_enter, base_exit = base.__enter__, base.__exit__
    ranges.watch(opened, lambda record: base_exit(record, None, None, None))
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as profiler:
        yield
        torch.cuda.synchronize()
    profiler.export_chrome_trace(order.results + ".trace")


def save(order: Order, path: Path) -> Path:
    """Write the order for a process to come."""
    path.write_text(json.dumps(dataclasses.asdict(order)))
    return path


if __name__ == "__main__":
    sys.exit(main())
