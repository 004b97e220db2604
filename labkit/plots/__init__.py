"""Figures from data: every function takes data and returns a plotly figure."""

from __future__ import annotations

from labkit.plots.access import access_map
from labkit.plots.ladder import ladder
from labkit.plots.waves import bands, bars, decomposition, throughput, waves

__all__ = ["access_map", "bands", "bars", "decomposition", "ladder", "throughput", "waves"]
