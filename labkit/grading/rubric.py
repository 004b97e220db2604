"""The rubric for students: points per question, and what they are given for. Written by `labkit build`."""

from __future__ import annotations

from pathlib import Path

from labkit.grading import wording
from labkit.grading.gates import SLACK
from labkit.grading.scheme import BANDS, SHARES, Item, Scheme, load
from labkit.profiling.metrics import describe

PAGE = Path("docs", "rubric.md")

_HEAD = """\
# What gives points

This page is made from the notebooks by `labkit build`; if your instructor gave the questions other points, those count.

**Predictions and diagnoses** (`lk.answer`) give their points for a right value. What you write is read and never run:
a number, arithmetic such as `3 * 256**2`, or a word in quotes.

**Explanations** are read by a person.

**Kernels** give their points in up to three parts:

- **Correct** ({correct:.0%} or more). Your kernel runs on the shapes that `check()` uses and on others that you do not
  know, with inputs that you do not know, and every access is watched: out of bounds, races, memory that nobody wrote.
  All of it has to be right. A different algorithm, or sums in another order, is as good as ours.
- **Structure** ({structure:.0%}, where the table names a counter). The counter says whether the kernel does what its
  rung is about. It is taken at one shape, and compared with two kernels of ours: one with what the rung is about
  (*optimized*), and the rung below (*unoptimized*). You have the points if each of your counts is nearer to the
  optimized one, as a factor, or better. Your report shows all three numbers. `mine.profile()` shows yours before.
  Atomics count as loads. Lanes are judged by how many stay idle in all. And no count may be bought with another: you
  do not have the points where your kernel takes more than {slack:g} times the instructions, or the sectors of loads or
  of stores, of the more costly of our two.
- **Time** ({time:.0%}, where the table says so). Your kernel and ours are timed in turns on the same GPU.
  {bands}
  Without a GPU these points wait; they are never lost because of that.

What a rung has no counter or time for goes to *correct*. Structure and time are judged once the kernel is correct.
Where a question is offered in numba and in CUDA C++, one of them is enough.

Warnings, prints, workspace that you allocate, and slow but right code cost nothing in *correct*. Calling a library's
matrix product in place of your own kernel is seen, and looked at by a person.
"""


def text(scheme: Scheme) -> str:
    """The page."""
    bands = ", ".join(f"{share:.0%} of them from {speed:.0%}" for speed, share in BANDS[1:])
    said = f"You have all of its points from {BANDS[0][0]:.0%} of our speed, {bands}."
    parts = [_HEAD.format(**SHARES, slack=SLACK, bands=said)]
    for notebook in scheme.notebooks:
        items = scheme.of([notebook]).items
        rows = "".join(_row(item) for item in items)
        total = wording.number(sum(item.points for item in items))
        parts.append(
            f"## {notebook}: {total} points\n\n| question | points | counters | time |\n|---|---|---|---|\n{rows}"
        )
    return "\n".join(parts)


def _row(item: Item) -> str:
    name = wording.name({"id": item.id, "kind": item.kind, "parts": []})
    if item.kind == "kernel" and len(item.cells) > 1:
        name = f"{item.problem}/{item.rung}"
    counters = ", ".join(describe(gate).title for gate in item.gates)
    return f"| {name} | {wording.number(item.points)} | {counters} | {'yes' if item.timed else ''} |\n"


def write(root: Path, scheme: Scheme | None = None, check: bool = False) -> list[Path]:
    """Write the page where it is not what the scheme says; returns it then. `check` only looks.

    scheme : by default that of all masters of `root`. A project without `docs/` has no page.
    """
    if not (root / PAGE.parent).is_dir():
        return []
    page, new = root / PAGE, text(scheme or load(root))
    if page.exists() and page.read_text(encoding="utf-8") == new:
        return []
    if not check:
        page.write_text(new, encoding="utf-8")
    return [page]
