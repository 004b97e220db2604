"""Small drawings for reports, as SVG text: no script and no library, so that a page of one student stays small."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

# By their keys in results.
KERNELS = {"yours": "#f58518", "optimised": "#08519c", "unoptimised": "#9ecae1"}
WORDS = {"yours": "yours", "optimised": "optimized", "unoptimised": "unoptimized"}  # for people
STATES = {  # in the order in which they are stacked
    "pass": "#2b8a3e", "pending": "#adb5bd", "fail": "#e8590c", "timeout": "#f2b134", "error": "#862e9c",
    "missing": "#e9ecef",
}  # fmt: skip
INK = dict.fromkeys(("pending", "missing", "timeout"), "#202124")  # of text on the lighter ones
_INK, _GRID, _BAR = "#3c4043", "#dadce0", "#08519c"
LOG_FROM = 20  # a largest over a smallest value from which lengths are logarithms


def counter(yours: float, optimised: float, unoptimised: float) -> str:
    """Three bars: a count of the student's kernel, and of the two that it is judged by."""
    values = (yours, optimised, unoptimised)
    positive = [v for v in values if v > 0]
    most, least = max(positive, default=0.0), min(positive, default=0.0)
    logs = bool(positive) and most / least > LOG_FROM
    rows = []
    for place, (name, value) in enumerate(zip(KERNELS, values, strict=True)):
        share = value / most if most else 0.0
        if logs and value > 0:
            share = math.log(2 * value / least) / math.log(2 * most / least)
        width = max(180 * share, 1)
        rows.append(f'<rect x="0" y="{2 + 14 * place}" width="{width:.1f}" height="11" fill="{KERNELS[name]}"/>')
    note = '<text x="0" y="56" font-size="11" fill="#5f6368">lengths are logarithms</text>' if logs else ""
    return _svg(180, 60 if logs else 44, "".join(rows) + note, f"yours {yours:g}, optimized {optimised:g}, "
                f"unoptimized {unoptimised:g}")  # fmt: skip


def key(name: str) -> str:
    """The color of one of `KERNELS`, for a legend."""
    return _svg(10, 10, f'<rect width="10" height="10" fill="{KERNELS[name]}"/>', WORDS[name])


def histogram(values: Sequence[float], most: float, bins: int = 20) -> str:
    """How many submissions have how many points, of `most`."""
    counts = [0] * bins
    for value in values:
        counts[min(int(bins * value / most) if most > 0 else 0, bins - 1)] += 1
    top = max(counts) or 1
    width, base = 640 / bins, 150
    bars = []
    for place, count in enumerate(counts):
        height = 120 * count / top
        left = 40 + width * place
        low, high = most * place / bins, most * (place + 1) / bins
        bars.append(
            f'<rect x="{left + 1:.1f}" y="{base - height:.1f}" width="{width - 2:.1f}" height="{height:.1f}" '
            f'fill="{_BAR}"><title>{count} from {low:.4g} to {high:.4g} points</title></rect>'
        )
        if count:
            at = f'x="{left + width / 2:.1f}" y="{base - height - 4:.1f}"'
            bars.append(f'<text {at} text-anchor="middle">{count}</text>')
    ticks = "".join(
        f'<text x="{40 + 160 * k}" y="{base + 16}" text-anchor="middle">{most * k / 4:.4g}</text>' for k in range(5)
    )
    axis = f'<line x1="40" x2="680" y1="{base}" y2="{base}" stroke="{_GRID}"/>'
    unit = f'<text x="360" y="{base + 32}" text-anchor="middle">points</text>'
    return _svg(720, 184, axis + "".join(bars) + ticks + unit, "how many submissions have how many points")


def stack(counts: Mapping[str, int]) -> str:
    """One bar: how many submissions are in which state."""
    total = sum(counts.values()) or 1
    left, parts = 0.0, []
    for state, color in STATES.items():
        width = 260 * counts.get(state, 0) / total
        if width:
            ink = INK.get(state, "#fff")
            number = f'<text x="{left + width / 2:.1f}" y="13" text-anchor="middle" fill="{ink}">{counts[state]}</text>'
            parts.append(
                f'<g><title>{counts[state]} {state}</title><rect x="{left:.1f}" y="0" width="{width:.1f}" height="18" '
                f'fill="{color}"/>{number if width > 16 else ""}</g>'
            )
        left += width
    said = ", ".join(f"{counts[s]} {s}" for s in STATES if counts.get(s))
    return _svg(260, 18, "".join(parts), said)


def _svg(width: int, height: int, inside: str, said: str) -> str:
    return (
        f'<svg role="img" aria-label="{escape(said, quote=True)}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-size="12" fill="{_INK}" font-family="inherit">{inside}</svg>'
    )
