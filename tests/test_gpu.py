"""The same rungs through the same calls, on a real GPU: `pytest -m gpu`."""

from __future__ import annotations

import pytest

import labkit as lk
from labkit import problems
from labkit.kernels import gpu

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu.available(), reason="there is no NVIDIA GPU here"),
]

RUNGS = [
    pytest.param(problem, step.name, language, id=f"{problem}-{step.name}-{language}")
    for problem in problems.names()
    for step in problems.get(problem).ladder
    for language in step.languages
]


@pytest.mark.parametrize("problem, rung, language", RUNGS)
def test_solution_passes_on_the_gpu(problem, rung, language):
    result = lk.problem(problem)[rung, language].solution.check()
    assert result.passed, result
    assert any("cuda" in run for run in result.runs)


def test_a_stray_write_on_the_gpu_is_found(tmp_path):
    """The emulator finds it first at the small shapes; here only the large shape strays."""
    text = lk.problem("gemm")["coalesced", "cuda"].solution.source
    stray = "        if (M > 1000 && row + col == 0) C[-1] = acc;\n"
    edited = text.replace("        C[(size_t)row", stray + "        C[(size_t)row")
    assert edited != text
    file = tmp_path / "coalesced.cu"
    file.write_text(edited)
    result = lk.problem("gemm")["coalesced"].load(file).check()
    assert [failure.kind for failure in result.failures] == ["guard"]
    assert "before its beginning" in result.failures[0].message


def test_timing_is_measured_and_compared():
    timing = lk.problem("gemm")["coalesced", "cuda"].solution.time(M=1024, N=1024, K=1024)
    assert timing.origin == "measured"
    assert len(timing.samples_ms) >= 10 and len(timing.baseline_ms) == len(timing.samples_ms)
    assert 0 < timing.spread_ms < timing.median_ms
    assert timing.ratio < 1, "a kernel without tiles cannot outrun cuBLAS"


def test_a_warm_cache_is_faster_and_says_so():
    rung = lk.problem("gemm")["coalesced", "cuda"].solution
    shape = {"M": 4, "N": 2048, "K": 2048}  # its time is that of reading B, 16 MB
    cold, warm = rung.time(**shape), rung.time(cold=False, **shape)
    assert warm.median_ms < cold.median_ms
    assert "warm L2" in repr(warm) and "warm" not in repr(cold)


def test_timing_refuses_a_wrong_result(tmp_path):
    text = lk.problem("gemm")["coalesced", "cuda"].solution.source
    file = tmp_path / "coalesced.cu"
    file.write_text(text.replace("k < K;", "k < K - 1;"))
    with pytest.raises(lk.LabkitError, match="is wrong at"):
        lk.problem("gemm")["coalesced"].load(file).time(M=512, N=512, K=512)
