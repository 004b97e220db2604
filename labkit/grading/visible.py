"""The part of the score that a student can see before: the grader's own runs on the shapes that are known.

It needs no solutions: points and questions are read off the notebook's metadata, and what only the instructor's copy
can tell (hidden shapes, counters against the reference, time, explanations) is named as open.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from labkit import problems
from labkit.errors import LabkitError
from labkit.grading import results, sandbox, submissions
from labkit.grading.grade import Grading, Runner
from labkit.grading.scheme import Cell, Item, Scheme
from labkit.notebook.regions import WRITE_HERE

STUB = "your code (about "


@dataclass(frozen=True)
class Score:
    """What was found, as `results` has it."""

    items: tuple[dict, ...]
    faults: tuple[str, ...]

    @property
    def totals(self) -> dict[str, float]:
        return results.totals(list(self.items))

    def __repr__(self) -> str:
        lines = []
        for item in self.items:
            said = " ".join(dict.fromkeys(p["message"] for p in item["parts"] if p["state"] != "pass"))
            points = f"{item['points']:5g} of {item['possible']:<4g}"
            lines.append(f"{points} {item['id']:44} {item['state']:8} {said}".rstrip())
        totals = self.totals
        lines.append(
            f"{totals['points']:5g} of {totals['possible']:<4g} and {totals['pending']:g} that only your instructor's "
            "grader can give: it also tries shapes that are not shown here."
        )
        return "\n".join([*lines, *self.faults])


def scheme_of(path: Path) -> Scheme:
    """The questions of a student's notebook, by its metadata; LabkitError where it has none."""
    import nbformat

    try:
        book = nbformat.read(path, as_version=4)
    except FileNotFoundError:
        raise LabkitError(f"There is no {path}.") from None
    except Exception as error:  # nbformat raises what it likes
        raise LabkitError(f"{path} cannot be read as a notebook: {type(error).__name__}.") from None
    items = []
    for cell in book.cells:
        nbgrader = cell.metadata.get("nbgrader", {})
        if nbgrader.get("grade") and nbgrader.get("grade_id"):
            item = _item(str(nbgrader["grade_id"]), float(nbgrader.get("points", 0)), Path(path).stem)
            if item is not None:
                items.append(item)
    if not items:
        raise LabkitError(f"{path} has no cell with points; is it a notebook of these labs?")
    return Scheme(tuple(items))


def _item(ident: str, points: float, notebook: str) -> Item | None:
    *place, last = ident.split("--")
    if last.startswith("q-"):
        key = "/".join([*place, last.removeprefix("q-")])
        stub = f'lk.answer("{key}", ...)'
        return Item(ident, "answer", points, notebook, place[0], "/".join(place[1:]), "", key, (Cell(ident, "", stub),))
    if last.startswith("explain"):
        cells = (Cell(ident, "", WRITE_HERE),)
        return Item(ident, "explain", points, notebook, place[0], "/".join(place[1:]), "", "", cells)
    if last in ("check", "check-cuda") and len(place) == 2:
        language = "cuda" if last == "check-cuda" else "numba"
        step = problems.get(place[0]).step(place[1])
        languages = sorted(step.languages, key=lambda name: name != language)
        cells = tuple(Cell(f"{place[0]}--{place[1]}--{name}", name, "") for name in languages)
        return Item(
            cells[0].id, "kernel", points, notebook, place[0], place[1], language, "", cells, step.gates, step.timed
        )
    return None


def score(path: Path) -> Score:
    """Grade the notebook at `path` as far as that can be done without solutions."""
    scheme = scheme_of(path)
    submission = submissions.read(path)
    if submission.ungradable:
        raise LabkitError(submission.ungradable)
    grading = Grading(submission, scheme, seed=None, references=None)
    with Runner(sandbox.best()) as runner:
        items = grading.items(runner)
    for item in items:
        first = item["parts"][0]
        if item["kind"] == "kernel" and first["state"] == "fail" and STUB in first["details"].get("text", ""):
            first["message"] = f"It still says \"{STUB.partition(' (')[0]}\". {first['message']}"
    return Score(tuple(items), tuple(grading.faults))
