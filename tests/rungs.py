"""All solutions, as parameters of tests."""

from __future__ import annotations

import pytest

from labkit import problems


def marks(problem: str):
    """The kernels of the last labs take minutes together."""
    return [pytest.mark.slow] if problems.get(problem).lab[:2] in ("03", "04") else []


RUNGS = [
    pytest.param(name, step.name, language, id=f"{name}-{step.name}-{language}", marks=marks(name))
    for name in problems.names()
    for step in problems.get(name).ladder
    for language in step.languages
]
