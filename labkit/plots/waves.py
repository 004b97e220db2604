"""Pictures of tiles and waves, from data: throughput against N, SMs over time, divisibility, cliffs taken apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from labkit.models.waves import Drop, Interval

COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#7f7f7f")
BAND_COLORS = {1: "#d62728", 2: "#ff7f0e", 4: "#e7ba52", 8: "#8ca252", 16: "#2ca02c", 32: "#1f77b4"}


def _figure(title: str, x: str, y: str, **layout: object) -> go.Figure:
    import plotly.graph_objects as go

    return go.Figure(layout={
        "title": title, "xaxis_title": x, "yaxis_title": y, "template": "plotly_white",
        "hovermode": "closest", "legend": {"orientation": "h", "y": -0.18}, **layout,
    })  # fmt: skip


def throughput(
    series: Mapping[str, tuple[Sequence[int], Sequence[float]]],
    title: str,
    *,
    predicted: tuple[Sequence[int], Sequence[float]] | None = None,
    cliffs: Iterable[int] = (),
    unit: str = "TFLOP/s",
    lines: bool = True,
) -> go.Figure:
    """Throughput against N, one line per series (sizes, values), or dots alone.

    predicted: the same for a model, drawn dotted.  cliffs: sizes to mark.
    """
    import plotly.graph_objects as go

    figure = _figure(title, "N", unit, yaxis_rangemode="tozero", height=480)
    for color, (name, (sizes, values)) in zip(cycle(COLORS), series.items(), strict=False):
        figure.add_trace(
            go.Scatter(x=list(sizes), y=list(values), name=name, mode="lines+markers" if lines else "markers",
                       line={"color": color, "width": 1.5}, marker={"size": 3 if lines else 5})
        )  # fmt: skip
    if predicted is not None:
        sizes, values = predicted
        figure.add_trace(
            go.Scatter(x=list(sizes), y=list(values), name="predicted from tiles and waves", mode="lines",
                       line={"color": "black", "dash": "dot", "width": 1.5})
        )  # fmt: skip
    for N in cliffs:
        figure.add_vline(x=N, line={"color": "#bbbbbb", "width": 1}, annotation_text=str(N))
    return figure


def waves(schedule: Sequence[Interval], sms: int, title: str = "") -> go.Figure:
    """SMs over time: one bar per tile, one row per SM, one color per wave. White is an SM that has nothing to do."""
    import plotly.graph_objects as go

    figure = _figure(
        title or f"{len(schedule)} tiles on {sms} SMs", "time, in units of one tile's time", "SM",
        barmode="overlay", bargap=0.15, height=480, showlegend=True,
        yaxis_range=[-0.5, sms - 0.5], xaxis_rangemode="tozero",
    )  # fmt: skip
    resident = 1 + max(interval.slot for interval in schedule)
    for wave in sorted({interval.wave for interval in schedule}):
        mine = [interval for interval in schedule if interval.wave == wave]
        figure.add_trace(
            go.Bar(
                orientation="h", base=[i.start for i in mine], x=[i.end - i.start for i in mine],
                y=[i.sm + (i.slot + 0.5) / resident - 0.5 for i in mine], width=0.85 / resident,
                name=f"wave {wave + 1} ({len(mine)} tiles)", marker_color=COLORS[wave % len(COLORS)],
                hovertemplate="tile %{customdata} on SM %{y}<extra></extra>", customdata=[i.tile for i in mine],
            )
        )  # fmt: skip
    return figure


def bands(sizes: Sequence[int], values: Sequence[float], title: str, *, unit: str = "TFLOP/s") -> go.Figure:
    """One dot per size, colored by the largest power of two (up to 32) that divides it."""
    import plotly.graph_objects as go

    figure = _figure(title, "N", unit, yaxis_rangemode="tozero", height=480)
    pairs = [(N, value, min(N & -N, 32)) for N, value in sorted(zip(sizes, values, strict=True))]
    for power, color in BAND_COLORS.items():
        mine = [(N, value) for N, value, p in pairs if p == power]
        if mine:
            label = f"multiples of {power}, not of {2 * power}" if power < 32 else "multiples of 32"
            figure.add_trace(
                go.Scatter(x=[N for N, _ in mine], y=[value for _, value in mine], name=label,
                           mode="markers", marker={"color": color, "size": 6})
            )  # fmt: skip
    return figure


def decomposition(drops: Sequence[Drop], measured: Mapping[str, Sequence[float | None]], title: str) -> go.Figure:
    """For each cliff, what is lost to the tiles' overhang and to the last wave, beside what was measured.

    measured: for each kernel, its drop at each of `drops`, as a fraction (None where there is no measurement).
    """
    import plotly.graph_objects as go

    figure = _figure(title, "from N - 8 to N", "throughput lost", barmode="relative", height=420,
                     yaxis_tickformat=".0%")  # fmt: skip
    labels = [str(drop.N) for drop in drops]
    tile = [1 - drop.tile_factor for drop in drops]
    wave = [drop.drop - part for drop, part in zip(drops, tile, strict=True)]
    for name, values, color in (
        ("tile quantization: work on the overhang of the tiles", tile, "#9ecae1"),
        ("wave quantization: a last wave that is nearly empty", wave, "#3182bd"),
    ):
        figure.add_trace(go.Bar(x=labels, y=values, name=name, marker_color=color))
    for color, (name, values) in zip(cycle(COLORS[1:]), measured.items(), strict=False):
        figure.add_trace(go.Scatter(x=labels, y=list(values), name=f"{name}, measured", mode="markers",
                                    marker={"color": color, "size": 11, "symbol": "diamond"}))  # fmt: skip
    return figure


def bars(values: Mapping[str, float], title: str, *, unit: str) -> go.Figure:
    """One bar per name, with its number."""
    import plotly.graph_objects as go

    figure = _figure(title, "", unit, height=340, showlegend=False, yaxis_rangemode="tozero")
    figure.add_trace(go.Bar(x=list(values), y=list(values.values()), texttemplate="%{y:.4g}",
                            marker_color=COLORS[0], width=0.5))  # fmt: skip
    return figure
