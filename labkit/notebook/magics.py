"""`%%kernel`: a cell that is a kernel file. And errors as sentences, without a traceback."""

from __future__ import annotations

import html
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.errors import LabkitError

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

KEPT = 20  # older versions of a kernel
_USAGE = "Write %%kernel PROBLEM/RUNG, such as %%kernel gemm/coalesced, with --cuda for CUDA C++."


def register(shell: InteractiveShell) -> None:
    """Give a shell `%%kernel`, and show LabkitErrors without traceback. Twice does no harm."""
    shell.register_magic_function(kernel, "cell", "kernel")
    shell.set_custom_exc((LabkitError,), _show_error)
    if os.environ.get("NBGRADER_EXECUTION"):
        _fail_for_nbgrader(shell)


def _fail_for_nbgrader(shell: InteractiveShell) -> None:
    """While nbgrader runs a notebook, a failed check says so on stderr, too.

    To nbgrader a cell fails by an exception or by stderr; the result of a check is neither.
    """
    from labkit.check import CheckResult

    def text(result: CheckResult, printer: Any, cycle: bool) -> None:
        if not result.passed:
            print(result, file=sys.stderr)
        printer.text(repr(result))

    shell.display_formatter.formatters["text/plain"].for_type(CheckResult, text)


def load_ipython_extension(shell: InteractiveShell) -> None:
    register(shell)


class Saved:
    """What `%%kernel` did: the file, its lines, and whether an older version was kept."""

    def __init__(self, name: str, path: Path, lines: int, older: Path | None) -> None:
        self.name, self.path, self.lines, self.older = name, path, lines, older

    def _sentence(self, path: str) -> str:
        kept = f"; the version before is .history/{self.older.name}" if self.older else ""
        return f"{self.name}: {self.lines} lines saved in {path}{kept}."

    def __repr__(self) -> str:
        return self._sentence(_short(self.path))

    def _repr_html_(self) -> str:
        code = f"<code>{html.escape(_short(self.path))}</code>"
        return f'<div style="opacity: 0.75">{self._sentence(code)}</div>'


def kernel(line: str, cell: str) -> Saved:
    """Keep the cell as the learner's kernel file and load it.

    line : "PROBLEM/RUNG", with "--cuda" where the cell is CUDA C++.
    The file starts with the magic line as a comment, so its line numbers are the cell's. It is
    saved even if it does not compile, so that nothing is lost. Raises LabkitError for a bad name
    and for code that does not compile.
    """
    from labkit.ladder import problem

    words = line.split()
    language = "cuda" if "--cuda" in words else "numba"
    names = [word for word in words if word != "--cuda"]
    if len(names) != 1 or names[0].count("/") != 1 or names[0].startswith("-"):
        raise LabkitError(_USAGE)
    operation, rung = names[0].split("/")
    mine = problem(operation)[rung, language]
    comment = "//" if language == "cuda" else "#"
    text = f"{comment} %%kernel {line.strip()}\n{cell.rstrip()}\n"
    older = save(mine.path, text)
    if language == "numba":
        _parse(text, mine.path)
    mine.kernel  # noqa: B018 - loading it finds what does not compile
    return Saved(names[0], mine.path, text.count("\n"), older)


def save(path: Path, text: str) -> Path | None:
    """Write `text` to `path`; a version that it replaces moves to `.history` beside it.

    Returns where the older version went, or None if there was none or nothing changed.
    """
    older = None
    if path.exists():
        if path.read_text(encoding="utf-8") == text:
            return None
        older = _keep(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text, encoding="utf-8")
    new.replace(path)  # a reader sees the old file or the new one, never half of one
    return older


def _keep(path: Path) -> Path:
    """Move `path` to its history under the time of its writing; keep the newest `KEPT` there."""
    history = path.parent / ".history"
    history.mkdir(exist_ok=True)
    written = time.strftime("%Y%m%dT%H%M%S", time.localtime(path.stat().st_mtime))
    older = history / f"{path.stem}.{written}{path.suffix}"
    again = 1
    while older.exists():
        older = history / f"{path.stem}.{written}-{again}{path.suffix}"
        again += 1
    path.replace(older)
    versions = sorted(history.glob(f"{path.stem}.*{path.suffix}"), key=lambda p: p.stat().st_mtime_ns)
    for oldest in versions[:-KEPT]:
        oldest.unlink()
    return older


def _parse(text: str, path: Path) -> None:
    try:
        compile(text, str(path), "exec")
    except SyntaxError as error:
        wrong = LabkitError(f"Line {error.lineno} of this cell: {error.msg}. It is saved, but cannot run yet.")
        wrong.file, wrong.line = str(path), error.lineno
        raise wrong from None


def _short(path: Path) -> str:
    """`path` from the project's root where it lies in it."""
    from labkit.root import root

    try:
        return str(path.relative_to(root()))
    except (LabkitError, ValueError):
        return str(path)


def _show_error(shell: Any, kind: type, error: LabkitError, trace: Any, tb_offset: int | None = None) -> list[str]:
    """The sentence, and the source line if the error names one; the cell still counts as failed."""
    shown = [f"\x1b[31m{kind.__name__}\x1b[0m: {error}", *_excerpt(error)]
    shell._showtraceback(kind, error, shown)
    return shown


def _excerpt(error: LabkitError, around: int = 2) -> list[str]:
    file, line = getattr(error, "file", None), getattr(error, "line", None)
    if found := re.match(r"(.+?):(\d+): ", str(error)):  # as compilers say it
        file, line = found[1], int(found[2])
    if not file or not line or not Path(file).is_file():
        return []
    lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    first, last = max(line - around, 1), min(line + around, len(lines))
    shown = []
    for number in range(first, last + 1):
        mark, bold, plain = ("->", "\x1b[1m", "\x1b[0m") if number == line else ("  ", "", "")
        shown.append(f"{bold}{mark} {number:3d}  {lines[number - 1]}{plain}")
    return shown
