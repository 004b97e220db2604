"""Small drawings for reports, as SVG text: no script and no library, so that a page of one student stays small."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

YOURS, OPTIMISED, UNOPTIMISED = "#f58518", "#08519c", "#9ecae1"
STATES = {  # in the order in which they are stacked
    "pass": "#2b8a3e", "pending": "#adb5bd", "fail": "#e8590c", "timeout": "#f2b134", "error": "#862e9c",
    "missing": "#e9ecef",
}  # fmt: skip
_INK, _GRID = "#3c4043", "#dadce0"
LOG_FROM = 20  # a largest over a smallest value from which lengths are logarithms


def counter(yours: float, optimised: float, unoptimised: float, read: Mapping[str, str]) -> str:
    """Three bars: a count of the student's kernel between those of the two that it is judged by.

    read : the three values as people read them, by "yours", "optimised", "unoptimised".
    """
    values = {"yours": yours, "optimised": optimised, "unoptimised": unoptimised}
    positive = [v for v in values.values() if v > 0]
    most = max(values.values(), default=0)
    logs = bool(positive) and min(values.values()) > 0 and most / min(positive) > LOG_FROM
    low = min(positive) / 2 if logs else 0.0

    def length(value: float) -> float:
        if most <= 0:
            return 0.0
        return 300 * (math.log(value / low) / math.log(most / low) if logs else value / most)

    rows = []
    colors = {"yours": YOURS, "optimised": OPTIMISED, "unoptimised": UNOPTIMISED}
    for place, (name, value) in enumerate(values.items()):
        y = 6 + 22 * place
        rows.append(
            f'<text x="84" y="{y + 12}" text-anchor="end">{name}</text>'
            f'<rect x="92" y="{y}" width="{max(length(value), 1):.1f}" height="16" fill="{colors[name]}"/>'
            f'<text x="{98 + max(length(value), 1):.1f}" y="{y + 12}">{escape(read[name])}</text>'
        )
    note = '<text x="92" y="84" fill="#5f6368">lengths are logarithms</text>' if logs else ""
    return _svg(520, 92 if logs else 74, "".join(rows) + note, f"yours {read['yours']}")


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
            f'fill="{OPTIMISED}"><title>{count} from {low:.4g} to {high:.4g} points</title></rect>'
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
            ink = "#202124" if state in ("pending", "missing", "timeout") else "#fff"
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
