"""Labels of rungs in results and recorded files, such as "gemm/naive (CUDA C++) (solution)": made and read here."""

from __future__ import annotations

import re
from dataclasses import dataclass

LANGUAGES = {"numba": "numba", "cuda": "CUDA C++"}  # as they are written for people
_PARTS = re.compile(
    r"(?:(?P<problem>[^/({]*)/)?(?P<rung>[^/({]*?)(?P<cuda> \(CUDA C\+\+\))?(?P<ours> \(solution\))?(?: \{.*)?"
)


@dataclass(frozen=True)
class Label:
    """A rung in words: with its language and origin where they are not the default.

    language: "numba" or "cuda". solution: whether it is the kernel of `solutions/`.
    """

    problem: str
    rung: str
    language: str = "numba"
    solution: bool = False

    @classmethod
    def of(cls, text: str) -> Label:
        """The label that begins a text; a shape behind it is left out, and what is no rung's label is all `rung`."""
        found = _PARTS.fullmatch(text)
        if found is None:
            return cls("", text)
        language = "cuda" if found["cuda"] else "numba"
        return cls(found["problem"] or "", found["rung"], language, bool(found["ours"]))

    @property
    def short(self) -> str:
        """The rung and its language, for a picture of one ladder."""
        return self.rung + (f" ({LANGUAGES['cuda']})" if self.language == "cuda" else "")

    def __str__(self) -> str:
        return (f"{self.problem}/" if self.problem else "") + self.short + (" (solution)" if self.solution else "")
