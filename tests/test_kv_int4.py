"""The 4-bit cache byte by byte, what rounding to it may do, and what its kernels rely on."""

from __future__ import annotations

import json
import math
import re
import struct
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import labkit as lk
from labkit import reproduce
from labkit.check import tolerance
from labkit.ladder import Rung
from labkit.problems import _kv_int4 as kv
from labkit.problems import int4_gqa

GROUPS = pytest.mark.parametrize("groups", [1, 4])
LAYOUTS = json.loads((Path(lk.__file__).parent / "emulator" / "wmma_layouts.json").read_text())["layouts"]


def _rows(seed: int, exponent: int = 0, kind: str = "normal", count: int = 8) -> torch.Tensor:
    x = torch.randn((count, 128), generator=torch.Generator().manual_seed(seed)) * 2.0**exponent
    if kind == "outlier":
        x[:, seed % 128] *= 100
    elif kind == "constant":
        x[:] = x[:, :1]
    elif kind == "far":
        x += 500 * 2.0**exponent
    elif kind == "one":
        x[:] = 0
        x[:, seed % 128] = 2.0**exponent
    return x


# --- bytes ---------------------------------------------------------------------------------------------


def test_a_row_byte_by_byte():
    row = kv.quantize(torch.arange(128).remainder(16) - 1.0)
    header = struct.pack("<ee", 1.0, -1.0)
    assert bytes(row.tolist()) == header + bytes((2 * i % 16) | (2 * i + 1) % 16 << 4 for i in range(64))


def test_a_row_of_4_groups_byte_by_byte():
    group = torch.arange(128) // 32
    row = kv.quantize(torch.arange(128).remainder(16) * 2.0**group + group, groups=4)
    header = b"".join(struct.pack("<ee", 2.0**g, g) for g in range(4))
    assert bytes(row.tolist()) == header + bytes((2 * i % 16) | (2 * i + 1) % 16 << 4 for i in range(64))


@GROUPS
def test_the_reader_against_plain_python(groups):
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(0, 256, (5, kv.row_bytes(groups)), generator=generator, dtype=torch.uint8)
    rows[:, 1 : 4 * groups : 2] &= 0x3B  # no infinite scale or shift
    want = []
    for row in rows.tolist():
        packed = bytes(row)
        for d in range(128):
            scale, shift = struct.unpack_from("<ee", packed, d // (128 // groups) * 4)
            want.append((packed[4 * groups + d // 2] >> 4 * (d % 2) & 15) * scale + shift)
    assert kv.dequantize(rows).flatten().tolist() == want


@GROUPS
@given(
    seed=st.integers(0, 2**31),
    exponent=st.integers(-20, 6),
    kind=st.sampled_from(["normal", "outlier", "constant", "far", "one"]),
)
def test_what_is_read_is_near_what_was_written(groups, seed, exponent, kind):
    x = _rows(seed, exponent, kind)
    error = (kv.dequantize(kv.quantize(x, groups)) - x.double()).abs()
    assert (error <= kv.bound(x, groups)).all(), float((error / kv.bound(x, groups)).max())


@GROUPS
def test_the_bound_is_not_loose(groups):
    x = _rows(7, count=256)
    error = (kv.dequantize(kv.quantize(x, groups)) - x.double()).abs()
    assert (error / kv.bound(x, groups)).max() > 0.9


@GROUPS
def test_rows_that_were_read_are_written_as_they_were(groups):
    rows = kv.quantize(_rows(3, count=64), groups)
    assert torch.equal(kv.quantize(kv.dequantize(rows), groups), rows)


@GROUPS
def test_constant_rows_are_their_shift(groups):
    x = torch.full((1, 128), 0.7)
    scale, shift = kv.parameters(kv.quantize(x, groups))
    assert (scale == 0).all() and (shift == 0.7).logical_or(shift == torch.tensor(0.7).half()).all()
    assert (kv.quants(kv.quantize(x, groups)) == 0).all()


def test_an_outlier_costs_its_own_group_alone():
    x = _rows(11, kind="outlier", count=64)
    others = torch.ones(128, dtype=torch.bool)
    others[11 // 32 * 32 : 11 // 32 * 32 + 32] = False
    error = {g: (kv.dequantize(kv.quantize(x, g)) - x)[:, others].square().mean().sqrt().item() for g in (1, 4)}
    assert error[4] < error[1] / 10


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: kv.row_bytes(2), "1 or 4 groups, not 2"),
        (lambda: kv.quantize(torch.zeros(3, 64)), "holds 128 numbers, not 64"),
        (lambda: kv.quantize(torch.full((1, 128), math.inf)), "at most 65504"),
        (lambda: kv.quantize(torch.full((1, 128), math.nan)), "at most 65504"),
        (lambda: kv.dequantize(torch.zeros((1, 72), dtype=torch.uint8)), "1 or 4 groups, not 2"),
        (lambda: kv.dequantize(torch.zeros((1, 70), dtype=torch.uint8)), "68 or 80 bytes, not 70"),
    ],
)
def test_bad_rows(call, says):
    with pytest.raises(lk.LabkitError, match=says):
        call()


# --- the problems --------------------------------------------------------------------------------------


def test_lengths_differ_within_a_batch_or_all_are_full():
    lengths = kv.random_lengths(torch.empty(9, 301))
    assert lengths[0] == 301 and lengths[-1] == 1 and len(set(lengths.tolist())) == 9
    assert ((lengths >= 1) & (lengths <= 301)).all()
    assert (kv.random_lengths(torch.empty(9, 64)) == 64).all()


def test_the_reference_against_plain_loops():
    problem = lk.problem("int4_gqa").problem
    inputs = problem.make_inputs(problem.dims_of({"B": 2, "T": 5, "HQ": 3}))
    Q, K, V, lengths = inputs.values()
    got = problem.reference(Q.double(), K, V, lengths)
    for b in range(2):
        n = int(lengths[b])
        k, v = kv.dequantize(K[b, :n, 0]), kv.dequantize(V[b, :n, 0])
        for h in range(3):
            s = [math.exp(float(Q[b, h].double() @ k[t]) / math.sqrt(128)) for t in range(n)]
            want = sum(s[t] * v[t] for t in range(n)) / sum(s)
            assert torch.allclose(got[b, h], want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["int4_gqa", "int4_gqa_4group", "gqa_bf16"])
def test_long_contexts_are_told_from_nothing(name):
    """The tolerance is a small part of the result, even where that is an average of thousands of tokens."""
    problem = lk.problem(name).problem
    inputs = problem.make_inputs(problem.dims_of({"B": 1, "T": 4096, "HQ": 8}))
    want, bound = tolerance(problem, inputs)
    assert (bound["O"].square().mean() / want["O"].square().mean()).sqrt() < 0.2


def test_traffic():
    problem = lk.problem("int4_gqa").problem
    shape = problem.dims_of({"B": 512, "T": 8192, "HQ": 8})
    assert problem.bytes(shape) == int4_gqa.effective_bytes(512, 8192, 68) + 4 * 512
    assert problem.flops(shape) == 4 * 512 * 8 * 8192 * 128


# --- what the kernels rely on --------------------------------------------------------------------------


def _held(name: str, columns: int, place) -> bool:
    """Whether lane 4 g + q holds, at each place e, what `place(g, q, e)` says, as (row, column)."""
    return all(
        row == [r * columns + c for r, c in (place(lane // 4, lane % 4, e) for e in range(len(row)))]
        for lane, row in enumerate(LAYOUTS[name])
    )


def test_fragments_lie_as_the_kernels_say():
    """Scores: head 2 q + e % 2, token g + 8 (e / 2). P: head g, tokens 2 q, 2 q + 1, 2 q + 8, 2 q + 9. K as opt10."""
    assert _held("c m8n32k16 f32", 32, lambda g, q, e: (2 * q + e % 2, g + e // 2 * 8))
    assert _held("a m8n32k16 bf16", 16, lambda g, q, e: (g, 2 * q + e % 2 + e // 2 * 8))
    assert _held(
        "b m8n32k16 bf16",
        32,
        lambda g, q, e: (2 * q + e % 2 + e // 4 % 2 * 8, g + e // 2 % 2 * 8 + e // 8 * 16),
    )


def _with(problem: str, rung: str, *defines: str, arch: str | None = None) -> Rung:
    ours = lk.problem(problem)[rung, "cuda"].solution
    step = replace(ours.step, defines=(*ours.step.defines, *defines), arch=arch)
    return Rung(ours.problem, step, "cuda", "solutions")


@pytest.mark.parametrize(
    "problem, rung",
    [
        ("int4_gqa", "opt07_max_from_fragment"),
        ("int4_gqa", "opt08_p_into_fragment"),
        ("int4_gqa", "opt09_swizzle_p"),
        ("int4_gqa", "opt10_pad_dequant"),
        ("int4_gqa_4group", "opt10_pad_dequant"),
        ("gqa_bf16", "cu_optimized"),
    ],
)
def test_the_fallback_where_layouts_are_not_known(problem, rung):
    result = _with(problem, rung, "KNOWN_LAYOUT=0").check(shapes=({"B": 2, "T": 77, "HQ": 5, "split_k": 1},))
    assert result.passed, result


@pytest.mark.slow
def test_layouts_are_known_on_sm_80_and_sm_90_alone():
    """Compiled for sm_86, a rung falls back by itself, and then does what it does where that is forced."""
    stores = {}
    for name, rung in {
        "sm_80": _with("int4_gqa", "opt08_p_into_fragment", arch="sm_80"),
        "sm_90": _with("int4_gqa", "opt08_p_into_fragment", arch="sm_90"),
        "sm_86": _with("int4_gqa", "opt08_p_into_fragment", arch="sm_86"),
        "forced": _with("int4_gqa", "opt08_p_into_fragment", "KNOWN_LAYOUT=0"),
    }.items():
        assert rung.check(shapes=({"B": 1, "T": 77, "HQ": 5, "split_k": 1},)).passed
        counts = rung.profile(B=1, T=64, HQ=8, split_k=1)
        stores[name] = counts["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"]
    assert stores["sm_86"] == stores["forced"] > stores["sm_80"] == stores["sm_90"]


@pytest.mark.parametrize(
    "problem, rung",
    [("int4_gqa", "opt11_direct_mma"), ("int4_gqa_4group", "opt11_direct_mma"), ("gqa_bf16", "direct_mma")],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_few_blocks_share_many_sequences(problem, rung, workers):
    """More tiles than stages for a warp, blocks that begin and end within sequences."""
    result = _with(problem, rung, f"WORKERS={workers}").check(
        shapes=({"B": 3, "T": 523, "HQ": 8}, {"B": 2, "T": 640, "HQ": 9})
    )
    assert result.passed, result


@pytest.mark.slow
@pytest.mark.parametrize(
    "problem, rung",
    [("int4_gqa", "opt11_direct_mma"), ("int4_gqa_4group", "opt11_direct_mma"), ("gqa_bf16", "direct_mma")],
)
def test_few_blocks_of_numba_share_many_sequences(problem, rung, tmp_path):
    ours = lk.problem(problem)[rung].solution
    text, found = re.subn(r"^WORKERS = \d+", "WORKERS = 2", ours.source, flags=re.M)
    assert found == 1
    file = tmp_path / f"{rung}.py"
    file.write_text(text)
    result = ours.load(file).check(shapes=({"B": 2, "T": 523, "HQ": 8},))
    assert result.passed, result


@pytest.mark.slow
def test_numba_cuts_into_more_pieces_where_scores_do_not_fit():
    """numba has 48 KiB of shared memory, which the scores of 2000 tokens do not fit."""
    for rung in ("cu_baseline", "opt10_pad_dequant"):
        result = lk.problem("int4_gqa")[rung].solution.check(shapes=({"B": 1, "T": 2000, "HQ": 8, "split_k": 1},))
        assert result.passed, result


LANGUAGES = pytest.mark.parametrize("language", ["cuda", "numba"])


def _profile(rung: str, language: str, problem: str = "int4_gqa"):
    return lk.problem(problem)[rung, language].solution.profile(B=1, T=64, HQ=8, split_k=1)


LOCAL = "smsp__sass_inst_executed_op_local_{}.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
INSTRUCTIONS = "smsp__inst_executed.sum"


def _shared(p) -> float:
    return sum(p[SHARED.format(kind)] for kind in ("ld", "st"))


@LANGUAGES
def test_what_each_rung_moves(language):
    """The causes that the document names, where the emulator models them."""
    rungs = {step.name: _profile(step.name, language) for step in int4_gqa.LADDER[2:12]}
    local = [sum(p[LOCAL.format(k)] for k in ("ld", "st")) for p in rungs.values()]
    assert local[1] > local[2] > local[3] == 0  # opt02, opt03, opt04
    assert rungs["opt08_p_into_fragment"][CONFLICTS.format("ld")] > rungs["opt09_swizzle_p"][CONFLICTS.format("ld")]
    for kind in ("ld", "st"):
        before, after = (rungs[name][CONFLICTS.format(kind)] for name in ("opt09_swizzle_p", "opt10_pad_dequant"))
        assert before > 1.8 * after


@LANGUAGES
def test_what_the_steps_7_and_8_move(language):
    """Step 8 has fewer barriers, stores and instructions, and more wavefronts than it saves."""
    six, seven, eight, nine = (_profile(step.name, language) for step in int4_gqa.LADDER[7:11])
    assert seven[SHARED.format("ld")] < six[SHARED.format("ld")]
    assert abs(_shared(seven) / _shared(six) - 1) < 0.02
    assert max(eight.steps.phases) < max(seven.steps.phases)
    assert eight[SHARED.format("st")] < seven[SHARED.format("st")] and eight[INSTRUCTIONS] < seven[INSTRUCTIONS]
    assert 1.05 * _shared(seven) < _shared(eight) > 1.05 * _shared(nine)


STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
LIMITS = [f"launch__occupancy_limit_{what}" for what in ("registers", "shared_mem", "warps", "blocks")]
TENSOR = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"


def _waiting(p, reason: str) -> float:
    """What share of their time warps wait for something."""
    return p[STALLED.format(reason)] / (1 + sum(p[key] for key in p.metrics if "issue_stalled" in key))


def _local(p) -> float:
    return sum(p[LOCAL.format(kind)] for kind in ("ld", "st"))


# What the ladder and the kernels' own heads say to watch, before and after each rung.
MOVES = {
    "cu_baseline": lambda old, new: old[TENSOR] == 0 < new[TENSOR] and 5 * new[INSTRUCTIONS] < old[INSTRUCTIONS],
    "opt01_unroll_k": lambda old, new: _waiting(new, "long_scoreboard") < 0.9 * _waiting(old, "long_scoreboard"),
    "opt02_cast_p": lambda old, new: (
        new["launch__shared_mem_per_block_dynamic"] < old["launch__shared_mem_per_block_dynamic"]
        and min(new[limit] for limit in LIMITS) > min(old[limit] for limit in LIMITS)
    ),
    "opt03_max_registers": lambda old, new: 0 < _local(new) < 0.6 * _local(old),
    "opt04_sum_registers": lambda old, new: 0 == _local(new) < _local(old),
    "opt05_prefetch_v": lambda old, new: _waiting(new, "long_scoreboard") < 0.8 * _waiting(old, "long_scoreboard"),
    "opt07_max_from_fragment": lambda old, new: (
        new[SHARED.format("ld")] < old[SHARED.format("ld")]
        and _waiting(new, "short_scoreboard") < 0.9 * _waiting(old, "short_scoreboard")
    ),
    # Barriers are fewer, and the waiting at them is not: what the loads add makes warps late.
    "opt08_p_into_fragment": lambda old, new: (
        new[INSTRUCTIONS] < old[INSTRUCTIONS]
        and new[CONFLICTS.format("ld")] > 1.2 * old[CONFLICTS.format("ld")]
        and _shared(new) > 1.05 * _shared(old)
        and _waiting(new, "barrier") > 0.9 * _waiting(old, "barrier")
    ),
    "opt09_swizzle_p": lambda old, new: new[CONFLICTS.format("ld")] < 0.7 * old[CONFLICTS.format("ld")],
    "opt10_pad_dequant": lambda old, new: all(
        new[CONFLICTS.format(kind)] < 0.5 * old[CONFLICTS.format(kind)] for kind in ("ld", "st")
    ),
    "opt11_direct_mma": lambda old, new: 2 * new[INSTRUCTIONS] < old[INSTRUCTIONS],
}


@pytest.mark.parametrize("problem", ["int4_gqa", "int4_gqa_4group"])
def test_what_each_rung_moved_on_an_h200(problem):
    """At the bench shape, as Nsight Compute read it; step 6 with 4 groups only."""
    rungs = {step.name: lk.problem(problem)[step.name, "cuda"].recorded() for step in int4_gqa.LADDER}
    for before, after in pairwise(rungs):
        if after in MOVES:
            assert MOVES[after](rungs[before], rungs[after]), after
    fewer = rungs["opt06_group_vector_loads"][REQUESTS] < 0.9 * rungs["opt05_prefetch_v"][REQUESTS]
    assert fewer == (problem == "int4_gqa_4group")
    assert set(rungs) - set(MOVES) == {"cuda_core", "opt06_group_vector_loads"}


@pytest.mark.parametrize("problem", ["int4_gqa", "int4_gqa_4group"])
def test_time_follows_the_wavefronts_of_shared_memory(problem):
    """Steps 7 to 10 on an H200, of which step 8 is the one that is published otherwise."""
    ours = reproduce.find_recorded()
    for before, after in pairwise(step.name for step in int4_gqa.LADDER[7:12]):
        old, new = (_shared(lk.problem(problem)[name, "cuda"].recorded()) for name in (before, after))
        took, _ = ours.change(problem, before, after, 512)
        assert abs(took) < 0.03 if abs(new / old - 1) < 0.03 else 0.5 < took / (new / old - 1) < 1.2, after


@LANGUAGES
def test_vector_loads_take_fewer_requests_with_4_groups_only(language):
    for problem, fewer in (("int4_gqa", False), ("int4_gqa_4group", True)):
        before, after = (
            _profile(rung, language, problem)[REQUESTS] for rung in ("opt05_prefetch_v", "opt06_group_vector_loads")
        )
        assert (after < before) == fewer


@LANGUAGES
def test_the_eleventh_reads_without_conflicts(language):
    for problem in ("int4_gqa", "int4_gqa_4group"):
        assert _profile("opt11_direct_mma", language, problem)[CONFLICTS.format("ld")] == 0


def test_published_banks():
    """4 of 32 and 16 before, 32 and 29 after: the document's pictures of K; 4 and 16 of P."""
    answers = {name: question.value() for name, question in lk.problem("int4_gqa").problem.questions.items()}
    assert answers["cu_baseline/k_store_banks"] == 4 and answers["cu_baseline/k_load_banks"] == 16
    assert answers["opt10_pad_dequant/k_store_banks"] == 32 and answers["opt10_pad_dequant/k_load_banks"] == 29
    assert answers["opt08_p_into_fragment/p_load_banks"] == 4 and answers["opt09_swizzle_p/p_load_banks"] == 16
    assert (answers["intensity"], lk.problem("gqa_bf16").problem.questions["intensity"].value()) == (32, 8)
