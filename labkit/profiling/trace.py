"""The timeline of someone's own program: its kernels, the nvtx ranges around them, and when the GPU waits.

With a GPU through torch's profiler. Without one the emulator lists the launches; it has no times.
"""

from __future__ import annotations

import bisect
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.errors import LabkitError
from labkit.profiling import host, ncu, script, source

if TYPE_CHECKING:
    import pandas

# From node to node of a CUDA graph, beyond a kernel's own time when it is launched alone: 200 small kernels took
# 192 us as a graph, 0.96 us each, and 0.86 us of it each when launched one by one (H200, driver 580, PyTorch 2.11).
GRAPH_GAP_US = 0.1
# From one launch call to the next. Launching takes 5 to 50 us from Python, longer under the profiler: a host that takes
# more than this does something else in between, imports or compiles, which no graph would spare it.
LAUNCH_US = 500.0
KEPT = 20  # traces that stay in the folder where they go by default
_LAUNCHES = ("LaunchKernel", "GraphLaunch", "LaunchCooperative")
_WAITS = ("Synchronize", "cudaMemcpy", "cuMemcpyDtoH", "cuMemcpyHtoD", "cudaFree", "cuMemFree")


@dataclass(frozen=True)
class Kernel:
    """One kernel, or (`kernel` False) a copy or fill. Times in us: `start` and `time` of the GPU, `launched` when its
    launch call began on the host; None where nothing measured them. `graph`: it was a node of a CUDA graph."""

    name: str
    start: float | None
    time: float | None
    stream: int
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    ranges: tuple[str, ...] = ()
    launched: float | None = None
    call: int | None = None
    graph: bool = False
    kernel: bool = True

    @property
    def end(self) -> float | None:
        return None if self.start is None or self.time is None else self.start + self.time


@dataclass(frozen=True)
class Gap:
    """Time in us in which the GPU had nothing to do: from the end of `before` to the start of `after`.

    `cause` is "launch" (the next launch had not reached it), "host" (the host waited, copied, or took more than
    LAUNCH_US before it launched on, which no graph spares it), or "graph" (between nodes of one graph)."""

    before: Kernel
    after: Kernel
    time: float
    cause: str


@dataclass(frozen=True)
class GpuTrace:
    """What happened on the GPU, in order; `ranges` are (name, start, time) on the host, in us.

    `html` and `json` are the files that `trace_script` wrote.
    """

    script: str
    origin: str
    kernels: tuple[Kernel, ...]
    ranges: tuple[tuple[str, float, float], ...] = ()
    waits: tuple[float, ...] = ()  # when the host began to wait for the GPU, or to copy
    machine: str = ""
    notes: tuple[str, ...] = ()
    status: int = 0
    html: str | None = None
    json: str | None = None
    gaps: tuple[Gap, ...] = field(init=False, repr=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "gaps", tuple(self._gaps()))

    @property
    def timed(self) -> bool:
        """Whether there are times, or launches alone."""
        return self.origin == "measured"

    @property
    def span_us(self) -> float:
        """From the first start to the last end on the GPU."""
        self._need_times()
        return max(k.end for k in self.kernels) - min(k.start for k in self.kernels)

    @property
    def idle_us(self) -> float:
        """Time between kernels in which the GPU had nothing to do."""
        self._need_times()
        return sum(gap.time for gap in self.gaps)

    @property
    def busy_us(self) -> float:
        """Time in which at least one kernel or copy ran."""
        return self.span_us - self.idle_us

    @property
    def graph_saves_us(self) -> float:
        """What CUDA graphs would save at most: the gaps before launches, less what stays between a graph's nodes."""
        self._need_times()
        return sum(max(gap.time - GRAPH_GAP_US, 0.0) for gap in self.gaps if gap.cause == "launch")

    def _need_times(self) -> None:
        if not self.timed:
            raise LabkitError("This trace has no times: the emulator lists launches; trace on a GPU.")

    def _gaps(self) -> Iterator[Gap]:
        if not self.timed:
            return
        last: Kernel | None = None
        waits = sorted(self.waits)
        for k in sorted(self.kernels, key=lambda k: k.start):
            if last is not None and k.start > last.end:
                yield Gap(last, k, k.start - last.end, _cause(last, k, waits))
            if last is None or k.end > last.end:
                last = k

    @property
    def frame(self) -> pandas.DataFrame:
        """One row per kernel's name, the longest first: launches, total and mean time in us, share of all time."""
        import pandas

        rows = []
        every = [k for k in self.kernels if k.kernel]
        total = sum(k.time or 0.0 for k in every)
        for name in dict.fromkeys(k.name for k in every):
            own = [k for k in every if k.name == name]
            row: dict[str, Any] = {"kernel": name, "launches": len(own)}
            if self.timed:
                time = sum(k.time for k in own)
                row |= {"total_us": time, "mean_us": time / len(own), "share": time / total}
            rows.append(row)
        frame = pandas.DataFrame(rows)
        return frame.sort_values("total_us", ascending=False, ignore_index=True) if self.timed else frame

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain = ["script", "origin", "machine", "status", "html", "json", "notes"]
        times = ["span_us", "busy_us", "idle_us", "graph_saves_us"] if self.timed else []
        data = {name: getattr(self, name) for name in plain + times}
        return {**data, "kernels": [asdict(k) for k in self.kernels], "ranges": self.ranges}

    def summary(self) -> str:
        """The trace in words: kernels by total time, the gaps, and what CUDA graphs would save."""
        launches = [k for k in self.kernels if k.kernel]
        where = ", ".join(filter(None, (self.origin, self.machine)))
        lines = [f"{self.script}: {_many(len(launches), 'kernel')} ({where})"]
        if self.timed:
            lines += self._times(launches)
        else:
            lines += [f"  {n:5}  {_at(k)}" for n, k in enumerate(self.kernels)]
        for name, (times, time, inside) in self._by_range().items():
            took = f", {time:,.0f} us on the host" if self.timed else ""
            lines.append(f"range {name}: {_many(times, 'time')}{took}, {_many(inside, 'kernel')}" if times else "")
        lines += self.notes
        for what, path in (("timeline", self.html), ("Chrome trace, for ui.perfetto.dev", self.json)):
            if path:
                lines.append(f"{what}: {path}")
        return "\n".join(line for line in lines if line)

    __str__ = summary

    def __repr__(self) -> str:
        return self.summary()

    def _times(self, launches: list[Kernel]) -> list[str]:
        frame = self.frame
        width = max([len(n) for n in frame["kernel"]] + [6])
        lines = [f"{'kernel':<{width}}  launches   total us    mean us  share"]
        lines += [
            f"{row.kernel:<{width}}  {row.launches:8}  {row.total_us:9,.1f}  {row.mean_us:9,.2f}  {row.share:5.0%}"
            for row in frame.itertuples()
        ]
        by_cause = {c: [g for g in self.gaps if g.cause == c] for c in ("launch", "host", "graph")}
        idle = {c: sum(g.time for g in gaps) for c, gaps in by_cause.items()}
        lines.append(
            f"The GPU was busy for {self.busy_us:,.0f} us. It waited {idle['launch']:,.0f} us for launches "
            f"({_many(len(by_cause['launch']), 'gap')}), and {idle['host']:,.0f} us for a host that did other things "
            f"({_many(len(by_cause['host']), 'gap')})."
        )
        graphs = sum(k.graph for k in launches)
        if by_cause["launch"]:
            saved, of = self.graph_saves_us, self.busy_us + idle["launch"]
            lines.append(
                f"CUDA graphs would save at most {saved:,.0f} of the {of:,.0f} us of kernels and launches "
                f"({saved / of:.0%}): they launch many kernels at once, {GRAPH_GAP_US:g} us apart (measured on an "
                "H200). The profiler lengthens launches."
            )
        elif graphs:
            lines.append("CUDA graphs launch these kernels already.")
        return lines

    def _by_range(self) -> dict[str, tuple[int, float, int]]:
        """By name: how often the range came, its time in all, and the kernels launched in it."""
        inside: dict[str, int] = {}
        for k in self.kernels:
            if k.kernel:
                for name in set(k.ranges):
                    inside[name] = inside.get(name, 0) + 1
        found: dict[str, tuple[int, float, int]] = {}
        for name, _, time in self.ranges:
            times, total, _ = found.get(name, (0, 0.0, 0))
            found[name] = (times + 1, total + time, inside.get(name, 0))
        return found

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(self.summary())}</pre>"


def trace_script(path: str | Path, args: Sequence[str] = (), *, output: str | Path | None = None,
                 stdout: int | None = None) -> GpuTrace:  # fmt: skip
    """Run `python path *args` in a process of its own, and trace what it does on the GPU.

    output : the files' name without ending, by default in `.labkit/traces` of the project: NAME.html, the timeline,
    and NAME.json for Chrome's and Perfetto's viewers. stdout : the file descriptor that takes what the program prints.
    Without a GPU the launches are listed as the emulator runs them, with their ranges and without times.
    Raises LabkitError where there is no such file, and where no kernel was launched.
    """
    from labkit.kernels import gpu

    name = str(path)
    if not Path(name).is_file():
        raise LabkitError(f"There is no file {name}; name the program to trace.")
    order = host.Order(name, [str(a) for a in args], "list", "")
    if not gpu.available():
        return _listed(order, stdout)
    base = Path(output).expanduser().absolute() if output else _default(name)
    base.parent.mkdir(parents=True, exist_ok=True)
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        order = replace(order, what="trace", results=str(Path(folder) / "results.json"))
        results = script.run_host(order, stdout, emulator=False)
        written = Path(order.results + ".trace")
        found = read(written, name)
        kept = base.with_name(base.name + ".json")
        shutil.copyfile(written, kept)
    ended = script.ended(name, results["status"], results["error"])
    found = replace(found, status=results["status"], json=str(kept), notes=(*found.notes, *ended))
    return draw(found, base.with_name(base.name + ".html"))


def draw(trace: GpuTrace, path: Path) -> GpuTrace:
    """Write the timeline as one HTML file that needs nothing else; the trace with its path, or a note why not."""
    from labkit import plots

    try:
        figure = plots.gpu_trace(trace)
    except ImportError as error:
        return replace(trace, notes=(*trace.notes, f"There is no drawing: {error}; pip install plotly."))
    figure.write_html(path, include_plotlyjs=True)
    return replace(trace, html=str(path))


def _default(name: str) -> Path:
    folder = ncu.own_folder("traces")
    for pattern in ("*.json", "*.html"):
        ncu.make_room(folder, pattern, KEPT)
    return folder / ncu.stamp(Path(name).stem)


def _listed(order: host.Order, stdout: int | None) -> GpuTrace:
    results = script.run_host(order, stdout)
    if not results["launches"]:
        raise LabkitError(script.without_launches(results))
    kernels = tuple(
        Kernel(k["kernel"], None, None, 0, tuple(k["grid"]), tuple(k["block"]), tuple(k["ranges"]))
        for k in results["launches"]
    )
    notes = ["There are no times and no timeline: there is no GPU here, and the emulator that ran this has no clock."]
    notes += script.ended(order.script, results["status"], results["error"])
    return GpuTrace(order.script, "emulated", kernels, notes=tuple(notes), status=results["status"])


def read(path: str | Path, name: str | None = None) -> GpuTrace:
    """A trace that torch's profiler exported for Chrome; times count from its first kernel or range.

    Raises LabkitError where it holds no kernel.
    """
    try:
        data = json.loads(Path(path).read_text())
        events = [e for e in data["traceEvents"] if e.get("ph") == "X"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabkitError(f"{path} is no trace of torch's profiler: {error}.") from error
    calls = {e["args"]["correlation"]: e for e in events if _cat(e, "cuda_runtime", "cuda_driver")
             and "correlation" in e.get("args", {})}  # fmt: skip
    ranges = [e for e in events if _cat(e, "user_annotation") and not e["name"].startswith("ProfilerStep")]
    activities = [e for e in events if _cat(e, "kernel", "gpu_memcpy", "gpu_memset")]
    if not any(_cat(e, "kernel") for e in activities):
        raise LabkitError("The program launched no kernel on the GPU, so there is nothing to trace.")
    zero = min(e["ts"] for e in (*activities, *ranges, *(c for c in calls.values() if _launches(c))))
    kernels = []
    for e in sorted(activities, key=lambda e: e["ts"]):
        args = e["args"]
        call = calls.get(args.get("correlation"))
        around = () if call is None else tuple(
            r["name"] for r in ranges if r["tid"] == call["tid"] and r["ts"] <= call["ts"] < r["ts"] + r["dur"]
        )  # fmt: skip
        is_kernel = _cat(e, "kernel")
        kernels.append(
            Kernel(
                source.plain(e["name"]) if is_kernel else e["name"], e["ts"] - zero, e["dur"], args.get("stream", 0),
                tuple(args.get("grid", (1, 1, 1))), tuple(args.get("block", (1, 1, 1))), around,
                None if call is None else call["ts"] - zero, args.get("correlation"),
                call is not None and "GraphLaunch" in call["name"], is_kernel,
            )
        )  # fmt: skip
    waits = [e["ts"] - zero for e in calls.values() if any(w in e["name"] for w in _WAITS) and "Async" not in e["name"]]
    gpus = ", ".join(dict.fromkeys(d["name"] for d in data.get("deviceProperties", ())))
    spans = tuple((r["name"], r["ts"] - zero, r["dur"]) for r in sorted(ranges, key=lambda r: (r["ts"], -r["dur"])))
    return GpuTrace(name or str(path), "measured", tuple(kernels), spans, tuple(waits), gpus)


def _cause(before: Kernel, after: Kernel, waits: list[float]) -> str:
    if after.graph and before.call == after.call:
        return "graph"
    if before.launched is None or after.launched is None:
        return "host"
    first, last = sorted((before.launched, after.launched))
    if last - first > LAUNCH_US:
        return "host"
    k = bisect.bisect_right(waits, first)
    return "host" if k < len(waits) and waits[k] < last else "launch"


def _cat(event: dict[str, Any], *wanted: str) -> bool:
    return event.get("cat") in wanted


def _launches(call: dict[str, Any]) -> bool:
    return any(word in call["name"] for word in _LAUNCHES)


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _at(k: Kernel) -> str:
    around = f"  in {' > '.join(k.ranges)}" if k.ranges else ""
    return f"{k.name}  grid {script.size([k.grid])}, block {script.size([k.block])}{around}"
