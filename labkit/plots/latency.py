"""Latency against footprint, and what it takes to hide it: throughput against what is in flight."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Protocol

from labkit.plots.waves import COLORS

if TYPE_CHECKING:
    import plotly.graph_objects as go

_CEILING = "#5f6368"


class Load(Protocol):
    """One point of a pointer chase."""

    footprint: int
    median_cycles: float
    median_ns: float


class Rate(Protocol):
    """One point of a throughput: with `warps` per multiprocessor and `each` operations per thread in flight."""

    warps: int
    each: int
    width: int
    in_flight: int
    rate: float


class Curves(Protocol):
    """What `labkit latency` measures."""

    label: str
    sms: int
    l2: int
    shared: Load
    dram: Load
    loads: Sequence[Load]
    reads: Sequence[Rate]
    fmas: Sequence[Rate]
    ceilings: Mapping[str, float]


def latency(curves: Curves) -> go.Figure:
    """Nanoseconds of one load against the bytes that are read over and over; cycles on hovering."""
    figure = _figure("How long one load takes", curves, "bytes that are read over and over", "nanoseconds")
    figure.add_scatter(
        x=[load.footprint for load in curves.loads], y=[load.median_ns for load in curves.loads],
        customdata=[[_bytes(load.footprint), load.median_cycles] for load in curves.loads],
        mode="lines+markers", line={"color": COLORS[0]}, marker={"size": 6}, name="pointer chase, one thread",
        hovertemplate="%{customdata[0]}: %{y:.1f} ns, %{customdata[1]:.0f} cycles<extra></extra>",
    )  # fmt: skip
    figure.add_hline(
        y=curves.shared.median_ns, line={"color": COLORS[2], "dash": "dot"},
        annotation={"text": f"shared memory, {curves.shared.median_cycles:.0f} cycles", "xanchor": "right", "x": 1},
    )  # fmt: skip
    _mark(figure, curves.l2, f"the L2 cache: {_bytes(curves.l2)}")
    ticks = [2**k for k in range(10, 31, 2)]
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=[_bytes(t) for t in ticks])
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(showlegend=False)
    return figure


def littles_law(curves: Curves, marks: Mapping[str, float] | None = None) -> go.Figure:
    """GB/s read against bytes in flight per multiprocessor, with what Little's law allows: bytes over latency.

    marks: bytes in flight to point out, by their names.
    """
    figure = _figure("Bandwidth is bytes in flight over latency", curves, "bytes in flight per multiprocessor", "GB/s")
    _series(figure, curves.reads, curves.sms)
    flights = [rate.in_flight for rate in curves.reads]
    top = curves.ceilings.get("read_gbps") or max(rate.rate for rate in curves.reads)
    bend = top * curves.dram.median_ns
    law = [(f / curves.sms, min(f / curves.dram.median_ns, top)) for f in (min(flights), bend, max(flights))]
    figure.add_scatter(
        x=[x for x, _ in law], y=[y for _, y in law], mode="lines", line={"color": "black", "dash": "dot"},
        name=f"Little's law at {curves.dram.median_ns:.0f} ns, up to {top:,.0f} GB/s", hoverinfo="skip",
    )  # fmt: skip
    ticks = [2**k for k in range(6, 20, 2)]
    figure.update_xaxes(type="log", tickvals=ticks, ticktext=[_bytes(t) for t in ticks])
    ticks = [10**k * step for k in range(1, 5) for step in (1, 3)]
    figure.update_yaxes(type="log", tickvals=ticks, ticktext=[f"{t:,}" for t in ticks])
    for name, size in (marks or {}).items():
        _mark(figure, size, name)
    return figure


def ilp(curves: Curves) -> go.Figure:
    """FP32 TFLOP/s against warps per multiprocessor, one line per number of independent chains in each thread."""
    figure = _figure("More with fewer threads", curves, "warps per multiprocessor", "TFLOP/s, FP32 multiply-adds")
    for color, each in zip(cycle(COLORS), sorted({rate.each for rate in curves.fmas}), strict=False):
        mine = [rate for rate in curves.fmas if rate.each == each]
        figure.add_scatter(
            x=[rate.warps for rate in mine], y=[rate.rate / 1e3 for rate in mine], mode="lines+markers",
            line={"color": color}, name=f"{each} independent chain{'s' * (each > 1)} per thread",
            hovertemplate="%{x} warps: %{y:.1f} TFLOP/s<extra></extra>",
        )  # fmt: skip
    warps = sorted({rate.warps for rate in curves.fmas})
    figure.update_xaxes(type="log", tickvals=warps, ticktext=[str(w) for w in warps])
    figure.update_yaxes(rangemode="tozero")
    return figure


def _mark(figure: go.Figure, x: float, text: str) -> None:
    """A vertical line on a logarithmic axis. (plotly's own add_vline puts its text elsewhere there.)"""
    figure.add_vline(x=x, line={"color": _CEILING, "dash": "dash", "width": 1})
    figure.add_annotation(
        x=math.log10(x), y=1, yref="paper", yanchor="bottom", text=text, showarrow=False, font={"color": _CEILING}
    )


def _series(figure: go.Figure, rates: Iterable[Rate], sms: int) -> None:
    rates = list(rates)
    kinds = sorted({(rate.width, rate.each) for rate in rates})
    for n, (width, each) in enumerate(kinds):
        mine = [rate for rate in rates if (rate.width, rate.each) == (width, each)]
        figure.add_scatter(
            x=[rate.in_flight / sms for rate in mine], y=[rate.rate for rate in mine], mode="markers",
            marker={"size": 9, "color": COLORS[n % 4], "symbol": "circle" if width == 16 else "diamond-open"},
            customdata=[[rate.warps, f"{rate.in_flight / sms:,.0f}"] for rate in mine],
            name=f"{each} x {width} bytes per thread",
            hovertemplate="%{customdata[0]} warps, %{customdata[1]} bytes in flight: %{y:,.0f} GB/s<extra></extra>",
        )  # fmt: skip


def _figure(title: str, curves: Curves, x: str, y: str) -> go.Figure:
    import plotly.graph_objects as go

    return go.Figure(layout={
        "title": {"text": title, "subtitle": {"text": curves.label}, "x": 0.01, "xanchor": "left"},
        "xaxis_title": x, "yaxis_title": y, "template": "plotly_white", "height": 480, "hovermode": "closest",
        "margin": {"t": 90},
    })  # fmt: skip


def _bytes(size: float) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size:g} B"
