"""The speed of a ladder's rungs, side by side."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from labkit.errors import LabkitError
from labkit.labels import LANGUAGES, Label

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from labkit.models.bound import Bound

_COLORS = {"numba": "#6baed6", "cuda": "#08519c"}
_TORCH, _CEILING = "#d9480f", "#5f6368"


class Timed(Protocol):
    """What is drawn of a timing."""

    label: str
    shape: Mapping[str, int]
    samples_ms: Sequence[float]
    baseline_ms: Sequence[float]
    flops: int
    bytes: int
    origin: str
    machine: str
    date: str
    cold: bool
    ceilings: Mapping[str, float]
    bound: Bound | None


def ladder(timings: Sequence[Timed]) -> go.Figure:
    """TFLOP/s of each rung, or GB/s where memory sets the bound: one bar per language, in the order of `timings`.

    A bar ends at the median, and its whisker spans the middle half of the samples. Lines are PyTorch (the median of
    all its samples in these timings) and the machine's measured ceiling, where known.
    Raises LabkitError for no timings, and for timings of several shapes, machines, or states of the L2.
    """
    import plotly.graph_objects as go

    if not timings:
        raise LabkitError("There is nothing to draw: no timings were given.")
    shape, machine, cold = (
        _only([value(t) for t in timings], what)
        for value, what in (
            (lambda t: " ".join(f"{k}={v}" for k, v in t.shape.items()), "shapes"),
            (lambda t: t.machine, "machines"),
            (lambda t: "cold L2" if t.cold else "warm L2", "states of the L2"),
        )
    )
    first = timings[0]
    best = first.bound
    of_memory = best is not None and best.bytes_ms > best.flops_ms
    work, unit = (first.bytes / 1e6, "GB/s") if of_memory else (first.flops / 1e9, "TFLOP/s")
    labels = [Label.of(t.label) for t in timings]
    rungs = list(dict.fromkeys(label.rung for label in labels))
    figure = go.Figure()
    for language, color in _COLORS.items():
        mine = {label.rung: t for label, t in zip(labels, timings, strict=True) if label.language == language}
        if mine:
            slow, middle, fast = zip(*(_rates(t, work) for t in mine.values()), strict=True)
            figure.add_bar(
                x=list(mine), y=middle, name=LANGUAGES[language], marker_color=color,
                texttemplate="%{y:,.3r}", textposition="outside", cliponaxis=False,
                customdata=[[work / v, t.origin] for t, v in zip(mine.values(), middle, strict=True)],
                hovertemplate="%{x}: %{y:.4g} " + unit + "<br>%{customdata[0]:.3f} ms, %{customdata[1]}<extra></extra>",
                error_y={
                    "array": [f - m for f, m in zip(fast, middle, strict=True)],
                    "arrayminus": [m - s for s, m in zip(slow, middle, strict=True)],
                    "thickness": 1, "width": 3, "color": "#202124",
                },
            )  # fmt: skip
    torch = [ms for t in timings for ms in t.baseline_ms]
    if torch:
        _line(figure, work / statistics.median(torch), "PyTorch", _TORCH, "solid")
    if best:
        _line(figure, work / best.ms, f"measured ceiling of {best.binds}", _CEILING, "dash")
    when = ", ".join(sorted({f"{t.origin} on {machine}, {t.date}" for t in timings}))
    figure.update_layout(
        title={"text": f"{labels[0].problem} at {shape}", "x": 0.01, "xanchor": "left",
               "subtitle": {"text": f"{when}; {cold}; whiskers span the middle half of the samples"}},
        barmode="group", template="plotly_white", height=460, margin={"t": 90, "r": 40},
        yaxis={"title": unit, "rangemode": "tozero"},
        xaxis={"categoryorder": "array", "categoryarray": rungs},
        legend={"orientation": "h", "y": -0.12},
    )  # fmt: skip
    return figure


def _only(values: list[str], what: str) -> str:
    found = sorted(set(values))
    if len(found) > 1:
        raise LabkitError(f"One picture shows one of several {what}; these timings have {', '.join(found)}.")
    return found[0]


def _rates(timing: Timed, work: float) -> tuple[float, float, float]:
    """`work` per ms at the upper quartile of the time, at its median, at its lower quartile."""
    times = list(timing.samples_ms)
    quartiles = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
    return tuple(work / ms for ms in (quartiles[2], statistics.median(times), quartiles[0]))


def _line(figure: go.Figure, y: float, name: str, color: str, dash: str) -> None:
    number = f"{y:,.0f}" if y >= 1000 else f"{y:.3g}"
    figure.add_hline(
        y=y, line={"color": color, "width": 1.5, "dash": dash},
        annotation={"text": f"{name}, {number}", "font": {"color": color}, "xanchor": "left", "x": 0},
    )  # fmt: skip
