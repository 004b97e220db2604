"""Predictions are checked against values computed on the spot; the emulator's counters agree with them."""

from __future__ import annotations

import pytest

import labkit as lk

LOADS = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"


def test_right_wrong_and_open_answers():
    key = "gemm/naive/sectors_per_request"
    assert lk.answer(key, 8.5).right is True
    assert lk.answer(key, 32).right is False
    assert "too high" in lk.answer(key, 32).verdict
    assert lk.answer(key, ...).right is None
    assert "not answered" in repr(lk.answer(key, None))
    assert "8.5" not in repr(lk.answer(key, 9.5)), "a wrong answer must not give the right one away"


@pytest.mark.parametrize("value", ["8.5", True, [8.5]])
def test_an_answer_that_is_no_number_gets_a_sentence(value):
    with pytest.raises(lk.LabkitError, match="is a number"):
        lk.answer("gemm/flops", value)


def test_unknown_question_names_the_nearest():
    with pytest.raises(lk.LabkitError, match="did you mean gemm/naive/sectors_per_request"):
        lk.answer("gemm/naive/sector_per_request", 1)
    with pytest.raises(lk.LabkitError, match="No problem is called 'gem'"):
        lk.answer("gem/flops", 1)


@pytest.mark.parametrize("rung", ["naive", "coalesced"])
def test_the_arithmetic_agrees_with_the_emulator(rung):
    profile = lk.problem("gemm")[rung].solution.profile(M=256, N=256, K=32)
    assert lk.answer(f"gemm/{rung}/sectors_per_request", profile[LOADS]).right


def test_tile_ratio_agrees_with_the_emulator():
    gemm, shape = lk.problem("gemm"), {"M": 32, "N": 32, "K": 256}
    direct = gemm["coalesced"].solution.profile(**shape)[REQUESTS]
    tiled = gemm["smem_tile"].solution.profile(**shape)[REQUESTS]
    assert lk.answer("gemm/smem_tile/global_load_ratio", direct / tiled).right


def test_a_choice_is_a_word_and_a_wrong_one_gives_nothing_away():
    key = "detective/third/binds"
    assert lk.answer(key, "latency").right is True and lk.answer(key, " Latency ").right is True
    wrong = lk.answer(key, "DRAM")
    assert wrong.right is False and "latency" not in wrong.verdict
    assert lk.answer(key, ...).right is None
    with pytest.raises(lk.LabkitError, match="a word in quotes"):
        lk.answer(key, 3)
    with pytest.raises(lk.LabkitError, match="did you mean detective/third/binds"):
        lk.answer("detective/third/bind", "latency")


def test_numbers_are_shown_short():
    shown = {5.826083097: "5.826", 11931.81818: "11,931.8", 1575000: "1,575,000", 1 / 1025: "0.0009756",
             15020875776: "15,020,875,776", float("inf"): "inf"}  # fmt: skip
    for value, text in shown.items():
        assert lk.answer("latency/bytes_per_thread", value).verdict.startswith(f"{text} bytes per thread is ")
