"""Write the fidelity tables into docs/emulator.md, and what they stand on into docs/fidelity.json.

`.venv/bin/python docs/fidelity.py` runs every recorded launch on the emulator; `--page` only writes the page anew.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from labkit.profiling import fidelity
from labkit.profiling.metrics import describe

PAGE = Path(__file__).with_name("emulator.md")
KEPT = Path(__file__).with_name("fidelity.json")
# Told by the launch itself, or by the driver's choice of how much shared memory to set aside.
LEFT_OUT = ("launch__grid_size", "launch__block_size", "launch__thread_count", "launch__occupancy_limit_shared_mem")


def marks(readings: list[fidelity.Reading]) -> dict[str, str]:
    """`Reading.mark` of every metric that is worth a row of the table."""
    return {r.metric: r.mark for r in readings if r.seen and r.metric not in LEFT_OUT}


def totals(cases: dict[str, dict[str, dict[str, str]]]) -> dict[str, Counter[str]]:
    """How often each metric has each mark."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for launches in cases.values():
        for metrics in launches.values():
            for metric, mark in metrics.items():
                found[metric][mark] += 1
    return dict(found)


def floors(found: dict[str, Counter[str]]) -> dict[str, dict[str, int]]:
    """What must not become less: how many are exact, and how many are exact or near."""
    return {m: {"exact": marks["E"], "near": marks["E"] + marks["n"]} for m, marks in sorted(found.items())}


def table(found: dict[str, Counter[str]]) -> str:
    """One row per counter that at least one launch has: how often it was called exact and was, and the rest."""
    lines = [
        "| counter | launches | called exact | of these equal | not exact | of these within 5% |",
        "|---|---|---|---|---|---|",
    ]
    for metric, marks in sorted(found.items()):
        exact, other = marks["E"] + marks["X"], marks["n"] + marks["f"]
        cells = (exact + other, exact, marks["E"], other, marks["n"])
        lines.append(f"| {describe(metric).title} `{metric}` | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def summary(readings: list[fidelity.Reading]) -> str:
    """One sentence on readings of launches that the emulator had not seen."""
    seen = [r for r in readings if r.seen]
    exact = [r for r in seen if r.claim == "exact"]
    launches, wrong = {r.case for r in seen}, [r for r in exact if not r.equal]
    cases = sorted({r.case for r in wrong})
    text = (
        f"Of {len(exact)} counters that were called exact, {len(exact) - len(wrong)} were equal, and all of them on "
        f"{len(launches) - len(cases)} of the {len(launches)} launches"
    )
    return text + (f"; the others are `{'` and `'.join(cases)}`." if cases else ".")


def page(text: str, kept: dict[str, Any]) -> str:
    """The page with its tables written anew."""
    unseen = fidelity.frozen("held_out")
    alone: dict[str, dict[str, str]] = defaultdict(dict)
    for reading in unseen:
        alone[reading.case].update(marks([reading]))
    parts = {
        "table": table(totals(kept["cases"])),
        "held-out summary": summary(unseen),
        "held-out table": table(totals({"held_out": alone})),
    }
    for name, part in parts.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        if begin not in text or end not in text:
            raise SystemExit(f"{PAGE.name} has no place for {name}: {begin} ... {end}.")
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{part}\n{end}{rest.split(end)[1]}"
    return text


def measure() -> dict[str, Any]:
    """What to keep: the marks of every launch, hashes of the PTX that they are of, and floors that only rise."""
    cases, texts = {}, {}
    for name in fidelity.names():
        found, entries = fidelity.recorded_cases(name), fidelity.entries(name)
        cases[name] = {case.name: marks(fidelity.readings(case, entries[case.name])) for case in found}
        texts[name] = {case.name: fidelity.text_of(case) for case in found}
    now = floors(totals(cases))
    before = json.loads(KEPT.read_text())["floors"] if KEPT.exists() else {}
    for metric, least in before.items():
        now[metric] = {what: max(n, now.get(metric, {}).get(what, 0)) for what, n in least.items()}
    return {"floors": now, "cases": cases, "texts": texts}


def to_text(kept: dict[str, Any]) -> str:
    """JSON with the marks of a launch in one line, by metric's number, and the hash of its PTX behind them."""
    metrics = sorted({m for launches in kept["cases"].values() for found in launches.values() for m in found})
    rows = {
        name: {
            case: f"{''.join(found.get(m, '-') for m in metrics)} {kept['texts'][name][case]}"
            for case, found in launches.items()
        }
        for name, launches in kept["cases"].items()
    }
    text = json.dumps({"metrics": metrics, "floors": kept["floors"], "cases": rows}, indent=1)
    return re.sub(r"\{\s+(\"exact\": \d+),\s+(\"near\": \d+)\s+\}", r"{\1, \2}", text) + "\n"


def from_text(text: str) -> dict[str, Any]:
    """What `to_text` wrote."""
    data = json.loads(text)
    cases = {
        name: {
            case: {m: mark for m, mark in zip(data["metrics"], row.split()[0], strict=True) if mark != "-"}
            for case, row in launches.items()
        }
        for name, launches in data["cases"].items()
    }
    texts = {
        name: {case: row.split()[1] for case, row in launches.items()} for name, launches in data["cases"].items()
    }
    return {"floors": data["floors"], "cases": cases, "texts": texts}


def main(arguments: list[str]) -> None:
    if "--page" not in arguments:
        KEPT.write_text(to_text(measure()))
    PAGE.write_text(page(PAGE.read_text(), from_text(KEPT.read_text())))


if __name__ == "__main__":
    main(sys.argv[1:])
