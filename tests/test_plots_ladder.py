"""The picture of a ladder's speeds: bars, whiskers, lines and what it says of their origin."""

from __future__ import annotations

import dataclasses

import pytest

from labkit.errors import LabkitError
from labkit.plots import ladder
from labkit.timing import Timing

SHAPE = {"M": 100, "N": 100, "K": 50_000}  # 1e9 FLOP: 1 ms is 1 TFLOP/s


def timing(label, *samples, baseline=(0.05, 0.05, 0.1), **more):
    plain = {"machine": "NVIDIA Test", "date": "2026-01-02", "origin": "recorded", **more}
    return Timing(label, SHAPE, samples, 10**9, 1, baseline_ms=baseline, **plain)


BOTH = [
    timing("gemm/naive (solution)", 1.0, 1.0, 1.0, 1.0),
    timing("gemm/naive (CUDA C++) (solution)", 0.5, 0.5, 0.4, 0.625),
    timing("gemm/top (CUDA C++)", 0.1),
]


def test_bars_per_language_with_whiskers():
    figure = ladder(BOTH)
    numba, cuda = figure.data
    assert (numba.name, list(numba.x), list(numba.y)) == ("numba", ["naive"], [1.0])
    assert (cuda.name, list(cuda.x), list(cuda.y)) == ("CUDA C++", ["naive", "top"], [2.0, 10.0])
    assert list(numba.error_y.array) == [0.0]
    # quartiles of 0.4, 0.5, 0.5, 0.625 ms: 0.425 and 0.59375
    assert cuda.error_y.array[0] == pytest.approx(1 / 0.425 - 2)
    assert cuda.error_y.arrayminus[0] == pytest.approx(2 - 1 / 0.59375)
    assert list(figure.layout.xaxis.categoryarray) == ["naive", "top"]
    assert cuda.customdata[1] == [pytest.approx(0.1), "recorded"]


def test_lines_and_origin_are_said(monkeypatch):
    monkeypatch.setattr("labkit.recorded.ceilings", lambda machine: {"fp32_tflops": 64.0, "copy_gbps": 1.0})
    figure = ladder(BOTH)
    assert [a.text for a in figure.layout.annotations] == ["PyTorch, 20", "measured ceiling of FP32, 64"]
    assert [shape.y0 for shape in figure.layout.shapes] == [20, 64]
    assert figure.layout.title.text == "gemm at M=100 N=100 K=50000"
    assert "recorded on NVIDIA Test, 2026-01-02; cold L2" in figure.layout.title.subtitle.text
    assert "measured on" in ladder([timing("gemm/naive", 1.0, origin="measured")]).layout.title.subtitle.text


def test_without_baseline_or_ceiling_there_are_no_lines():
    figure = ladder([timing("gemm/naive", 1.0, baseline=())])
    assert not figure.layout.shapes and not figure.layout.annotations


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shape": {**SHAPE, "K": 5}}, "several shapes; these timings have M=100 N=100 K=5, M=100 N=100 K=50000"),
        ({"machine": "NVIDIA Other"}, "several machines"),
        ({"cold": False}, "several states of the L2; these timings have cold L2, warm L2"),
    ],
)
def test_what_cannot_be_compared_is_not_drawn(change, words):
    with pytest.raises(LabkitError, match=words):
        ladder([BOTH[0], dataclasses.replace(BOTH[1], **change)])
    with pytest.raises(LabkitError, match="no timings"):
        ladder([])
