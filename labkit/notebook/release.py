"""What students receive, and the proof that nothing of the solutions is inside."""

from __future__ import annotations

import bisect
import html
import itertools
import json
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import LabkitError
from labkit.notebook import regions
from labkit.notebook.build import SUFFIX, answers, kernels, masters, notebook, select, target, text

if TYPE_CHECKING:
    from nbformat import NotebookNode

FILES = (
    ".gitignore",
    "Makefile",
    "README.md",
    "constraints.txt",
    "environment.yml",
    "pyproject.toml",
)
SHORTEST = 20  # characters, not counting spaces; `cuda.syncthreads()` gives nothing away
_STRING = re.compile(r'("(?:[^"\\]|\\.)*"),?')  # of JSON
_IMPORT = re.compile(r"\s*(?:import|from|#include)\b")
_LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\(([^()#\s]+)(?:#[^()\s]*)?\)")
_ROW = re.compile(r"\| (?:\[[^\[\]]*\]\(([^():]+)\)|`([\w/]+/)`) \|")
_IN_MARKDOWN = re.compile(r"(?m)^# (?=### (?:BEGIN|END) SOLUTION)")


@dataclass(frozen=True)
class Secret:
    """What students must not receive: its characters without spaces, and where it is from.

    A line of a solution is looked for everywhere; a bare `answer` where it would be read as one, in the notebooks of
    its `lab` and in its `problem`. `block` is the line with its neighbors: labkit's own kernels may have a line in
    common with a solution by chance, but not three.
    """

    squeezed: str
    source: str
    answer: bool = False
    lab: str = ""
    problem: str = ""
    block: str = ""


def release(
    root: Path, dest: Path, labs: Iterable[str] | None = None, points: Mapping[str, float] | None = None
) -> list[Path]:
    """Write what students receive to the empty or new folder `dest`; return its files.

    Notebooks are built afresh from the masters, of some `labs` only if those are named. `points`: those of each cell,
    by its id, in place of the masters'; a cell that is not named then has none. Raises LabkitError, and leaves no
    folder behind, if anything of the solutions is found in it.
    """
    root, dest = Path(root).resolve(), Path(dest).resolve()
    if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
        raise LabkitError(f"{dest} is not an empty folder; name a new one.")
    if any(dest.is_relative_to(root / name) for name in ("labs", "labkit", "solutions")):
        raise LabkitError(f"{dest} lies inside of what is released; name a folder elsewhere.")
    dest.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=dest.parent, prefix=f".{dest.name}.") as scratch:
        made = Path(scratch, "release")
        _copy(root, made, select(masters(root), labs), labs is not None, points)
        found = leaks(root, made)
        if found:
            more = f" And {len(found) - 1} more." if len(found) > 1 else ""
            raise LabkitError(f"{found[0]} Nothing was released.{more}")
        if dest.exists():
            dest.rmdir()
        made.rename(dest)
    return sorted(path for path in dest.rglob("*") if path.is_file())


def leaks(root: Path, folder: Path) -> list[str]:
    """One sentence for each place in `folder` that holds something of `root/solutions`."""
    found = []
    hidden = list(secrets(root))
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if {"solutions", ".git"} & set(name.parts):
            found.append(f"{name} must not be handed out.")
        elif path.is_file():
            page = _Page(path)
            of_labkit = name.parts[0] == "labkit" and (path.suffix == ".cu" or "detective" in name.parts)
            for secret in hidden:
                said = name.parts[:2] in (("labs", secret.lab), ("labkit", "problems")) and (
                    name.parts[0] == "labs" or name.stem == secret.problem
                )
                if secret.answer and not said or of_labkit and secret.block not in page.text:
                    continue
                line = page.find(secret)
                if line:
                    found.append(f"{name} line {line} gives away {secret.source}.")
    return found


def secrets(root: Path) -> Iterator[Secret]:
    """What is to be kept from students: the lines of solution regions, and answers."""
    books = masters(root)
    shown = {path: whole for master in books for path, whole in kernels(master).items()}
    files = [
        path for suffix in SUFFIX.values() for path in sorted(Path(root, "solutions").glob(f"*/kernels/*/*{suffix}"))
    ]
    parts = []
    for path in [*files, *books]:
        pieces = regions.split(_IN_MARKDOWN.sub("", path.read_text("utf-8")), path.name)
        # A kernel that no master shows and that marks nothing is a secret as a whole.
        whole = path in files and path not in shown and len(pieces) == 1
        parts += [(path, p, whole or (p.solution and not shown.get(path))) for p in pieces]
    # What a given kernel or a stub shows is no secret where a solution repeats it.
    told_parts = [part for path, part, secret in parts if path in shown and not secret]
    public = "\n".join(_squeeze(line) for part in told_parts for line in part.lines)
    hidden = [
        (path, number, squeezed, "".join(_squeeze(near) for near in part.lines[max(0, at - 1) : at + 2]))
        for path, part, secret in parts
        for at, (number, line) in enumerate(zip(itertools.count(part.line), part.lines if secret else ()))
        if len(squeezed := _squeeze(line.strip().lstrip("#/ "))) >= SHORTEST
        and not (squeezed in public or _IMPORT.match(line))
    ]
    folders = defaultdict(set)
    for path, _, squeezed, _ in hidden:
        folders[squeezed].add(path.parent)
    for path, number, squeezed, block in hidden:
        if len(folders[squeezed]) == 1:  # what the solutions of several problems say is an idiom
            yield Secret(squeezed, f"{path.relative_to(root)} line {number}", block=block)
    for master in books:
        for key, value in answers(master).items():
            about = {"lab": master.parent.name, "problem": key.split("/")[0]}
            call = _squeeze(f'answer("{key}",{value})')
            yield Secret(call, f"the answer to {key}", block=call)
            if value[0] not in "'\"" and ("." in value or len(value) >= 6):  # words and short numbers stand everywhere
                yield Secret(_squeeze(value), f"the answer to {key}", answer=True, **about)


def _copy(root: Path, made: Path, chosen: list[Path], some: bool, points: Mapping[str, float] | None) -> None:
    wanted = {master.parent.name for master in chosen}
    for folder in ("labs", "labkit", "docs"):
        for path in sorted(Path(root, folder).rglob("*")):
            name = path.relative_to(root)
            own = folder == "labs" and (path.suffix == ".ipynb" or name.parts[2:3] == ("kernels",))
            own |= some and folder == "labs" and len(name.parts) > 2 and name.parts[1] not in wanted
            cached = "__pycache__" in name.parts or any(part[0] == "." for part in name.parts)
            if path.is_file() and not path.is_symlink() and not own and not cached:
                _put(path, made / name)
    for name in FILES:
        if Path(root, name).is_file():
            _put(Path(root, name), made / name)
    for master in chosen:
        path, book = target(made, master), notebook(master)
        if points is not None:
            _give(book, points)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text(book), encoding="utf-8")
    for path in sorted(made.rglob("README.md")):
        whole = path.read_text("utf-8")
        there = _without_what_is_missing(whole, path.parent)
        if there != whole:
            path.write_text(there, encoding="utf-8")


def _without_what_is_missing(page: str, folder: Path) -> str:
    """Markdown without the rows of tables that are about files or folders which are not there, and without links there.

    A row is about what its first cell links to, or about the folder that it names, as in `tests/`.
    """

    def kept(line: str) -> bool:
        about = _ROW.match(line)
        return not about or Path(folder, about[1] or about[2]).exists()

    def shown(link: re.Match) -> str:
        return link[0] if ":" in link[2] or Path(folder, link[2]).exists() else link[1]

    return _LINK.sub(shown, "".join(line for line in page.splitlines(keepends=True) if kept(line)))


def _give(book: NotebookNode, points: Mapping[str, float]) -> None:
    """Put points into the metadata of a notebook's cells."""
    for cell in book.cells:
        nbgrader = cell.metadata.get("nbgrader")
        if nbgrader is None:
            continue
        value = points.get(cell.id, 0)
        nbgrader.grade = value > 0
        nbgrader.pop("points", None)
        if value > 0:
            nbgrader.points = int(value) if value == int(value) else value


def _put(source: Path, dest: Path) -> None:
    dest.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, dest)


class _Page:
    """A file's lines, and its characters without spaces with the line that each came from."""

    def __init__(self, path: Path) -> None:
        lines = path.read_bytes().decode("utf-8", errors="replace").split("\n")
        if path.suffix == ".ipynb":  # JSON: what stands in its strings
            lines = [_STRING.sub(_unquote, line) for line in lines]
        self.lines = [html.unescape(line) for line in lines]
        squeezed = [_squeeze(line) for line in self.lines]
        self.text = "".join(squeezed)
        self.ends = list(itertools.accumulate(map(len, squeezed)))

    def find(self, secret: Secret) -> int | None:
        """The number of the first line with `secret`, or None."""
        if not secret.answer:
            start = self.text.find(secret.squeezed)
            return bisect.bisect_right(self.ends, start) + 1 if start >= 0 else None
        # Not as a part of a longer number.
        spaced = r"\s*".join(map(re.escape, secret.squeezed))
        pattern = re.compile(rf"(?<![\w.]){spaced}(?!\.?\w)")
        return next((n for n, line in enumerate(self.lines, 1) if pattern.search(line)), None)


def _unquote(match: re.Match) -> str:
    try:
        return json.loads(match[1])
    except json.JSONDecodeError:
        return match[0]


def _squeeze(line: str) -> str:
    """`line` without spaces, and with one kind of quotes."""
    return re.sub(r"\s+", "", line).replace("'", '"')
