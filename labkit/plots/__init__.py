"""Figures from data: every function takes data and returns a plotly figure (`source` a listing)."""

from __future__ import annotations

from labkit.plots.access import access_map
from labkit.plots.blocks import divergence, reuse, tile_walk, timeline
from labkit.plots.ladder import ladder
from labkit.plots.latency import ilp, latency, littles_law
from labkit.plots.listing import source
from labkit.plots.model import model
from labkit.plots.occupancy import occupancy
from labkit.plots.roofline import roofline
from labkit.plots.trace import gpu_trace
from labkit.plots.waves import bands, bars, decomposition, throughput, waves

__all__ = [
    "access_map", "bands", "bars", "decomposition", "divergence", "gpu_trace", "ilp", "ladder", "latency",
    "littles_law", "model", "occupancy", "reuse", "roofline", "source", "throughput", "tile_walk", "timeline",
    "waves",
]  # fmt: skip
