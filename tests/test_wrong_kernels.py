"""Every check rejects wrong kernels, each for the right reason (`wrong/`), and passes every solution."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from rungs import RUNGS, marks

import labkit as lk
from labkit import problems
from labkit.ladder import SUFFIX

FOLDER = Path(__file__).with_name("wrong")

WRONG = [
    pytest.param(name, case, language, id=f"{name}-{case.name.replace(' ', '_')}-{language}", marks=marks(name))
    for name in sorted(path.stem for path in FOLDER.glob("[a-z]*.py"))
    for case in importlib.import_module(f"wrong.{name}").WRONG
    for language in SUFFIX
    if getattr(case, language)
]


@pytest.mark.parametrize("problem, case, language", WRONG)
def test_wrong_kernel_is_rejected_for_the_right_reason(problem, case, language, tmp_path):
    rung = lk.problem(problem)[case.rung, language]
    text = case.edited(language, rung.solution.source)
    file = tmp_path / (case.rung + SUFFIX[language])
    file.write_text(text)
    result = rung.load(file).check()
    assert not result.passed
    failure = result.failures[0]
    assert re.fullmatch(case.kind, failure.kind), failure
    assert re.search(case.says, failure.message), failure.message
    if case.marker:
        marker = case.marker[list(SUFFIX).index(language)]
        line = 1 + next(i for i, row in enumerate(text.splitlines()) if marker in row)
        assert failure.line == line, failure
    assert "\n" not in str(failure)


@pytest.mark.parametrize("problem", problems.names())
def test_every_problem_has_wrong_kernels(problem):
    assert (FOLDER / f"{problem}.py").exists(), f"tests/wrong/{problem}.py is missing"


@pytest.mark.parametrize("problem, rung, language", RUNGS)
def test_solution_passes(problem, rung, language):
    result = lk.problem(problem)[rung, language].solution.check()
    assert result.passed, result
