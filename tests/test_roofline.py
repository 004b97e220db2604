"""Rooflines: ridges, places of recorded kernels under the roofs, and what the picture says of its origins."""

from __future__ import annotations

import math

import pytest

import labkit as lk
from labkit.errors import LabkitError
from labkit.models.roofline import Roofs, point, roofs
from labkit.plots import roofline
from labkit.profiling import Profile

GEMM = lk.problem("gemm")
BIG = {"M": 4096, "N": 4096, "K": 4096}
PLAIN = Roofs("Test", "measured", {"DRAM": 1000.0, "L2": 4000.0}, {"FP32": 10.0, "tensor": 100.0})


def test_ridges_are_where_both_limits_meet():
    assert PLAIN.ridges == {
        ("FP32", "DRAM"): 10, ("FP32", "L2"): 2.5, ("tensor", "DRAM"): 100, ("tensor", "L2"): 25,
    }  # fmt: skip
    for (unit, level), at in PLAIN.ridges.items():
        assert PLAIN.bound(level, at, unit) == PLAIN.compute[unit]
        assert PLAIN.bound(level, at / 2, unit) == PLAIN.compute[unit] / 2
        assert PLAIN.bound(level, at * 2, unit) == PLAIN.compute[unit]
    assert "FP32 over DRAM 10" in repr(PLAIN) and "(measured)" in repr(PLAIN)


def test_measured_ceilings_or_the_datasheet_s():
    measured, sheet = roofs("NVIDIA H200"), roofs("H200", datasheet=True)
    assert (measured.origin, sheet.origin, sheet.machine) == ("measured", "datasheet", "NVIDIA H200")
    assert all(measured.memory[level] < sheet.memory[level] for level in sheet.memory)
    assert "L2" in measured.memory and "L2" not in sheet.memory  # no datasheet has it
    assert roofs("H200") == measured
    assert sheet.ridges["tensor", "DRAM"] == pytest.approx(206, abs=1)
    with pytest.raises(LabkitError, match="datasheet=True"):
        roofs("Tesla T4")


@pytest.mark.parametrize("rung", ["naive", "smem_tile", "warp_tile"])
def test_no_recorded_kernel_breaks_through_a_roof(rung):
    above = roofs("NVIDIA H200")
    placed = point(GEMM[rung, "cuda"].recorded())
    assert placed.counts == placed.time == "recorded"
    assert placed.flops == pytest.approx(2 * 4096**3, rel=0.01)
    for level, intensity in placed.intensity.items():
        assert placed.tflops < above.bound(level, intensity)
        assert placed.flops / intensity == pytest.approx(placed.bytes[level])
    assert ("shared" in placed.bytes) == (rung != "naive")


def test_emulated_counts_take_a_time_of_the_same_shape():
    profile = GEMM["naive"].solution.profile(M=32, N=32, K=32)
    with pytest.raises(LabkitError, match="emulated profile of gemm/naive .* has no time"):
        point(profile)
    timing = GEMM["naive"].time(**BIG)
    with pytest.raises(LabkitError, match="profiled at M=32 N=32 K=32 and timed at M=4096"):
        point(profile, timing)
    placed = point(Profile("emulated", "gemm/naive", BIG, profile.metrics), timing)
    assert (placed.counts, placed.time, placed.ms) == ("emulated", "recorded", timing.median_ms)


def test_kernels_without_arithmetic_have_no_place():
    with pytest.raises(LabkitError, match="no floating-point operations"):
        point(Profile("recorded", "copy", {}, {"gpu__time_duration.sum": 1e6}))


def test_the_ladder_is_a_path_across_the_roof():
    points = [point(GEMM[rung, "cuda"].recorded()) for rung in ("naive", "smem_tile", "warp_tile")]
    figure = roofline(points, roofs("NVIDIA H200"))
    paths = {trace.name: trace for trace in figure.data if trace.mode == "lines+markers"}
    assert list(paths["DRAM"].x) == [p.intensity["DRAM"] for p in points]
    assert list(paths["DRAM"].y) == [p.tflops for p in points]
    assert len(paths["shared"].x) == 2  # naive uses none
    texts = [a.text for a in figure.layout.annotations]
    assert texts == ["FP32, 64.5 TFLOP/s", "tensor, 800 TFLOP/s"] + [f"{r} (CUDA C++)" for r in
                                                                   ("naive", "smem_tile", "warp_tile")]  # fmt: skip
    title = figure.layout.title
    assert title.text == "Roofline of the NVIDIA H200, measured ceilings"
    assert "M=4096 N=4096 K=4096; time recorded, bytes recorded" in title.subtitle.text
    alone = roofline(points, roofs("NVIDIA H200"), path=False)
    assert not [trace for trace in alone.data if trace.mode == "lines+markers"]


def test_labels_do_not_cover_each_other():
    points = [point(GEMM[rung, "cuda"].recorded()) for rung in ("vectorized", "double_buffered", "fixed_tile")]
    figure = roofline(points, roofs("NVIDIA H200"))
    heights = sorted(a.y for a in figure.layout.annotations if a.xref == "paper")
    assert min(b - a for a, b in zip(heights, heights[1:], strict=False)) > 0.1
    assert heights[0] == pytest.approx(math.log10(points[0].tflops))


def test_roofs_alone_and_roofs_of_another_machine():
    figure = roofline([], PLAIN)
    diamonds = [x for trace in figure.data if trace.mode == "markers+text" for x in trace.x]
    assert sorted(diamonds) == sorted(PLAIN.ridges.values())
    with pytest.raises(LabkitError, match="roofs are of Test, and kernels were timed on NVIDIA H200"):
        roofline([point(GEMM["naive"].recorded())], PLAIN)


def test_every_group_of_modeled_times_is_drawn():
    groups = {f"group {n:02}": [(f"kernel {n}", 1.0 + n, 2.0 + n)] for n in range(12)}
    figure = lk.plots.model(groups)
    drawn = {trace.name: tuple(trace.x) for trace in figure.data if trace.mode == "markers"}
    assert drawn == {name: (points[0][1],) for name, points in groups.items()}
