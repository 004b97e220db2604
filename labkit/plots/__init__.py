"""Figures from data: every function takes data and returns a plotly figure."""

from __future__ import annotations

from labkit.plots.access import access_map

__all__ = ["access_map"]
