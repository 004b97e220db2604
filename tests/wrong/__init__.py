"""Kernels that `check()` must reject, as edits of solutions: a module per problem, each with a list WRONG."""

from __future__ import annotations

from dataclasses import dataclass

Edit = tuple[str, str] | tuple[tuple[str, str], ...]  # (old, new), where old stands once in the file; or several


@dataclass(frozen=True)
class Wrong:
    """A wrong kernel: edits of a solution in one language or both, and what must be reported.

    kind, says: regular expressions for the failure's kind and message.
    marker: per language (numba, cuda), a piece of the line that the report must point at, in the edited file.
    """

    name: str
    rung: str
    numba: Edit | None
    cuda: Edit | None
    kind: str
    says: str
    marker: tuple[str, str] | None = None

    def edited(self, language: str, text: str) -> str:
        edits = getattr(self, language)
        for old, new in (edits,) if isinstance(edits[0], str) else edits:
            assert text.count(old) == 1, f"{self.name}: the {language} solution has changed; mend the edit of {old!r}"
            text = text.replace(old, new)
        return text
