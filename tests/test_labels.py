"""Labels of rungs, read as they are made."""

from __future__ import annotations

import pytest

import labkit as lk
from labkit.labels import Label


@pytest.mark.parametrize("name", lk.problems.names())
def test_every_rung_is_read_back_from_its_label(name):
    ladder = lk.problem(name)
    for step in ladder.problem.ladder:
        for language in step.languages:
            rung = ladder[step.name, language]
            assert Label.of(rung.label) == Label(name, step.name, language)
            ours = Label.of(f"{rung.solution.label} {ladder.problem.profile_shape}")
            assert ours == Label(name, step.name, language, True) and str(ours) == rung.solution.label


@pytest.mark.parametrize("text", ["load stride 3", "a (b) c", "a/b/c", "count", ""])
def test_what_is_no_rung_stays_as_it_is(text):
    assert str(Label.of(text)) == Label.of(text).short == text
    assert Label.of(text).language == "numba"


def test_a_rival_is_named_without_its_problem():
    assert Label.of("fusion/compiled").short == "compiled"
    assert Label.of("gemm/naive (CUDA C++) (solution)").short == "naive (CUDA C++)"
