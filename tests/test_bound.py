"""The least time of a problem: which ceiling binds, and that no recorded time is below it."""

from __future__ import annotations

import dataclasses
import json

import pytest

import labkit as lk
from labkit import recorded
from labkit.errors import LabkitError
from labkit.models.bound import bound, least
from labkit.timing import Timing

GEMM = lk.problem("gemm").problem
CUBE = {"M": 4096, "N": 4096, "K": 4096}


def test_the_longer_of_the_two_binds():
    rates = {"fp32_tflops": 10.0, "copy_gbps": 1000.0}  # 1e10 operations or 1e9 bytes are a millisecond
    arithmetic, memory = least(2e10, 1e9, rates, "Test"), least(1e10, 3e9, rates, "Test")
    assert (arithmetic.ms, arithmetic.binds) == (2.0, "FP32")
    assert (memory.ms, memory.binds) == (3.0, "copy bandwidth")
    assert "at best 3 ms, bound by copy bandwidth (FP32 1 ms" in repr(memory)


def test_of_a_problem_and_a_shape():
    rates = recorded.ceilings("NVIDIA H200")
    large, thin = bound(GEMM, CUBE), bound(GEMM, {"M": 4096, "N": 1, "K": 4096})
    assert (large.binds, large.origin) == ("FP32", "measured")
    assert large.ms == pytest.approx(2 * 4096**3 / (rates["fp32_tflops"] * 1e9))
    assert thin.binds == "read bandwidth"
    sheet = bound(GEMM, CUBE, "Tesla T4")
    assert sheet.origin == "datasheet" and sheet.ms == pytest.approx(2 * 4096**3 / 8.1e9)
    assert bound(dataclasses.replace(GEMM, math="bfloat16"), CUBE).unit == "tensor"
    with pytest.raises(LabkitError, match="products of float64"):
        bound(dataclasses.replace(GEMM, math="float64"), CUBE)
    with pytest.raises(LabkitError, match="K is missing"):
        bound(GEMM, {"M": 1, "N": 1})


def test_no_recorded_time_is_below_its_bound():
    (file,) = recorded.files("bench", "gemm")
    timings = [Timing.from_dict(entry) for entry in json.loads(file.read_text())["timings"]]
    assert timings
    for timing in timings:
        assert timing.bound.ms < min(timing.samples_ms), timing.label
        fraction, name = timing.of_ceiling
        assert fraction == pytest.approx(timing.bound.ms / timing.median_ms) and name == timing.bound.binds


def test_recorded_times_are_to_be_had_beside_a_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr("labkit.kernels.gpu.available", lambda: True)
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))  # where no kernel was written yet
    (tmp_path / "labs").mkdir()
    timing = lk.problem("gemm")["naive"].time(recorded=True, **CUBE)
    assert timing.origin == "recorded" and "solution" in timing.label


def test_it_stands_beside_timings_and_ladders():
    assert "of the FP32 ceiling (at best 2.13 ms)" in repr(lk.problem("gemm")["naive"].time(**CUBE))
    assert "at best 2.13 ms, bound by FP32" in lk.problem("gemm")._repr_html_()
