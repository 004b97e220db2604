"""Solution regions, from `### BEGIN SOLUTION` to `### END SOLUTION` (with `//` in CUDA C++)."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from labkit.errors import LabkitError

_MARKER = re.compile(r"\s*(?:###|//)\s*(BEGIN|END) SOLUTION\s*$")
_COMMENT = ("#", "//")
WRITE_HERE = "*Your answer here.*"


@dataclass(frozen=True)
class Part:
    """A run of lines, in a solution region or outside of all; `line` is the first one's number."""

    lines: tuple[str, ...]
    solution: bool
    line: int


def split(text: str, where: str) -> list[Part]:
    """The parts of `text` without the marker lines; LabkitError if the markers do not pair up."""
    parts: list[Part] = []
    lines: list[str] = []
    inside, first = False, 1
    for number, line in enumerate(text.split("\n"), 1):
        marker = _MARKER.match(line)
        if not marker:
            lines.append(line)
            continue
        if (marker[1] == "BEGIN") == inside:
            raise LabkitError(f"{where} line {number}: {marker[1]} SOLUTION without its partner before it.")
        parts.append(Part(tuple(lines), inside, first))
        lines, inside, first = [], not inside, number + 1
    if inside:
        raise LabkitError(f"{where} line {first - 1}: BEGIN SOLUTION is never closed; add END SOLUTION.")
    return [*parts, Part(tuple(lines), False, first)]


def solved(text: str, where: str) -> str:
    """`text` with its solutions in place and only the marker lines gone."""
    return "\n".join(line for part in split(text, where) for line in part.lines)


def stub(text: str, language: str, where: str) -> str:
    """`text` with each solution region replaced by a line to fill in, which still parses.

    language : "numba" (or any Python), "cuda" or "markdown".
    Raises LabkitError if the stub would not parse.
    """
    parts = split(text, where)
    if len(parts) == 1:
        return text
    lines: list[str] = []
    for part in parts:
        lines += [_blank(part, language)] if part.solution else part.lines
    out = "\n".join(lines)
    if language == "numba":
        try:
            ast.parse(out)
        except SyntaxError as error:
            raise LabkitError(
                f"{where}: its stub does not parse (line {error.lineno}: {error.msg}); "
                "move the markers so that whole statements lie between them."
            ) from None
    for part in parts:
        body = "\n".join(part.lines)
        if language == "cuda" and part.solution and body.count("{") != body.count("}"):
            raise LabkitError(f"{where} line {part.line}: the braces of this solution region do not pair up.")
    return out


def _blank(part: Part, language: str) -> str:
    if language == "markdown":
        return WRITE_HERE
    written = [line for line in part.lines if line.strip()]
    if not written:
        raise LabkitError(f"The solution region at line {part.line} is empty.")
    indent = written[0][: len(written[0]) - len(written[0].lstrip())]
    count = sum(not line.lstrip().startswith(_COMMENT) for line in written)
    hint = f"your code (about {count} line{'s' if count != 1 else ''})"
    return f"{indent}// {hint}" if language == "cuda" else f"{indent}pass  # {hint}"
