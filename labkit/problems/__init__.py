"""One module per operation, found by its name; each defines `problem`."""

from __future__ import annotations

import importlib
import pkgutil

from labkit.errors import LabkitError
from labkit.problems.problem import Problem, Question, Step, Tensor, unknown

__all__ = ["Problem", "Question", "Step", "Tensor", "get", "names"]


def names() -> list[str]:
    """The problems there are."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name != "problem" and m.name[0] != "_")


def get(name: str) -> Problem:
    """The problem of that name; LabkitError with the nearest name where there is none."""
    if name not in names():
        raise LabkitError(unknown("problem", name, names()))
    return importlib.import_module(f"labkit.problems.{name}").problem
