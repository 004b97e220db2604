"""Planted bugs are found for the right reason at the right line, and right kernels that look suspicious pass."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "sanitizer_corpus"))

from cases import Case, all_cases  # noqa: E402

from labkit.emulator import KernelFault  # noqa: E402

CASES = all_cases()
WRONG = [c for c in CASES if c.kind]
RIGHT = [c for c in CASES if not c.kind]


def test_the_corpus_is_large_and_marks_its_bugs():
    assert len(WRONG) >= 60 and len(RIGHT) >= 60
    assert len({c.id for c in CASES}) == len(CASES)
    for case in WRONG:
        assert case.bug, f"{case.id} marks no line"
    for case in RIGHT:
        assert not case.bug and not case.other, f"{case.id} is right and marks a line"


@pytest.mark.parametrize("case", WRONG, ids=lambda c: c.id)
def test_a_planted_bug_is_found(case: Case):
    with pytest.raises(KernelFault) as info:
        case.run()
    fault = info.value
    assert fault.kind == case.kind, fault
    assert fault.line in case.bug, fault
    if case.other:
        assert fault.other_line in case.other, fault
    if case.kind == "race":
        assert fault.other_line and fault.other_thread is not None, fault
    assert fault.thread is not None and fault.block is not None, fault
    assert fault.message and fault.mend.endswith("."), fault
    assert ("__sync" in str(fault)) <= (case.language == "cuda"), fault
    assert "_cudapy" not in str(fault), fault


@pytest.mark.parametrize("case", RIGHT, ids=lambda c: c.id)
def test_a_right_kernel_passes(case: Case):
    case.run()
    case.run(chunk_threads=128)
