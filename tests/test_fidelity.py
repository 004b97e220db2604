"""The emulator's counters against Nsight Compute's readings of the same kernels, recorded on an H200."""

from __future__ import annotations

import pytest

import labkit as lk
from labkit.profiling import fidelity

ENTRIES = [
    pytest.param(problem, entry, id=f"{problem}-{entry['rung']}-{entry['language']}-{entry['shape']}")
    for problem in ("gemm",)
    for entry in fidelity.entries(problem)
]

# Counters that the lessons of the first rungs stand on: these must not be mere bounds.
LESSONS = [
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
]


@pytest.mark.parametrize("problem, entry", ENTRIES)
def test_what_is_called_exact_equals_ncu(problem, entry):
    readings = fidelity.readings(lk.problem(problem), entry)
    wrong = [r for r in readings if r.claim == "exact" and not r.equal]
    assert not wrong
    if entry["rung"] in ("naive", "coalesced", "smem_tile"):
        exact = {r.metric for r in readings if r.claim == "exact"}
        assert exact.issuperset(LESSONS)


def test_every_solution_was_recorded():
    ladder = lk.problem("gemm")
    recorded = {(e["rung"], e["language"]) for e in fidelity.entries("gemm")}
    assert recorded == {(rung.step.name, rung.language) for rung in fidelity.solutions(ladder)}


def test_another_kernel_is_not_compared_with_the_recorded_one():
    entry = dict(fidelity.entries("gemm")[0], fingerprint="0" * 16)
    with pytest.raises(lk.LabkitError, match="has changed since its counters were recorded"):
        fidelity.readings(lk.problem("gemm"), entry)


def test_a_reading_below_the_count_is_never_noise():
    def reading(ncu):
        return fidelity.Reading("k", {}, "l1tex__data_x", (ncu,), 1000.0, "exact", noise=20.0)

    assert reading(1000).equal and reading(1019).equal
    assert not reading(999).equal and not reading(1021).equal
