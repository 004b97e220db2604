"""What is graded, and for how many points: read off the masters, whose cells hold the one table of points.

A kernel's points are divided into shares: `SHARES`; what a rung has no gates or time for goes to "correct".
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit import problems
from labkit.errors import LabkitError
from labkit.notebook.build import masters, select

VERSION = 1  # of the rules by which points are given
SHARES = {"correct": 0.6, "structure": 0.2, "time": 0.2}
# Speed against the reference timed in turn with it on the same GPU -> share of the points for time.
BANDS = ((0.8, 1.0), (0.6, 0.75), (0.4, 0.5), (0.2, 0.25))


@dataclass(frozen=True)
class Cell:
    """Where an answer stands: the cell's id, its language (of kernels), and the text that students receive."""

    id: str
    language: str
    stub: str


@dataclass(frozen=True)
class Item:
    """One question. `cells` are where the answer may stand; of a kernel, the other language where that is offered.

    kind : "kernel", "answer" or "explain".  key : of an answer, as `lk.answer` takes it.
    """

    id: str
    kind: str
    points: float
    notebook: str
    problem: str
    rung: str
    language: str
    key: str
    cells: tuple[Cell, ...]
    gates: tuple[str, ...] = ()
    timed: bool = False

    @property
    def shares(self) -> dict[str, float]:
        """Of a kernel: points per part, in order."""
        parts = {"structure": bool(self.gates), "time": self.timed}
        shares = {name: self.points * SHARES[name] for name, there in parts.items() if there}
        return {"correct": self.points - sum(shares.values()), **shares}


@dataclass(frozen=True)
class Scheme:
    """The items of an assignment, in the order of its notebooks."""

    items: tuple[Item, ...]

    @functools.cached_property
    def hash(self) -> str:
        """sha256 of all that decides about points."""
        table = {
            "version": VERSION,
            "shares": SHARES,
            "bands": BANDS,
            "items": [dataclasses.asdict(item) for item in self.items],
        }
        return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()

    @property
    def possible(self) -> float:
        return sum(item.points for item in self.items)

    @property
    def notebooks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(item.notebook for item in self.items))

    def of(self, notebooks: Iterable[str]) -> Scheme:
        """The items of some notebooks."""
        wanted = set(notebooks)
        return Scheme(tuple(item for item in self.items if item.notebook in wanted))


def load(
    root: Path,
    labs: Iterable[str] | None = None,
    points: Mapping[str, float] | None = None,
    *,
    timed: bool = True,
) -> Scheme:
    """The scheme of the masters under `root/solutions`.

    labs : labs ("02_gemm") and notebooks ("02_gemm/01_naive_to_tiled"); all by default.
    points : per item id or check cell's id, in place of the masters' own; 0 takes the question out.
    timed : False where no GPU will ever be: times give no points then, and what they would give goes to "correct".
    Raises LabkitError for names that are not there.
    """
    chosen = select(masters(root), labs)
    items = tuple(
        dataclasses.replace(item, timed=item.timed and timed) for master in chosen for item in _items(master)
    )
    if points is None:
        return Scheme(tuple(item for item in items if item.points > 0))
    known = {name: item for item in items for name in _names(item)}
    strange = [name for name in points if name not in known]
    if strange:
        raise LabkitError(f"The points name {strange[0]}, which is no question of these notebooks.")
    given = {known[name].id: value for name, value in points.items()}
    changed = (dataclasses.replace(item, points=given.get(item.id, item.points)) for item in items)
    return Scheme(tuple(item for item in changed if item.points > 0))


def cell_points(scheme: Scheme) -> dict[str, float]:
    """Points by the ids of the cells that carry them in notebooks: of a kernel, its check cell's."""
    return {_names(item)[-1]: item.points for item in scheme.items}


def read_points(path: Path) -> dict[str, float]:
    """Points per question from a JSON object {id: points} or a CSV file with rows `id,points`."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        if Path(path).suffix == ".json":
            rows: Any = list(json.loads(text).items())
        else:
            rows = [row for row in csv.reader(text.splitlines()) if row and row[0].strip() not in ("id", "")]
        points = {str(row[0]).strip(): float(row[1]) for row in rows}
    except (OSError, ValueError, IndexError, AttributeError, TypeError) as error:
        raise LabkitError(f"{path} holds no points ({error}); write lines such as gemm--coalesced--check,4.") from None
    wrong = [name for name, value in points.items() if not 0 <= value < 1e6]
    if wrong:
        raise LabkitError(f"{path}: {wrong[0]} has {points[wrong[0]]} points; give 0 or more.")
    return points


def _names(item: Item) -> list[str]:
    if item.kind != "kernel":
        return [item.id]
    suffix = "check" if item.language == "numba" else "check-cuda"
    return [item.id, item.id.removesuffix(f"--{item.language}") + f"--{suffix}"]


def _items(master: Path) -> list[Item]:
    import jupytext

    from labkit.notebook import build

    stubs = {cell.id: cell.source for cell in build.notebook(master).cells}
    notebook = f"{master.parent.name}/{master.stem}"
    found, kernels = [], {}
    for number, cell in enumerate(jupytext.read(master, fmt="py:percent").cells, 1):
        where = f"{master.name} cell {number}"
        role, name = build._role(cell, where)
        if role is None:
            continue
        language = cell.metadata.get("language", "numba")
        ident = build._identity(role, name, language, where)
        points = float(cell.metadata.get("points", 0))
        problem, _, rung = name.partition("/")
        if role == "kernel":
            if not cell.metadata.get("given", False):
                kernels[problem, rung, language] = Cell(ident, language, stubs[ident])
        elif role == "check":
            if (problem, rung, language) in kernels:
                found.append((problem, rung, language, points))
        elif role == "question":
            rung = rung.rpartition("/")[0]
            cells = (Cell(ident, "", stubs[ident]),)
            found.append(Item(ident, "answer", points, notebook, problem, rung, "", name, cells))
        else:
            cells = (Cell(ident, "", stubs[ident]),)
            found.append(Item(ident, "explain", points, notebook, problem, rung, "", name, cells))
    return [
        item if isinstance(item, Item) else _kernel(item, kernels, notebook)
        for item in found
    ]


def _kernel(check: tuple, kernels: dict, notebook: str) -> Item:
    problem, rung, language, points = check
    step = problems.get(problem).step(rung)
    own = kernels[problem, rung, language]
    others = [cell for key, cell in kernels.items() if key[:2] == (problem, rung) and cell is not own]
    told = all(below(problem, rung, cell.language) for cell in (own, *others))
    return Item(
        own.id, "kernel", points, notebook, problem, rung, language, "", (own, *others),
        gates=step.gates if told else (), timed=step.timed,
    )  # fmt: skip


def below(problem: str, rung: str, language: str) -> str | None:
    """The rung that gates of this one are judged by: the last before it in the same language, if there is one."""
    names = [step.name for step in problems.get(problem).ladder if language in step.languages]
    at = names.index(rung)
    return names[at - 1] if at else None
