"""Submissions as untrusted data: found, bounded, and reduced to cells. Nothing of them is executed or unpacked here.

A submission is a notebook, a folder of notebooks or a zip of them; a class is a folder or an LMS's zip of such.
Notebooks are read by a tolerant reader that passes over outputs without keeping them, so that hundreds of megabytes
of them do no harm, and that keeps the cells before a break.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from labkit.errors import LabkitError

MOST_NOTEBOOK = 512 << 20  # bytes of one notebook, outputs and all
MOST_SOURCE = 1 << 20  # characters of one cell
MOST_CELLS = 5000
MOST_NOTEBOOKS = 200  # of one submission
MOST_FILES = 100_000  # of one zip
MANIFEST = "labkit-submission.json"


@dataclass(frozen=True)
class Cell:
    """A cell as it was handed in; `idents` are the ids that it claims, the grading metadata's first."""

    notebook: str
    number: int
    kind: str
    source: str
    idents: tuple[str, ...] = ()
    locked: bool = False


@dataclass
class Submission:
    """`faults` are sentences about its notebooks; `ungradable` says why nothing can be graded, if so."""

    id: str
    path: Path
    cells: list[Cell] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    ungradable: str | None = None


@dataclass(frozen=True)
class Source:
    """Where a submission is: a path, and, inside of a zip, the names of its notebooks there."""

    id: str
    path: Path
    members: tuple[str, ...] | None = None


# --- finding ---------------------------------------------------------------------------------------------


def find(path: str | Path) -> list[Source]:
    """The submissions at `path`: a folder or an LMS's zip of a class, or what one student handed in.

    In a folder every notebook, zip and folder is a submission of its own. LabkitError where there is none.
    """
    path = Path(path)
    if not path.exists():
        raise LabkitError(f"There is no {path}; name a folder of submissions, a zip, or a notebook.")
    if path.is_file():
        zipped = path.suffix != ".ipynb" and zipfile.is_zipfile(path)
        found = _in_zip(path) if zipped else [Source(_ident(path.name), path)]
    else:
        found = []
        for entry in sorted(path.iterdir()):
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            if entry.is_dir() and any(_notebooks(entry)):
                found.append(Source(_ident(entry.name), entry))
            elif entry.is_file() and entry.suffix in (".ipynb", ".zip"):
                found.append(Source(_ident(entry.name), entry))
    if not found:
        raise LabkitError(f"{path} holds no submission: no notebook (.ipynb), and no folder or zip with one.")
    return _distinct(found)


def _ident(name: str) -> str:
    """A file name's stem as an id: letters, digits, dots, dashes and underscores; marked where that lost something."""
    stem = re.sub(r"_assignsubmission_\w*$", "", re.sub(r"\.(ipynb|zip)$", "", name))  # Moodle's ending
    plain = re.sub(r"[^A-Za-z0-9._@+-]+", "_", stem).strip("._")[:100]
    if plain == stem:
        return plain
    return f"{plain or 'submission'}-{hashlib.sha256(stem.encode(errors='replace')).hexdigest()[:6]}"


def _distinct(found: list[Source]) -> list[Source]:
    seen: dict[str, int] = {}
    result = []
    for source in found:
        folded = source.id.casefold()  # some file systems take no more than that
        seen[folded] = seen.get(folded, 0) + 1
        ident = source.id if seen[folded] == 1 else f"{source.id}~{seen[folded]}"
        result.append(Source(ident, source.path, source.members))
    return result


_CANVAS = re.compile(r"(?P<who>[^/_]+(?:_LATE)?_\d+)_\d+_.+")


def _in_zip(path: Path) -> list[Source]:
    """The submissions of an LMS's zip: one per folder (Moodle), or per name and number (Canvas); or one's own."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [i.filename for i in _members(archive, [])]
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise LabkitError(f"{path} cannot be read as a zip: {error}.") from None
    wanted = [n for n in names if n.endswith((".ipynb", ".zip"))]
    if MANIFEST in names:
        return [Source(_ident(path.name), path)]
    groups: dict[str, list[str]] = {}
    tops = {PurePosixPath(n).parts[0] for n in wanted if "/" in n}
    skip = 1 if len(tops) == 1 and all("/" in n for n in wanted) and any(n.count("/") > 1 for n in wanted) else 0
    for name in wanted:
        parts = PurePosixPath(name).parts[skip:]
        canvas = _CANVAS.fullmatch(parts[0]) if len(parts) == 1 else None
        groups.setdefault(canvas["who"] if canvas else parts[0], []).append(name)
    return [Source(_ident(who), path, tuple(members)) for who, members in sorted(groups.items())]


def _notebooks(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        if path.suffix in (".ipynb", ".zip") and path.is_file() and not any(p.startswith(".") for p in inside):
            yield path


def _members(archive: zipfile.ZipFile, faults: list[str]) -> Iterator[zipfile.ZipInfo]:
    """The members that are plain files with plain names; the others are faults."""
    for number, info in enumerate(archive.infolist()):
        if number > MOST_FILES:
            faults.append(f"The zip holds more than {MOST_FILES} files; the rest was left out.")
            return
        name = info.filename
        mode = info.external_attr >> 16
        if info.is_dir() or PurePosixPath(name).name.startswith(".") or name.startswith("__MACOSX/"):
            continue
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            faults.append(f"{_shown(name)} in the zip is no plain file (a link, perhaps); it was left out.")
        elif name.startswith("/") or "\\" in name or ".." in PurePosixPath(name).parts or "\0" in name:
            faults.append(f"{_shown(name)} in the zip points outside of it; it was left out.")
        else:
            yield info


def _shown(name: str) -> str:
    return ascii(name[:80]).strip("'")


def digest(source: Source) -> str:
    """A hash of what a submission consists of: another one means that it was handed in anew."""
    made = hashlib.sha256()
    if source.path.is_dir():
        files = [(str(p.relative_to(source.path)), p) for p in _notebooks(source.path) if not p.is_symlink()]
    else:
        files = [("", source.path)]
    for name, file in files[: MOST_NOTEBOOKS + 1]:
        made.update(f"{name}\0".encode(errors="replace"))
        if source.members is not None:  # of a class's zip, only one's own members
            with zipfile.ZipFile(file) as archive:
                infos = (i for i in archive.infolist() if i.filename in source.members)
                made.update(repr([(i.filename, i.CRC, i.file_size) for i in infos]).encode(errors="replace"))
            continue
        with open(file, "rb") as open_file:
            while piece := open_file.read(1 << 20):
                made.update(piece)
    return made.hexdigest()


# --- reading ---------------------------------------------------------------------------------------------


def source_of(path: Source | str | Path) -> Source:
    """What one student handed in, at `path`."""
    return path if isinstance(path, Source) else Source(_ident(Path(path).name), Path(path))


def read(source: Source | str | Path) -> Submission:
    """The cells of a submission. Never raises for what is wrong with it: that is a fault, or makes it ungradable."""
    source = source_of(source)
    submission = Submission(source.id, source.path)
    try:
        _read_path(source, submission)
    except OSError as error:
        submission.faults.append(f"It could not be read: {error.strerror or error}.")
    if not submission.cells:
        what = submission.faults[0] if submission.faults else "It holds no notebook with cells."
        submission.ungradable = what
    return submission


def _read_path(source: Source, submission: Submission) -> None:
    path = source.path
    if path.is_dir():
        root = path.resolve()
        for number, file in enumerate(_notebooks(path)):
            name = str(file.relative_to(path))
            if number >= MOST_NOTEBOOKS:
                submission.faults.append(f"It holds more than {MOST_NOTEBOOKS} notebooks; the rest was left out.")
                break
            if file.is_symlink() or not file.resolve().is_relative_to(root):
                submission.faults.append(f"{_shown(name)} is a link; it was left out.")
            elif file.suffix == ".zip":
                _read_zip(file.read_bytes() if file.stat().st_size <= MOST_NOTEBOOK else b"", name, submission, None)
            else:
                _read_file(file, name, submission)
    elif path.suffix == ".ipynb" or not zipfile.is_zipfile(path):
        _read_file(path, path.name, submission)
    else:
        _read_zip(path, "", submission, source.members)


def _read_file(file: Path, name: str, submission: Submission) -> None:
    if file.stat().st_size > MOST_NOTEBOOK:
        submission.faults.append(_too_large(name))
        return
    _read_notebook(file.read_bytes(), name, submission)


def _too_large(name: str) -> str:
    return f"{_shown(name)} has more than {MOST_NOTEBOOK >> 20} MB; clear its outputs and hand it in again."


def _read_zip(
    data: Path | bytes, name: str, submission: Submission, members: tuple[str, ...] | None, depth: int = 0
) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(data) if isinstance(data, bytes) else data) as archive:
            infos = [i for i in _members(archive, submission.faults) if i.filename.endswith((".ipynb", ".zip"))]
            for number, info in enumerate(infos):
                if members is not None and info.filename not in members:
                    continue
                if number >= MOST_NOTEBOOKS and members is None:
                    submission.faults.append(f"It holds more than {MOST_NOTEBOOKS} notebooks; the rest was left out.")
                    return
                with archive.open(info) as file:  # a zip's word on its sizes is not taken
                    inner = file.read(MOST_NOTEBOOK + 1)
                if len(inner) > MOST_NOTEBOOK:
                    submission.faults.append(_too_large(info.filename))
                elif info.filename.endswith(".ipynb"):
                    _read_notebook(inner, info.filename, submission)
                elif depth < 1:
                    _read_zip(inner, info.filename, submission, None, depth + 1)
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, RuntimeError, NotImplementedError) as error:
        submission.faults.append(f"{_shown(name) or 'The zip'} cannot be read as a zip: {_shown(str(error))}.")


def _read_notebook(data: bytes, name: str, submission: Submission) -> None:
    text, lost = _decoded(data)
    if lost:
        submission.faults.append(f"{_shown(name)} is not UTF-8; it was read as well as that goes.")
    cells, fault = lean(text)
    if fault:
        submission.faults.append(f"{_shown(name)} {fault}")
    for number, cell in enumerate(cells, 1):
        if number > MOST_CELLS:
            submission.faults.append(f"{_shown(name)} has more than {MOST_CELLS} cells; the rest was left out.")
            break
        made = _cell(cell, name, number)
        if made is None:
            submission.faults.append(f"Cell {number} of {_shown(name)} is no cell; it was left out.")
        elif len(made.source) > MOST_SOURCE:
            submission.faults.append(
                f"Cell {number} of {_shown(name)} has more than {MOST_SOURCE} characters; it was left out."
            )
        else:
            submission.cells.append(made)


def _decoded(data: bytes) -> tuple[str, bool]:
    for start, encoding in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(start):
            text = data.decode(encoding, errors="replace")
            return text, encoding == "utf-16" or "�" in text
    try:
        return data.decode("utf-8"), False
    except UnicodeDecodeError:
        return data.decode("utf-8", errors="replace"), True


def _cell(cell: Any, notebook: str, number: int) -> Cell | None:
    if not isinstance(cell, dict):
        return None
    source = cell.get("source", cell.get("input", ""))  # nbformat 3 says input
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    kind = cell.get("cell_type")
    if not isinstance(source, str) or not isinstance(kind, str):
        return None
    metadata = cell.get("metadata")
    nbgrader = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    nbgrader = nbgrader if isinstance(nbgrader, dict) else {}
    claims = [nbgrader.get("grade_id"), nbgrader.get("solution_id"), cell.get("id")]
    idents = tuple(dict.fromkeys(c for c in claims if isinstance(c, str) and 0 < len(c) <= 200))
    source = source.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    source = source.encode("utf-8", "replace").decode()  # halves of surrogate pairs
    return Cell(notebook, number, kind[:20], source, idents, nbgrader.get("locked") is True)


# --- a reader of notebooks that keeps no outputs ---------------------------------------------------------

_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_ATOM = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null|NaN|-?Infinity")
_NEXT = re.compile(r'["{}\[\]]')
_PASSED_OVER = frozenset(("outputs", "attachments", "widgets", "execution", "prompt_number"))
_DEEPEST = 60


class _Broken(Exception):
    """The text ends, or is no JSON, at `at`."""

    def __init__(self, at: int) -> None:
        self.at = at


class _Lean:
    def __init__(self, text: str) -> None:
        self.text = text
        self.cells: list[Any] = []

    def value(self, at: int, depth: int, key: str) -> tuple[Any, int]:
        """The value at `at`, and where it ends. Cells are kept in `cells` as they are read."""
        text = self.text
        at = _SPACE.match(text, at).end()
        if depth > _DEEPEST:
            raise _Broken(at)
        start = text[at : at + 1]
        if start == '"':
            return self.string(at)
        if start == "{":
            return self.object(at, depth)
        if start == "[":
            return self.array(at, depth, key)
        found = _ATOM.match(text, at)
        if not found:
            raise _Broken(at)
        try:
            return json.loads(found[0]), found.end()
        except ValueError:  # a number too long
            return None, found.end()

    def string(self, at: int) -> tuple[str, int]:
        found = _STRING.match(self.text, at)
        if not found:
            raise _Broken(at)
        try:
            return json.loads(found[0], strict=False), found.end()
        except ValueError:
            raise _Broken(at) from None

    def object(self, at: int, depth: int) -> tuple[dict, int]:
        result: dict[str, Any] = {}
        text, at = self.text, _SPACE.match(self.text, at + 1).end()
        if text.startswith("}", at):
            return result, at + 1
        while True:
            key, at = self.string(at)
            at = _SPACE.match(text, at).end()
            if not text.startswith(":", at):
                raise _Broken(at)
            if key in _PASSED_OVER:
                at = self.skip(at + 1)
            else:
                value, at = self.value(at + 1, depth + 1, key)
                result.setdefault(key, value)
            at = _SPACE.match(text, at).end()
            if text.startswith("}", at):
                return result, at + 1
            if not text.startswith(",", at):
                raise _Broken(at)
            at = _SPACE.match(text, at + 1).end()

    def array(self, at: int, depth: int, key: str) -> tuple[list, int]:
        result: list[Any] = []
        cells = key == "cells" and depth < 4  # nbformat 3 has worksheets above them
        text, at = self.text, _SPACE.match(self.text, at + 1).end()
        if text.startswith("]", at):
            return result, at + 1
        while True:
            value, at = self.value(at, depth + 1, "")
            (self.cells if cells else result).append(value)
            at = _SPACE.match(text, at).end()
            if text.startswith("]", at):
                return result, at + 1
            if not text.startswith(",", at):
                raise _Broken(at)
            at += 1

    def skip(self, at: int) -> int:
        """Where the value at `at` ends, without making it."""
        text = self.text
        at = _SPACE.match(text, at).end()
        if text[at : at + 1] not in ("{", "["):
            if text.startswith('"', at):
                found = _STRING.match(text, at)
            else:
                found = _ATOM.match(text, at)
            if not found:
                raise _Broken(at)
            return found.end()
        depth = 0
        while True:
            found = _NEXT.search(text, at)
            if not found:
                raise _Broken(len(text))
            at = found.end()
            if found[0] == '"':
                string = _STRING.match(text, found.start())
                if not string:
                    raise _Broken(found.start())
                at = string.end()
            else:
                depth += 1 if found[0] in "{[" else -1
                if depth == 0:
                    return at


def lean(text: str) -> tuple[list[Any], str | None]:
    """The cells of a notebook's JSON without their outputs, and what is wrong with it, as the rest of a sentence."""
    reader = _Lean(text)
    try:
        value, _ = reader.value(0, 0, "")
    except _Broken as broken:
        count = len(reader.cells)
        if not count:
            return [], "is no notebook: it is not JSON."
        line = text.count("\n", 0, broken.at) + 1
        plural = "s" if count != 1 else ""
        return reader.cells, f"is broken at line {line}; the {count} cell{plural} before that could be read."
    if not reader.cells:
        return [], "is no notebook: it has no cells." if isinstance(value, dict) else "is no notebook."
    return reader.cells, None
