"""The emulator's counters against Nsight Compute's readings of the same kernels, recorded on an H200."""

from __future__ import annotations

import pytest

import labkit as lk
from labkit.profiling import fidelity

NAMES = ("gemm", "corpus")
CASES = [pytest.param(name, case, id=f"{name}: {case.name}") for name in NAMES for case in fidelity.cases(name)]

# Counters that the lessons of the first rungs stand on: these must not be mere bounds.
LESSONS = [
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
]


@pytest.mark.parametrize("name, case", CASES)
def test_what_is_called_exact_equals_ncu(name, case):
    readings = fidelity.readings(case, fidelity.entries(name)[case.name])
    wrong = [r for r in readings if r.claim == "exact" and not r.equal]
    assert not wrong
    if any(case.name.startswith(f"gemm/{rung} ") for rung in ("naive", "coalesced", "smem_tile")):
        exact = {r.metric for r in readings if r.claim == "exact"}
        assert exact.issuperset(LESSONS)


@pytest.mark.parametrize("name", NAMES)
def test_every_case_was_recorded(name):
    assert set(fidelity.entries(name)) == {case.name for case in fidelity.cases(name)}


def test_another_kernel_is_not_compared_with_the_recorded_one():
    case = fidelity.cases("gemm")[0]
    with pytest.raises(lk.LabkitError, match="has changed since its counters were recorded"):
        fidelity.readings(case, {"fingerprint": "0" * 16, "readings": {}})


def test_a_reading_below_the_count_is_never_noise():
    def reading(ncu):
        return fidelity.Reading("k", "l1tex__data_x", (ncu,), 1000.0, "exact", noise=20.0)

    assert reading(1000).equal and reading(1019).equal
    assert not reading(999).equal and not reading(1021).equal
