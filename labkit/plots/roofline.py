"""Kernels under the roofs of their machine: one color per level of memory, a ladder as a path."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from labkit.errors import LabkitError
from labkit.labels import Label

if TYPE_CHECKING:
    import plotly.graph_objects as go

_COLORS = {"DRAM": "#1f77b4", "L2": "#2ca02c", "shared": "#d9480f"}
_UNIT, _LINK = "#202124", "#c4c7c5"


class Placed(Protocol):
    """What is drawn of a kernel: see `labkit.models.roofline.Point`."""

    label: str
    shape: Mapping[str, int]
    machine: str
    ms: float
    counts: str
    time: str
    tflops: float
    intensity: Mapping[str, float]


class Ceilings(Protocol):
    """What is drawn of a machine: see `labkit.models.roofline.Roofs`."""

    machine: str
    origin: str
    memory: Mapping[str, float]
    compute: Mapping[str, float]
    ridges: Mapping[tuple[str, str], float]


def roofline(points: Sequence[Placed], roofs: Ceilings, *, path: bool = True) -> go.Figure:
    """Speed against FLOP per byte, once for each level of memory; slanted roofs are bandwidths, level ones units.

    Each kernel has one point per level that it uses, on one height; the nearer a point is to the roof of its color, the
    more that level is the limit. path: join kernels in the order of `points`.
    Raises LabkitError for kernels that were timed on another machine than the roofs are of.
    """
    import plotly.graph_objects as go

    strangers = sorted({p.machine for p in points} - {roofs.machine})
    if strangers:
        raise LabkitError(f"These roofs are of {roofs.machine}, and kernels were timed on {', '.join(strangers)}.")
    levels = [level for level in roofs.memory if not points or any(level in p.intensity for p in points)]
    units = dict(roofs.compute)
    at = [value for p in points for value in p.intensity.values()]
    ridges = [roofs.ridges[unit, level] for unit in units for level in levels]
    left, right = _decade(min([*at, *ridges]), down=True), _decade(max([*at, *ridges]))
    top = max(units.values())
    figure = go.Figure()
    for level in levels:
        gbps = roofs.memory[level]
        end = 1e3 * top / gbps
        figure.add_scatter(
            x=[left, end], y=[left * gbps / 1e3, top], mode="lines", line={"color": _COLORS[level], "width": 2},
            name=f"{level}, {gbps:,.0f} GB/s", legendgroup=level, hoverinfo="skip",
        )  # fmt: skip
    for unit, tflops in units.items():
        start = min(1e3 * tflops / roofs.memory[level] for level in levels)
        figure.add_scatter(
            x=[start, right], y=[tflops, tflops], mode="lines", line={"color": _UNIT, "width": 2}, showlegend=False,
            hoverinfo="skip",
        )  # fmt: skip
        figure.add_annotation(
            x=math.log10(right), y=math.log10(tflops), text=f"{unit}, {tflops:,.3g} TFLOP/s", showarrow=False,
            xanchor="right", yanchor="bottom", font={"color": _UNIT},
        )  # fmt: skip
        figure.add_scatter(
            x=[roofs.ridges[unit, level] for level in levels], y=[tflops] * len(levels), mode="markers+text",
            marker={"symbol": "diamond-open", "size": 9, "color": [_COLORS[level] for level in levels]},
            text=[f"{roofs.ridges[unit, level]:.3g}" for level in levels], textposition="top center",
            textfont={"color": [_COLORS[level] for level in levels], "size": 11}, showlegend=False,
            customdata=levels,
            hovertemplate=f"ridge of {unit} over %{{customdata}}: %{{x:.3g}} FLOP/byte<extra></extra>",
        )  # fmt: skip
    for p in points:
        figure.add_scatter(
            x=[min(p.intensity.values()), right], y=[p.tflops] * 2, mode="lines", line={"color": _LINK, "width": 1},
            showlegend=False, hoverinfo="skip",
        )  # fmt: skip
    for level in levels:
        mine = [p for p in points if level in p.intensity]
        figure.add_scatter(
            x=[p.intensity[level] for p in mine], y=[p.tflops for p in mine],
            mode="lines+markers" if path else "markers", line={"color": _COLORS[level], "width": 1, "dash": "dot"},
            marker={"color": _COLORS[level], "size": 9, "symbol": [_symbol(p) for p in mine]},
            name=level, legendgroup=level, showlegend=False,
            customdata=[[p.label, p.ms, p.counts, p.time] for p in mine],
            hovertemplate=f"%{{customdata[0]}}: %{{y:.3g}} TFLOP/s, %{{x:.3g}} FLOP per byte of {level}<br>"
            "%{customdata[1]:.4g} ms %{customdata[3]}, bytes %{customdata[2]}<extra></extra>",
        )  # fmt: skip
    for p, y in zip(points, _apart([math.log10(p.tflops) for p in points]), strict=True):
        figure.add_annotation(
            xref="paper", x=1.005, y=y, text=Label.of(p.label).short, showarrow=False, xanchor="left", font={"size": 11}
        )
    origins = sorted({f"time {p.time}, bytes {p.counts}" for p in points})
    shapes = sorted({" ".join(f"{name}={size}" for name, size in p.shape.items()) for p in points})
    low = min([p.tflops for p in points], default=left * min(roofs.memory.values()) / 1e3)
    figure.update_layout(
        title={"text": f"Roofline of the {roofs.machine}, {roofs.origin} ceilings", "x": 0.01, "xanchor": "left",
               "subtitle": {"text": "; ".join([*shapes, *origins, "diamonds: ridges in FLOP/byte"])}},
        template="plotly_white", height=640, margin={"t": 90, "r": 170 if points else 30},
        xaxis={"type": "log", "range": [math.log10(left), math.log10(right)], "dtick": 1,
               "title": "FLOP per byte moved at the level of that color"},
        yaxis={"type": "log", "range": [math.log10(low / 2), math.log10(top * 2)], "dtick": 1, "title": "TFLOP/s"},
        legend={"orientation": "h", "y": -0.12},
    )  # fmt: skip
    return figure


def _decade(value: float, *, down: bool = False) -> float:
    return 10.0 ** (math.floor(math.log10(value)) if down else math.ceil(math.log10(value)))


def _symbol(point: Placed) -> str:
    """Open where the bytes were emulated."""
    return "circle-open" if point.counts == "emulated" else "circle"


def _apart(heights: list[float], gap: float = 0.13) -> list[float]:
    """The heights moved so far apart that labels (of `gap` decades) do not cover each other, in the same order."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    moved = list(heights)
    for below, above in zip(order, order[1:], strict=False):
        moved[above] = max(moved[above], moved[below] + gap)
    return moved
