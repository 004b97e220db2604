"""Write the fidelity table into docs/emulator.md: `.venv/bin/python docs/fidelity.py`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from labkit.profiling import fidelity
from labkit.profiling.metrics import BY_NAME

PAGE = Path(__file__).with_name("emulator.md")
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
NAMES = ("gemm", "corpus")


def table() -> str:
    """One row per counter that at least one launch has: how often it was claimed exact and was, and the rest."""
    rows: dict[str, list[fidelity.Reading]] = defaultdict(list)
    for name in NAMES:
        for reading in fidelity.compare(name):
            rows[reading.metric].append(reading)
    lines = [
        "| counter | launches | called exact | of these equal | not exact | of these within 5% |",
        "|---|---|---|---|---|---|",
    ]
    for metric, readings in sorted(rows.items()):
        seen = [r for r in readings if r.emulator or any(r.ncu)]
        if not seen or metric.startswith("launch__") and "registers" not in metric:
            continue
        exact = [r for r in seen if r.claim == "exact"]
        other = [r for r in seen if r.claim != "exact"]
        near = [r for r in other if r.equal or abs(r.off) <= 0.05 * max(map(abs, r.ncu))]
        title = BY_NAME[metric].title if metric in BY_NAME else ""
        cells = (len(seen), len(exact), sum(r.equal for r in exact), len(other), len(near))
        lines.append(f"| {title} `{metric}` | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    text = PAGE.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}")


if __name__ == "__main__":
    main()
