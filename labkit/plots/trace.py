"""The timeline of a program on the GPU."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from labkit.errors import LabkitError

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from labkit.profiling.trace import GpuTrace, Kernel

BARS = 20_000  # a browser draws so many smoothly
BINS = 400  # of the view, for the strip that shows how busy the GPU was: kernels are too narrow to be seen from afar
NAMED = 10  # kernels with a color of their own, by total time
PALETTE = (
    "#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#eeca3b", "#b279a2", "#ff9da6", "#9d755d", "#79706e",
)  # fmt: skip


def gpu_trace(data: GpuTrace) -> go.Figure:
    """Kernels of `labkit.profiling.trace.trace_script` over time, one row per stream; launches and ranges above them,
    and below a strip with the share of the time in which the GPU was busy. Kernels in ranges, if there are any, fill
    the view at first; a double click shows all.

    Up to BARS kernels are drawn, the first ones. Raises LabkitError for a trace without times.
    """
    import plotly.graph_objects as go

    if not data.timed:
        raise LabkitError("This trace has no times to draw: the emulator lists launches; trace on a GPU.")
    drawn = data.kernels[:BARS]
    last = max(k.end for k in drawn)
    figure = go.Figure()

    def bars(name: str, color: str, own: list[Kernel]) -> None:
        figure.add_bar(
            orientation="h", name=name, y=[_row(k) for k in own], base=[k.start for k in own], width=0.8,
            x=[k.time for k in own], text=[_text(k) for k in own], textposition="none",
            hovertemplate="%{text}<br>from %{base:,.2f} us for %{x:,.2f} us<extra></extra>",
            marker={"color": color, "line": {"width": 0}},
        )  # fmt: skip

    spans = [r for r in data.ranges if r[1] <= last]
    depths = _depths(spans)
    for depth in range(max(depths, default=-1) + 1):
        own = [r for r, d in zip(spans, depths, strict=True) if d == depth]
        names, starts, times = zip(*own, strict=True)
        figure.add_bar(
            orientation="h", name="ranges", y=["ranges" + " " * depth] * len(own), base=starts, x=times, text=names,
            textposition="inside", insidetextanchor="start", width=0.8, showlegend=False,
            hovertemplate="%{text}<br>from %{base:,.1f} us for %{x:,.1f} us<extra></extra>",
            marker={"color": "#dfe3e8", "line": {"color": "white", "width": 1}},
        )  # fmt: skip
    calls = {k.call: k for k in reversed(drawn) if k.launched is not None}
    figure.add_scatter(
        name="launch calls", mode="markers", x=[k.launched for k in calls.values()], y=["launches"] * len(calls),
        text=[f"{'graph, first ' * k.graph}{k.name}" for k in calls.values()],
        hovertemplate="%{text}<br>launched at %{x:,.2f} us<extra></extra>",
        marker={"symbol": "line-ns", "size": 9, "line": {"color": "#5f6368", "width": 1}},
    )  # fmt: skip
    ranked = [name for name in data.frame["kernel"]]
    for n, name in enumerate(ranked[:NAMED]):
        own = [k for k in drawn if k.kernel and k.name == name]
        bars(name, PALETTE[n], own)
    others = [k for k in drawn if not k.kernel or k.name in ranked[NAMED:]]
    if others:
        bars("copies and other kernels", "#bab0ac", others)
    inside = [k for k in drawn if k.ranges]
    first = min(k.start for k in drawn)
    begin, end = first, last
    if inside:
        named = {name for k in inside for name in k.ranges}
        begin, end = min(r[1] for r in spans if r[0] in named), max(k.end for k in inside)
    edges = [begin + (end - begin) * n / BINS for n in range(BINS + 1)]
    edges = [*([first] if first < begin else []), *edges, *([last] if last > end else [])]
    share = _busy(drawn, edges)
    figure.add_bar(
        orientation="h", y=["GPU busy"] * len(share), base=edges[:-1], width=0.8, showlegend=False,
        x=[b - a for a, b in itertools.pairwise(edges)], customdata=share,
        marker={"color": [_shade(s) for s in share], "line": {"width": 0}},
        hovertemplate="busy for %{customdata:.0%} of the time from %{base:,.0f} us<extra></extra>",
    )  # fmt: skip
    rows = [*(["launches"] if calls else []), *sorted({"ranges" + " " * d for d in depths}, key=len),
            *sorted({_row(k) for k in drawn}), "GPU busy"]  # fmt: skip
    left = f"; the first {BARS:,} of {len(data.kernels):,} are drawn" if len(data.kernels) > BARS else ""
    figure.update_layout(
        title={"text": f"{data.script} on {data.machine or 'a GPU'} ({data.origin}): the GPU was busy for "
                       f"{data.busy_us:,.0f} us{left}", "font": {"size": 15}},
        barmode="overlay", template="plotly_white", height=240 + 46 * len(rows), hovermode="closest",
        xaxis={"title": "time (us)", "range": [begin, end]}, dragmode="zoom",
        yaxis={"categoryorder": "array", "categoryarray": rows[::-1], "fixedrange": True},
        legend={"orientation": "h", "y": -0.25, "x": 0},
    )  # fmt: skip
    return figure


def _busy(kernels: Sequence[Kernel], edges: list[float]) -> list[float]:
    """For each bin between the edges the share of its time in which a kernel or copy ran."""
    found = [0.0] * (len(edges) - 1)
    until = edges[0]
    for k in kernels:  # by start
        at, end = max(k.start, until), k.end
        until = max(until, end)
        n = max(bisect.bisect_right(edges, at) - 1, 0)
        while at < end and n < len(found):
            stop = min(end, edges[n + 1])
            found[n] += stop - at
            at, n = stop, n + 1
    return [busy / (b - a) for busy, (a, b) in zip(found, itertools.pairwise(edges), strict=True)]


def _shade(share: float) -> str:
    """Light gray for idle, blue for busy."""
    light, full = (241, 243, 244), (23, 78, 166)
    return "rgb({:.0f},{:.0f},{:.0f})".format(*(a + (b - a) * share for a, b in zip(light, full, strict=True)))


def _row(kernel: Kernel) -> str:
    return f"stream {kernel.stream}"


def _text(kernel: Kernel) -> str:
    size = f"grid {kernel.grid}, block {kernel.block}" if kernel.kernel else "copy or fill"
    around = f"<br>in {' > '.join(kernel.ranges)}" if kernel.ranges else ""
    return f"{kernel.name}<br>{size}{around}"


def _depths(spans: list[tuple[str, float, float]]) -> list[int]:
    """How many of the spans before, which come by their start, each lies in."""
    ends: list[float] = []
    found = []
    for _, start, time in spans:
        ends = [end for end in ends if end > start]
        found.append(len(ends))
        ends.append(start + time)
    return found
