"""The same rungs through the same calls, on a real GPU: `pytest -m gpu`."""

from __future__ import annotations

import pytest
from rungs import RUNGS

import labkit as lk
from labkit.kernels import gpu
from labkit.problems.attention import shape as attention_shape

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu.available(), reason="there is no NVIDIA GPU here"),
]


@pytest.mark.parametrize("problem, rung, language", RUNGS)
def test_solution_passes_on_the_gpu(problem, rung, language):
    """At its large shapes; at the small ones it is checked on the emulator everywhere."""
    result = lk.problem(problem)[rung, language].solution.check(on="cuda")
    assert result.passed, result
    assert result.runs


def launched(rung, dims):
    """Outputs, inputs, and by how many bytes PyTorch's allocations grew at most while the kernels ran."""
    import torch

    p = rung.problem
    inputs, outputs = p.make_inputs(dims, device="cuda"), p.make_outputs(dims, device="cuda")
    kernel = rung.kernel
    kernel.launch(tuple(outputs.values()), *inputs.values(), **p.options_of(dims))  # loads and compiles
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kernel.launch(tuple(outputs.values()), *inputs.values(), **p.options_of(dims))
    torch.cuda.synchronize()
    return outputs, inputs, torch.cuda.max_memory_allocated() - before


@pytest.mark.parametrize("rung, quadratic", [("naive", 1), ("tiled", 1), ("online_softmax", 0), ("flash", 0)])
def test_memory_of_attention_grows_as_counted(rung, quadratic):
    ours = lk.problem("attention")[rung, "cuda"].solution
    for N in (1024, 2048, 4096):
        *_, grown = launched(ours, ours.problem.dims_of(attention_shape(H=2, N=N, D=64)))
        assert grown == quadratic * 2 * N * N * 4


@pytest.mark.parametrize(
    "problem, rung, rtol, atol",
    [
        ("attention", "online_softmax", 1e-4, 1e-5),
        ("attention", "flash", 1e-4, 1e-5),
        ("attention", "flash_double_buffered", 1e-4, 1e-5),
        ("attention_f16", "flash_mma", 4e-3, 1e-3),
        ("attention_bf16", "flash_mma", 3e-2, 8e-3),
    ],
)
def test_a_hundred_thousand_tokens(problem, rung, rtol, atol):
    """Scores would take 40 GB for this one head; float64 has no room for them, so the reference is PyTorch's."""
    import torch

    ours = lk.problem(problem)[rung, "cuda"].solution
    dims = ours.problem.dims_of(attention_shape(N=100_000, D=128, causal=1))
    outputs, inputs, grown = launched(ours, dims)
    assert grown == 0
    wanted = ours.problem.baseline(*inputs.values(), causal=1)
    torch.testing.assert_close(outputs["O"], wanted[0], rtol=rtol, atol=atol)
    torch.testing.assert_close(outputs["L"], wanted[1], rtol=1e-4, atol=1e-3)


def test_a_stray_write_on_the_gpu_is_found(tmp_path):
    """The emulator finds it first at the small shapes; here only the large shape strays."""
    text = lk.problem("gemm")["coalesced", "cuda"].solution.source
    stray = "        if (M > 1000 && row + col == 0) C[-1] = acc;\n"
    edited = text.replace("        C[(size_t)row", stray + "        C[(size_t)row")
    assert edited != text
    file = tmp_path / "coalesced.cu"
    file.write_text(edited)
    result = lk.problem("gemm")["coalesced"].load(file).check()
    assert {run.partition("(")[2] for run in result.runs} == {"emulator)", "cuda)"}
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


# ---------------------------------------------------------------------------- Nsight Compute and torch's profiler

SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
AGREED = (
    *(SECTORS.format(kind) for kind in ("ld", "st")),
    *(f"l1tex__data_{what}_mem_shared_op_{kind}.sum" for what in ("pipe_lsu_wavefronts", "bank_conflicts_pipe_lsu")
      for kind in ("ld", "st")),
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
)  # fmt: skip


def by_line(profile):
    """{line: {metric: count}} of what both ncu and the emulator say per line."""
    found = {}
    for counted in profile.line_counts:
        kept = {name: counted[name] for name in AGREED if counted.get(name)}
        if kept:
            found[counted["line"]] = kept
    return found


@pytest.mark.parametrize("rung, language", [("naive", "numba"), ("smem_tile", "numba"), ("register_2d", "cuda")])
def test_lines_measured_by_ncu_are_the_emulators(rung, language, tmp_path):
    from labkit.profiling import profile_emulated

    kernel = lk.problem("gemm")[rung, language].solution
    shape = {"M": 128, "N": 128, "K": 64}
    measured = kernel.profile(metrics="source", keep=tmp_path, **shape)
    assert measured.origin == "measured", measured.notes
    assert by_line(measured) == by_line(profile_emulated(**kernel.launches(shape)))
    if rung == "naive":  # the others end before samples are sure to be taken
        assert sum(line.get("smsp__pcsamp_sample_count", 0) for line in measured.line_counts) > 0
    shown = {text.strip() for _, text, counts in lk.plots.source(measured).rows if any(counts)}
    assert shown and shown <= {line.strip() for line in kernel.source.splitlines()}
    assert measured.report.startswith(str(tmp_path))


USER = '''\
import torch
from numba import cuda

import nvtx


@cuda.jit
def saxpy(y, x, a):
    i = cuda.grid(1)
    if i < y.shape[0]:
        y[i] = a * x[i] + y[i]


x, y = torch.ones(4096, device="cuda"), torch.zeros(4096, device="cuda")
for k in range(3):
    with nvtx.annotate(f"step {k}", domain="mine"):
        saxpy[32, 128](y, x, 2.0)
print(float((x * y).sum()))
'''


def test_a_program_under_ncu(tmp_path, capfd):
    (tmp_path / "user.py").write_text(USER)
    found = lk.profile_script(tmp_path / "user.py", keep=tmp_path)
    assert "24576.0" in capfd.readouterr().out
    assert found.origin == "measured", found.notes
    kernels = [k["kernel"] for k in found.launches]
    assert kernels.count("saxpy") == 3 and any("Mul" in k for k in kernels) and any("reduce" in k for k in kernels)
    assert [k["ranges"] for k in found.launches if k["kernel"] == "saxpy"] == [(f"mine@step {k}",) for k in range(3)]
    assert found["saxpy"]["gpu__time_duration.sum"] > found.first["saxpy"]["gpu__time_duration.sum"] > 0
    one = lk.profile_script(
        tmp_path / "user.py", kernel="saxpy", metrics="source", range="mine@step 1", keep=tmp_path / "one.ncu-rep"
    )
    assert [k["ranges"] for k in one.launches] == [("mine@step 1",)]
    assert by_line(one["saxpy"]) == {11: {SECTORS.format("ld"): 1024, SECTORS.format("st"): 512}}
    assert (tmp_path / "one.ncu-rep").exists()
    with pytest.raises(lk.LabkitError, match="No launch fits .*; the program's kernels are .*saxpy"):
        lk.profile_script(tmp_path / "user.py", kernel="sgemm")


def test_a_trace_and_what_a_graph_saves(tmp_path):
    from pathlib import Path

    program = Path(__file__).with_name("small_kernels.py")
    eager = lk.trace_script(program, ["--rounds", "1"], output=tmp_path / "eager")
    graph = lk.trace_script(program, ["--rounds", "1", "--graph"], output=tmp_path / "graph")
    inside = [[k for k in t.kernels if "rounds" in k.ranges and k.name == "increment"] for t in (eager, graph)]
    assert [len(own) for own in inside] == [200, 200] and all(k.graph for k in inside[1])
    spans = [own[-1].end - own[0].start for own in inside]
    saved = sum(g.time for g in eager.gaps if g.cause == "launch" and "rounds" in g.before.ranges)
    assert saved == pytest.approx(spans[0] - spans[1], rel=0.15)
    assert Path(eager.json).exists()
