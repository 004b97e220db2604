"""Modeled times against measured ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import plotly.graph_objects as go

_COLORS = ("#1f77b4", "#2ca02c", "#d9480f", "#9467bd", "#8c6d31", "#17becf", "#e377c2")


def model(groups: Mapping[str, Sequence[tuple[str, float, float]]], within: float = 0.2) -> go.Figure:
    """Both axes logarithmic, one color per group of (name, measured ms, modeled ms).

    within: the band around equality that is drawn, as a fraction.
    """
    import plotly.graph_objects as go

    times = [ms for points in groups.values() for _, *pair in points for ms in pair]
    low, high = min(times) / 1.5, max(times) * 1.5
    figure = go.Figure()
    figure.add_scatter(
        x=[low, high, high, low],
        y=[low * (1 + within), high * (1 + within), high * (1 - within), low * (1 - within)],
        mode="lines", fill="toself", fillcolor="#f1f3f4", line={"width": 0}, hoverinfo="skip",
        name=f"within {within:.0%}",
    )  # fmt: skip
    figure.add_scatter(
        x=[low, high], y=[low, high], mode="lines", line={"color": "#9aa0a6", "width": 1}, hoverinfo="skip",
        showlegend=False,
    )  # fmt: skip
    for color, (group, points) in zip(cycle(_COLORS), sorted(groups.items()), strict=False):
        figure.add_scatter(
            x=[point[1] for point in points], y=[point[2] for point in points], mode="markers", name=group,
            marker={"color": color, "size": 8, "opacity": 0.8}, text=[point[0] for point in points],
            hovertemplate="%{text}: measured %{x:.4g} ms, modeled %{y:.4g} ms<extra></extra>",
        )  # fmt: skip
    axis = {"type": "log", "dtick": 1}
    figure.update_layout(
        template="plotly_white", height=560, xaxis={**axis, "title": "measured, ms"},
        yaxis={**axis, "title": "modeled, ms"}, legend={"orientation": "h", "y": -0.15},
        title={"text": "Modeled against measured time", "x": 0.01, "xanchor": "left"},
    )  # fmt: skip
    return figure
