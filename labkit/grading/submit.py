"""What a student hands in, as one zip: notebooks without outputs, and a manifest of cells and their hashes."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.errors import LabkitError
from labkit.grading.submissions import MANIFEST

_STUB = ("your code (about ", "*Your answer here.*")
_DOTS = re.compile(r"""\banswer\(\s*["'][\w/]+["']\s*,\s*\.\.\.\s*\)""")


@dataclass(frozen=True)
class Packed:
    """A zip for handing in: its file, its notebooks, and what a student may want to look at first."""

    file: Path
    notebooks: tuple[str, ...]
    notes: tuple[str, ...]


def pack(paths: Sequence[Path], file: Path) -> Packed:
    """Write `file` with the notebooks at `paths` (notebooks, or folders of them).

    Raises LabkitError where there is none, or one that cannot be read as a notebook.
    """
    found = [book for path in paths for book in (sorted(path.glob("*.ipynb")) if path.is_dir() else [path])]
    if not found:
        raise LabkitError("There is no notebook to hand in; name one, such as labs/02_gemm/01_naive_to_tiled.ipynb.")
    names = [path.name for path in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise LabkitError(f"Two of these notebooks are called {twice}; hand them in one after the other.")
    texts, notes = {}, []
    described = {}
    for path in found:
        book = _read(path)
        cells = {}
        for cell in book.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
            nbgrader = cell.metadata.get("nbgrader", {})
            ident = nbgrader.get("grade_id")
            if ident:
                cells[ident] = hashlib.sha256(cell.source.encode()).hexdigest()
            if ident and nbgrader.get("solution") and _untouched(cell.source):
                notes.append(f"{path.name}: {ident} is not done yet.")
            if ident and cell.source.startswith("%%kernel"):
                notes += _differs(path, ident, cell.source)
        import nbformat

        texts[path.name] = nbformat.writes(book)
        described[path.name] = {"sha256": hashlib.sha256(texts[path.name].encode()).hexdigest(), "cells": cells}
    manifest = {"version": 1, "notebooks": described}
    file = Path(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, json.dumps(manifest, indent=1))
        for name, text in texts.items():
            archive.writestr(name, text)
    return Packed(file, tuple(texts), tuple(notes))


def _untouched(source: str) -> bool:
    return any(mark in source for mark in _STUB) or _DOTS.search(source) is not None


def _read(path: Path):
    import nbformat

    try:
        return nbformat.read(path, as_version=4)
    except FileNotFoundError:
        raise LabkitError(f"There is no {path}.") from None
    except Exception as error:  # nbformat raises what it likes
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LabkitError(f"{path} cannot be read as a notebook: {said[:200]}") from None


def _differs(notebook: Path, ident: str, source: str) -> list[str]:
    """Whether the kernel's file was changed outside of its cell, which is what counts."""
    first, _, body = source.partition("\n")
    words = first.split()
    if len(words) < 2:
        return []
    file = notebook.parent / "kernels" / (words[1] + (".cu" if "--cuda" in words else ".py"))
    if not file.is_file():
        return [f"{notebook.name}: the cell {ident} was never run here."]
    kept = file.read_text(encoding="utf-8", errors="replace").partition("\n")[2]
    if kept.rstrip() != body.rstrip():
        return [f"{notebook.name}: {file.name} is not what the cell {ident} says; the cell counts."]
    return []
