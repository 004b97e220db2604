"""Student notebooks, built from the masters: `solutions/<lab>/*.py` -> `labs/<lab>/*.ipynb`.

A master is a jupytext py:percent file. What its cells are is said in their metadata:

    # %% kernel="gemm/coalesced"           empty: the kernel file is put in, whole if given=true
    # %% check="gemm/coalesced" points=4   a locked cell that checks that kernel
    # %% question="gemm/naive/sectors_per_request" points=1      holds lk.answer(key, value)
    # %% [markdown] explain="gemm/coalesced" points=2            free text, model answer in a region
    # %% solved_only=true                  claims that CI verifies and that would give answers away

Kernels, checks and explanations of CUDA C++ add language="cuda". Solution regions become stubs and
the values in `lk.answer` become `...`; everything else is copied. Cell ids depend on the metadata
above, or on the heading that a cell stands under and its place there, so that an edit in one
section leaves the ids of the others alone.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import problems
from labkit.errors import LabkitError
from labkit.ladder import SUFFIX
from labkit.notebook import regions

if TYPE_CHECKING:
    from nbformat import NotebookNode

_METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_ROLES = ("kernel", "check", "question", "explain")


def masters(root: Path) -> list[Path]:
    """The master notebooks under `root/solutions`, in folders named as `02_gemm`; LabkitError where there are none."""
    found = sorted(Path(root, "solutions").glob("[0-9]*/*.py"))
    if not found:
        raise LabkitError(f"No master notebook in {Path(root, 'solutions')}; only instructors have them.")
    return found


def select(masters: list[Path], labs: Iterable[str] | None) -> list[Path]:
    """The masters of some labs ("02_gemm") or notebooks ("02_gemm/01_naive_to_tiled"), or all where `labs` is None.

    Raises LabkitError for a name that none has.
    """
    if labs is None:
        return masters
    names = {path: (path.parent.name, f"{path.parent.name}/{path.stem}") for path in masters}
    labs = [lab.strip("/").removesuffix(".ipynb").removeprefix("labs/") for lab in labs]
    for lab in labs:
        if not any(lab in both for both in names.values()):
            known = sorted({folder for folder, _ in names.values()})
            raise LabkitError(f"There is no lab or notebook {lab!r}; there are {', '.join(known)}.")
    return [path for path in masters if set(names[path]) & set(labs)]


def target(root: Path, master: Path) -> Path:
    """The student notebook that `master` becomes."""
    return Path(root, "labs", master.parent.name, master.stem + ".ipynb")


def build(root: Path, check: bool = False) -> list[Path]:
    """Write the notebooks that differ from their masters; return them. `check` only looks."""
    changed = []
    for master in masters(root):
        path, new = target(root, master), text(notebook(master))
        if not path.exists() or path.read_text(encoding="utf-8") != new:
            changed.append(path)
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(new, encoding="utf-8")
    return changed


def text(book: NotebookNode) -> str:
    """The bytes of a notebook file, the same for the same notebook."""
    import nbformat

    return nbformat.writes(book).rstrip("\n") + "\n"


def notebook(master: Path, solved: bool = False) -> NotebookNode:
    """The notebook of `master` for students, or with every solution filled in."""
    import jupytext
    import nbformat

    source = jupytext.read(master, fmt="py:percent")
    book = nbformat.v4.new_notebook(metadata=_METADATA)
    book.nbformat_minor = 5
    section, places, seen = "", Counter(), set()
    for number, cell in enumerate(source.cells, 1):
        where = f"{master.name} cell {number}"
        role, name = _role(cell, where)
        prose = cell.cell_type == "markdown" and not role
        heading = re.match(r"(#+) +(.+)", cell.source) if prose else None
        if heading and len(heading[1]) > 2:
            section = f"{section.split('--')[0]}--{_slug(heading[2], 24)}"
        elif heading:
            section = _slug(heading[2], 24)
        if role:
            ident = _identity(role, name, cell.metadata.get("language", "numba"), where)
        else:
            kind = "text" if cell.cell_type == "markdown" else "code"
            places[section, kind] += 1
            ident = f"{section}--{kind}-{places[section, kind]}"
        if ident in seen:
            raise LabkitError(f"{where}: a second cell with the id {ident}; each may stand once.")
        seen.add(ident)
        if cell.metadata.get("solved_only", False) and not solved:
            continue
        book.cells.append(_cell(cell, role, name, ident, master, solved, where))
    nbformat.validate(book)
    return book


def answers(master: Path) -> dict[str, str]:
    """The answers that `master` gives: key -> the source of the value."""
    import jupytext

    found = {}
    for number, cell in enumerate(jupytext.read(master, fmt="py:percent").cells, 1):
        if cell.cell_type == "code":
            for call in _answer_calls(cell.source, f"{master.name} cell {number}"):
                found[ast.literal_eval(call.args[0])] = ast.unparse(call.args[1])
    return found


def kernels(master: Path) -> dict[Path, bool]:
    """The kernel files that `master` shows to students, and whether whole."""
    import jupytext

    return {
        _kernel_file(master, cell.metadata["kernel"], cell.metadata.get("language", "numba")): bool(
            cell.metadata.get("given", False)
        )
        for cell in jupytext.read(master, fmt="py:percent").cells
        if "kernel" in cell.metadata
    }


def _kernel_file(master: Path, name: str, language: str) -> Path:
    """Where a problem's kernels lie: in the folder of its name, or of the problem that it shares them with."""
    operation, _, rung = name.partition("/")
    shared = problems.get(operation).kernels if operation in problems.names() else ""
    return master.parent / "kernels" / (shared or operation) / (rung + SUFFIX[language])


def _role(cell: NotebookNode, where: str) -> tuple[str | None, str]:
    roles = [role for role in _ROLES if role in cell.metadata]
    if len(roles) > 1:
        raise LabkitError(f"{where} is both {roles[0]} and {roles[1]}; give it one role.")
    return (roles[0], cell.metadata[roles[0]]) if roles else (None, "")


def _identity(role: str, name: str, language: str, where: str) -> str:
    parts = name.split("/")
    if len(parts) < 2:
        raise LabkitError(f"{where}: {role}={name!r} should read like {role}='gemm/naive'.")
    if role == "question":  # gemm/naive/sectors_per_request, or gemm/flops for the problem itself
        parts[-1] = "q-" + parts[-1]
    elif role == "kernel":
        parts.append(language)
    else:
        parts.append(role if language == "numba" else f"{role}-{language}")
    return "--".join(_slug(part) for part in parts)


def _slug(title: str, longest: int = 64) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", title.lower()).strip("-")[:longest].rstrip("-") or "section"


def _cell(
    cell: NotebookNode,
    role: str | None,
    name: str,
    ident: str,
    master: Path,
    solved: bool,
    where: str,
) -> NotebookNode:
    import nbformat

    shown = cell.metadata.get("given", False)
    if role == "kernel":
        source = _kernel(cell, name, master, solved or shown, where)
    elif cell.cell_type == "markdown":
        source = _filled(cell.source, "markdown", solved, where)
    else:
        calls = _answer_calls(cell.source, where)
        if role == "question" and [ast.literal_eval(call.args[0]) for call in calls] != [name]:
            raise LabkitError(f"{where}: a question cell calls lk.answer({name!r}, ...), once.")
        source = cell.source
        if not solved:
            source = _hide(source, calls)
        source = _filled(source, "numba", solved, where)
    new = nbformat.v4.new_markdown_cell if cell.cell_type == "markdown" else nbformat.v4.new_code_cell
    out = new(source, id=ident)
    if "jupyter" in cell.metadata:  # {"source_hidden": true} folds code that is not the point
        out.metadata["jupyter"] = cell.metadata["jupyter"]
    if role and not shown:
        out.metadata.update(_grading(role, ident, cell, where))
    return out


def _kernel(cell: NotebookNode, name: str, master: Path, whole: bool, where: str) -> str:
    language = cell.metadata.get("language", "numba")
    if cell.source.strip():
        raise LabkitError(f"{where}: a kernel cell is empty in the master; {name} is put in from its file.")
    if language not in SUFFIX:
        raise LabkitError(f"{where}: language is numba or cuda, not {language!r}.")
    path = _kernel_file(master, name, language)
    if not path.is_file():
        raise LabkitError(f"{where} includes {name}, and there is no {path}.")
    code = path.read_text(encoding="utf-8").rstrip("\n")
    if not whole and len(regions.split(code, path.name)) == 1:
        raise LabkitError(f"{path} marks no solution; mark one, or say given=true in {where}.")
    flag = " --cuda" if language == "cuda" else ""
    return f"%%kernel {name}{flag}\n" + _filled(code, language, whole, path.name)


def _filled(source: str, language: str, solved: bool, where: str) -> str:
    return regions.solved(source, where) if solved else regions.stub(source, language, where)


def _grading(role: str, ident: str, cell: NotebookNode, where: str) -> dict:
    """nbgrader's metadata, schema 3: what is handed in, what is locked, what has points."""
    points = cell.metadata.get("points", 0)
    graded = points > 0
    if role == "kernel" and graded:
        raise LabkitError(f"{where}: a kernel's points stand on its check cell.")
    nbgrader = {
        "cell_type": cell.cell_type,
        "grade": graded,
        "grade_id": ident,
        "locked": role == "check",
        "schema_version": 3,
        "solution": role != "check",
        "task": False,
    }
    if graded:
        nbgrader["points"] = points
    metadata: dict = {"deletable": False, "nbgrader": nbgrader}
    if role == "check":
        metadata["editable"] = False
    return metadata


def _answer_calls(source: str, where: str) -> list[ast.Call]:
    """The calls of `lk.answer(key, value)` in a cell."""
    if "answer" not in source:
        return []
    try:
        tree = ast.parse(re.sub(r"(?m)^[%!].*", "", source))
    except SyntaxError as error:
        raise LabkitError(f"{where} does not parse (line {error.lineno}: {error.msg}).") from None
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "answer"
    ]
    for call in calls:
        if len(call.args) != 2 or not isinstance(call.args[0], ast.Constant):
            raise LabkitError(f"{where} line {call.lineno}: write lk.answer('a/key', value), to have it hidden.")
    return calls


def _hide(source: str, calls: list[ast.Call]) -> str:
    """`source` with the second argument of each call replaced by `...`."""
    lines = source.encode().split(b"\n")  # ast counts bytes
    for call in sorted(calls, key=lambda c: (c.lineno, c.col_offset), reverse=True):
        value = call.args[1]
        first, last = value.lineno - 1, value.end_lineno - 1
        lines[first : last + 1] = [lines[first][: value.col_offset] + b"..." + lines[last][value.end_col_offset :]]
    return b"\n".join(lines).decode()
