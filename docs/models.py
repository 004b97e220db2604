"""Write the figures and the picture of docs/models.md, and what they stand on into docs/models.json.

    .venv/bin/python docs/models.py                    all launches and ladders, anew (an hour)
    .venv/bin/python docs/models.py softmax launches   these anew, the others as they were kept
    .venv/bin/python docs/models.py --page             the page anew, of what was kept

The picture needs the extra `browser` and Chromium.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from labkit import plots, problems, recorded
from labkit.labels import Label
from labkit.models.speed import NORM
from labkit.profiling import speed
from labkit.profiling.speed import Compared

PAGE = Path(__file__).with_name("models.md")
KEPT = Path(__file__).with_name("models.json")
LAUNCHES = "launches"  # of the corpora
PICTURE = Path(__file__).parent / "pictures" / "model.png"
BEGIN, END = "<!-- {} -->", "<!-- end of {} -->"


def measure(name: str) -> list[Compared]:
    """The launches, or a ladder, beside their modeled times; what is done goes to standard error."""
    found = []
    for row in speed.compare_launches() if name == LAUNCHES else speed.compare_rungs(name):
        found.append(row)
        print(f"{row.group} {row.name}: {row.error:+.0%}", file=sys.stderr, flush=True)
    return found


def kept() -> dict[str, list[Compared]]:
    """What was compared, by ladder."""
    if not KEPT.exists():
        return {}
    data = json.loads(KEPT.read_text())
    return {name: [Compared(*row) for row in rows] for name, rows in data.items()}


def keep(name: str, rows: list[Compared]) -> None:
    data = {**kept(), name: rows}
    lines = {name: [json.dumps(dataclasses.astuple(row)) for row in data[name]] for name in sorted(data)}
    text = ",\n".join(f'"{name}": [\n ' + ",\n ".join(rows) + "\n]" for name, rows in lines.items())
    KEPT.write_text(f"{{\n{text}\n}}\n")


def lab(row: Compared) -> str:
    """The lab of a rung; of another launch its list."""
    name = row.group.split()[0]
    return f"lab {problems.get(name).lab[:2]}" if name in problems.names() else row.group


def score(found: Iterable[Compared]) -> str:
    groups = defaultdict(list)
    for row in found:
        groups[lab(row)].append(row)
    lines = ["| launches | how many | median error | within 20% | within a factor of 2 |", "|---|---|---|---|---|"]

    def line(name: str, rows: list[Compared]) -> str:
        errors = [abs(row.error) for row in rows]
        near, far = sum(error <= 0.2 for error in errors), sum(0.5 <= 1 + row.error <= 2 for row in rows)
        return f"| {name} | {len(rows)} | {statistics.median(errors):.0%} | {near} | {far} |"

    lines += [line(name, groups[name]) for name in sorted(groups)]
    everything = [row for rows in groups.values() for row in rows]
    lines.append(line("all", everything))
    ladder = [row for row in everything if lab(row) != row.group]
    right, total = speed.order(speed.neighbours(ladder))
    lines += [
        "",
        f"Of {total} neighboring rungs whose measured times differ by more than 10%, {right} come out in the right "
        f"order. The norm's order is {NORM:g}.",
    ]
    return "\n".join(lines)


def misses(found: Iterable[Compared], beyond: float = 1 / 3) -> str:
    lines = ["| launch | measured | modeled | off | bound, says the model |", "|---|---|---|---|---|"]
    for row in sorted(found, key=lambda row: -abs(row.error)):
        if abs(row.error) > beyond:
            name = str(dataclasses.replace(Label.of(row.name), solution=False))
            size = f" at {row.group.split()[1]}" if row.group.startswith("gemm ") else ""
            lines.append(
                f"| {name}{size} | {1e3 * row.measured:,.4g} us | {1e3 * row.modelled:,.4g} us | {row.error:+.0%} | "
                f"{row.binds} |"
            )
    return "\n".join(lines)


def verdicts() -> str:
    """How often `explain` says of a recorded kernel what binds it by construction."""
    lines = ["| kernels | how many | right | wrong |", "|---|---|---|---|"]
    for name, held in (("rules were chosen on", False), ("held out", True)):
        cases = [case for case in speed.cases().values() if case.binds and case.held_out == held]
        said = {case.name: speed.profile(case.name).explain().binds for case in cases}
        wrong = [f"{c.name}: {said[c.name]}, not {c.binds}" for c in cases if said[c.name] != c.binds]
        lines.append(f"| {name} | {len(cases)} | {len(cases) - len(wrong)} | {'; '.join(wrong)} |")
    return "\n".join(lines)


def draw(found: Iterable[Compared]) -> None:
    from pictures import FLAGS
    from playwright.sync_api import sync_playwright

    groups = defaultdict(list)
    for row in found:
        groups[lab(row)].append((row.name, row.measured, row.modelled))
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        file = Path(folder, "model.html")
        file.write_text(plots.model(groups).to_html(include_plotlyjs=True))
        page = browser.new_page(viewport={"width": 900, "height": 200})
        page.goto(file.as_uri())
        page.wait_for_timeout(1500)
        page.screenshot(path=PICTURE, full_page=True)


def put(text: str, name: str, new: str) -> str:
    begin, end = BEGIN.format(name), END.format(name)
    return f"{text.split(begin)[0]}{begin}\n{new}\n{end}{text.split(end)[1]}"


def main(names: list[str]) -> None:
    ladders = [name for name in problems.names() if recorded.files("profiles", name)]
    for name in [] if "--page" in names else names or [LAUNCHES, *ladders]:
        keep(name, measure(name))
    found = [row for rows in kept().values() for row in rows]
    text = PAGE.read_text()
    for name, new in (("score", score(found)), ("misses", misses(found)), ("verdicts", verdicts())):
        text = put(text, name, new)
    PAGE.write_text(text)
    draw(found)


if __name__ == "__main__":
    main(sys.argv[1:])
