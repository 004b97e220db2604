"""What the check adds to the sanitizers: memory that nobody has written, and an order in which a race does harm."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import labkit as lk
from labkit.emulator import Emulation, KernelFault
from labkit.emulator.ptx import parse
from labkit.emulator.schedules import delays

sys.path.insert(0, str(Path(__file__).parent / "sanitizer_corpus"))

from cases import all_cases  # noqa: E402

# Blocks that miss a fence, and a warp that a shuffle holds together: no order of instructions shows these.
UNSEEN = {"last_block_without_fence", "flag_without_fence", "shuffle_is_no_barrier"}
RACES = [c for c in all_cases() if c.kind == "race"]


@pytest.mark.parametrize("case", RACES, ids=lambda c: c.id)
def test_an_order_shows_the_race(case):
    with pytest.raises(KernelFault) as info:
        case.run()
    usual = case.run(sanitize=False)
    shown = False
    for delay in delays(info.value):
        assert str(delay.line) in str(delay)
        try:
            other = case.run(sanitize=False, delay=delay)
        except KernelFault:
            continue
        shown |= any(not np.array_equal(a, b, equal_nan=True) for a, b in zip(usual, other, strict=True))
    assert shown is (case.name not in UNSEEN)


@pytest.mark.parametrize("name", ["two_buffers_one_barrier", "last_block", "block_exchange", "warp_reduction"])
def test_no_order_changes_a_right_kernel(name: str):
    for case in (c for c in all_cases() if c.name == name):
        launch, _ = case.launch()
        usual = case.run(sanitize=False)
        program = parse(launch.ptx).program(launch.entry)
        for i in program.instructions:
            if i.op in ("ld", "st", "atom", "red") and "param" not in i.mods:
                fault = KernelFault(
                    "race", "", entry=launch.entry, other_pc=i.index, other_block=(0, 0, 0), other_thread=(0, 0, 0)
                )
                delay = next(delays(fault))
                other = case.run(sanitize=False, delay=delay)
                for a, b in zip(usual, other, strict=True):
                    np.testing.assert_array_equal(a, b)


NUMBA = """
from numba import cuda, float32

@cuda.jit
def kernel(C, A, B, room):
    col, row = cuda.grid(2)
    if row < C.shape[0] and col < C.shape[1]:
        acc = float32(0)
        for k in range(A.shape[1]):
            acc += A[row, k] * B[k, col]
        room[row, col] += acc
        C[row, col] = room[row, col]

def launch(C, A, B):
    room = MAKE
    kernel[((C.shape[1] + 15) // 16, (C.shape[0] + 15) // 16), (16, 16)](C, A, B, room)
"""


@pytest.mark.parametrize(
    "make, passes",
    [
        ("C.new_empty(C.shape)", False),
        ("C.new_zeros(C.shape)", True),
        ("C.new_empty(C.shape).zero_()", True),
        ("C.new_empty(C.shape[0] * C.shape[1]).view(C.shape)", False),
        ("C.clone() * 0 + 1", None),
        ("C.zero_()", True),
    ],
)
def test_workspace_that_nobody_has_filled(make: str, passes: bool | None, tmp_path: Path):
    file = tmp_path / "variant.py"
    file.write_text(NUMBA.replace("MAKE", make))
    result = lk.problem("gemm")["naive"].load(file).check()
    if passes:
        assert result.passed, result
        return
    failure = result.failures[0]
    if passes is None:  # torch has filled it, with poison
        assert failure.kind == "value"
        return
    assert (failure.kind, failure.line) == ("uninitialized", 11)
    assert "reads room[0" in failure.message and "nothing has written" in failure.message


def test_a_race_comes_with_an_order_that_does_harm(tmp_path: Path):
    source = lk.problem("gemm")["smem_tile"].solution.path.read_text()
    file = tmp_path / "smem_tile.py"
    file.write_text(source.replace("        cuda.syncthreads()  # nobody reads", "        # nobody reads"))
    failure = lk.problem("gemm")["smem_tile"].load(file).check().failures[0]
    assert failure.kind == "race" and failure.schedule in failure.message
    assert failure.schedule.startswith("For example, with the warp of thread (0, ")
    assert " late at line 28, C[" in failure.schedule and " and not " in failure.schedule
    assert "tB[0, 0]" in failure.message and "cuda.syncthreads()" in failure.message


def test_profiles_and_plain_runs_take_memory_as_it_is():
    case = next(c for c in all_cases() if c.name == "accumulate_into_new" and c.language == "cuda")
    launch, arrays = case.launch()
    emulation = Emulation()
    for name, array, _ in arrays:
        emulation.memory.add(array.reshape(-1).view(np.uint8), name=name, dtype="f4", shape=array.shape)
    emulation.run(launch)
