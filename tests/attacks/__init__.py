"""Attacks on a grader, honest work that looks unusual, and broken notebooks: what must, and must not, get points.

A file of `timing`, `output`, `evasion`, `forgery`, `resources` or `honest` is the kernel cell that a student hands in;
one of `notebook` or `faulty` has a function that makes the submission. Each opens with comment lines:

    # family: the kind of attack, as instructors speak of it
    # target: problem/rung
    # tries:  what it does, and why that might get points
    # naive:  the habits of the grader that lets it through (see naive.py), comma-separated; "plain" for none beyond
    #         running the code in its own process
    # gains:  what it gets there: marks, time, secret, other (another's result), stops (the grader), exec (in the
    #         harness), memory, process, file, network; gpu is before what only a GPU would show
    # ours:   the state of our verdict, and a regular expression that its message fits

In the text, @TOKEN@ is a mark by which its traces are found, @SECRET@ a file that no student may read, @OTHER@ another
student's result, @PORT@ a port of this machine that somebody listens on, @HOME@ the grader's home, and @MANY@, @BYTES@
and @MEMORY@ are sizes: small for the naive grader, which has nothing against them, and large for ours.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KERNELS = ("timing", "output", "evasion", "forgery", "resources")
FIELDS = ("family", "target", "tries", "naive", "gains", "by", "ours", "shape", "part", "known")
GAINS = {"marks", "time", "secret", "other", "stops", "exec", "memory", "process", "file", "network"}
SIZES = {  # for the naive grader, and for ours
    "@MANY@": (40, 3000),  # processes
    "@BYTES@": (8 << 20, 6 << 30),  # on a disk or a pipe
    "@MEMORY@": (512 << 20, 32 << 30),
}


@dataclass(frozen=True)
class Attack:
    """One file. `habits` and `gains` as above; `gpu`: what it gains shows on a GPU only.

    shape: the shapes at which the naive grader tries it, else the problem's own.
    part: the part of the item that the attack is after.
    known: why ours does not stop it yet, where that is so.
    """

    path: Path
    family: str
    target: str
    tries: str
    habits: tuple[str, ...]
    gains: str
    gpu: bool
    state: str
    says: str
    shape: tuple[dict[str, int], ...]
    part: str
    known: str = ""
    by: float = 5.0

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.stem}"

    @property
    def problem(self) -> str:
        return self.target.split("/")[0]

    @property
    def rung(self) -> str:
        return self.target.split("/")[1]

    @property
    def language(self) -> str:
        return "cuda" if self.path.suffix == ".cu" else "numba"

    def text(self, places: Mapping[str, Any], ours: bool) -> str:
        """The cell, with its placeholders filled in: sizes for our grader or for the naive one."""
        text = self.path.read_text(encoding="utf-8")
        for name, value in {**{k: v[ours] for k, v in SIZES.items()}, **places}.items():
            text = text.replace(name, str(value))
        return text

    def function(self, name: str) -> Callable[..., Any]:
        """A function of the file, for those that make a whole submission."""
        spec = importlib.util.spec_from_file_location(f"attacks_{self.path.stem}", self.path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, name)


def load(path: Path) -> Attack:
    """The attack in a file; ValueError where its header lacks something."""
    fields: dict[str, str] = {}
    key = None
    for line in path.read_text(encoding="utf-8").splitlines():
        if not (found := re.match(r"(?:#|//) ?(?:(\w+):\s+)?(.*)", line)):
            break
        if found[1] in FIELDS:
            key = found[1]
            fields[key] = found[2].strip()
        elif key and found[2].strip() and not found[2].startswith("launch "):
            fields[key] += " " + line.lstrip("#/ ").strip()
    honest = path.parent.name in ("honest", "faulty")
    needed = {"family", "tries", "naive", "gains", "ours"} | ({"target"} if path.parent.name in KERNELS else set())
    missing = needed - set(fields) if not honest else set()
    if missing:
        raise ValueError(f"{path} says nothing of {sorted(missing)[0]}")
    gpu = fields.get("gains", "").startswith("gpu ")
    gains = fields.get("gains", "").removeprefix("gpu ")
    if not honest and gains not in GAINS:
        raise ValueError(f"{path} gains {gains!r}, which is none of {sorted(GAINS)}")
    state, _, says = fields.get("ours", "pass").partition(" ")
    shape = tuple(
        {name: int(number) for name, number in (pair.split("=") for pair in one.split())}
        for one in fields.get("shape", "").split(";")
        if one.strip()
    )
    return Attack(
        path,
        fields.get("family", ""),
        fields.get("target", "vector_add/grid"),
        fields.get("tries", ""),
        tuple(habit.strip() for habit in fields.get("naive", "plain").split(",")),
        gains,
        gpu,
        state,
        says.strip(),
        shape,
        fields.get("part", "correct"),
        fields.get("known", ""),
        float(fields.get("by", 5)),
    )


def every(*folders: str) -> list[Attack]:
    """The attacks in these folders."""
    return [load(p) for folder in folders for p in sorted((HERE / folder).glob("*")) if p.suffix in (".py", ".cu")]


# --- for those that make a whole submission: `make(book, folder, places)` writes one, and returns its path ---

KERNEL, CHECK = "vector_add--grid--numba", "vector_add--grid--check"
QUESTION, EXPLAIN = "vector_add--q-bytes_per_flop", "vector_add--one_block--explain"


def lab(master: Path) -> dict:
    """A small notebook with one question of each kind, all of them solved."""
    from labkit.notebook import build

    built = {c.id: c for c in build.notebook(master, solved=True).cells}
    setup = code('import labkit as lk\nvector_add = lk.problem("vector_add")')
    cells = [setup, *(json.loads(json.dumps(built[ident])) for ident in (KERNEL, CHECK, QUESTION, EXPLAIN))]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def cell(book: dict, ident: str) -> dict:
    return next(c for c in book["cells"] if c.get("id") == ident)


def code(source: str) -> dict:
    return {"cell_type": "code", "id": "mine", "metadata": {}, "outputs": [], "source": source}


def spoil(book: dict) -> None:
    """Make the kernel wrong."""
    cell(book, KERNEL)["source"] = cell(book, KERNEL)["source"].replace("A[i] + B[i]", "A[i] - B[i]")


def write(book: dict, folder: Path) -> Path:
    (folder / "student.ipynb").write_text(json.dumps(book), encoding="utf-8")
    return folder / "student.ipynb"
