"""The emulator's counters against Nsight Compute's readings of the same kernels, recorded on an H200."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import labkit as lk
from labkit.profiling import fidelity

DOCS = Path(__file__).parents[1] / "docs"
_spec = importlib.util.spec_from_file_location("docs_fidelity", DOCS / "fidelity.py")
page = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(page)
KEPT = page.from_text(page.KEPT.read_text())

NAMES = fidelity.names()
CASES = [
    pytest.param(name, case, id=f"{name}: {case.name}") for name in NAMES for case in fidelity.recorded_cases(name)
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


@pytest.mark.parametrize("name, case", CASES)
def test_claims_hold_and_the_table_says_how_well(name, case):
    entry = fidelity.entries(name)[case.name]
    readings = fidelity.readings(case, entry)
    assert not [r for r in readings if not r.kept]
    if any(case.name.startswith(f"gemm/{rung} ") for rung in ("naive", "coalesced", "smem_tile")):
        exact = {r.metric for r in readings if r.claim == "exact"}
        assert exact.issuperset(LESSONS)
    found, kept = page.marks(readings), KEPT["cases"].get(name, {}).get(case.name, {})
    if fidelity.text_of(case) != KEPT["texts"].get(name, {}).get(case.name):
        # The table is of other PTX: NVRTC does not make the same of the same source each time, nor numba with another
        # Python. Shared loads are fused otherwise then; global accesses stay what they are.
        found = {m: mark for m, mark in found.items() if "mem_global" in m}
    worse = {m: (mark, kept.get(m)) for m, mark in found.items() if "EnfX".index(mark) > "EnfX".find(kept.get(m, ""))}
    assert not worse, "run docs/fidelity.py"


def test_the_table_does_not_get_worse():
    """The floors only rise, whatever docs/fidelity.py finds; to lower one is an edit that somebody has to defend."""
    now = page.floors(page.totals(KEPT["cases"]))
    worse = {
        f"{metric}: {what}": (now.get(metric, {}).get(what, 0), least)
        for metric, floor in KEPT["floors"].items()
        for what, least in floor.items()
        if now.get(metric, {}).get(what, 0) < least
    }
    assert not worse


def test_the_page_is_what_the_table_says():
    text = page.PAGE.read_text()
    assert page.page(text, KEPT) == text, "run docs/fidelity.py --page"


def test_a_worse_table_is_noticed():
    kept = page.from_text(page.to_text(KEPT))
    assert kept == KEPT
    metric = LESSONS[1]
    case = next(c for c, found in kept["cases"]["corpus"].items() if found.get(metric) == "E")
    kept["cases"]["corpus"][case][metric] = "n"
    now, floor = page.floors(page.totals(kept["cases"]))[metric], KEPT["floors"][metric]
    assert now["exact"] < floor["exact"] and now["near"] == floor["near"]
    assert page.page(page.PAGE.read_text(), kept) != page.PAGE.read_text()


def test_the_table_has_all_that_was_recorded():
    cases = {name: {case.name for case in fidelity.recorded_cases(name)} for name in NAMES}
    assert cases == {name: set(launches) for name, launches in KEPT["cases"].items()}, "run docs/fidelity.py"
    assert cases.keys() >= {"gemm", "copy", "softmax", *fidelity.CORPORA} and all(cases.values())


@pytest.mark.parametrize("name", fidelity.CORPORA)
def test_every_launch_of_a_corpus_was_recorded(name):
    assert set(fidelity.entries(name)) == {case.name for case in fidelity.cases(name)}


def test_what_was_counted_before_the_readings_stays_as_it_was():
    """On launches that the emulator had never seen: the counts and claims that stand in the history."""
    readings = fidelity.frozen("held_out")
    exact = [r for r in readings if r.claim == "exact" and r.seen]
    wrong = {r.case for r in exact if not r.equal}
    assert (len({r.case for r in readings}), len(exact)) == (29, 306)
    assert wrong == {"compact", "compact_plainly"}  # places that come from the order of atomics
    assert all(len(set(r.ncu)) > 1 for r in exact if not r.equal), "the GPU itself does not agree with itself"


def test_another_kernel_is_not_compared_with_the_recorded_one():
    case = fidelity.cases("gemm")[0]
    with pytest.raises(lk.LabkitError, match="has changed since its counters were recorded"):
        fidelity.readings(case, {"fingerprint": "0" * 16, "readings": {}})


def test_a_reading_below_the_count_is_never_noise():
    def reading(ncu):
        return fidelity.Reading("k", "l1tex__data_x", (ncu,), 1000.0, "exact", noise=20.0)

    assert reading(1000).equal and reading(1019).equal
    assert not reading(999).equal and not reading(1021).equal


def test_a_modeled_count_keeps_what_is_promised_of_it():
    def reading(ncu, claim="modeled"):
        return fidelity.Reading("k", "dram__bytes_read.sum", (ncu,), 100_000.0, claim, slack=2048.0)

    assert reading(102_000).kept and reading(98_000).kept and reading(104_000, "bound").kept
    assert not reading(102_100).kept and not reading(100_001, "exact").kept
    assert [reading(n, c).mark for n, c in ((100_000, "exact"), (1, "exact"), (104_000, "bound"), (1, "bound"))] == [
        "E", "X", "n", "f",
    ]  # fmt: skip
