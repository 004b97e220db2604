"""Decode attention and its cache: references against PyTorch's, errors against PyTorch's, and how work is cut."""

from __future__ import annotations

import math
import struct

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import labkit as lk
from labkit import problems
from labkit.problems import decode_attention_f16 as f16
from labkit.problems import kv_append as cache

LLAMA = {"T": 37, "HQ": 6, "HKV": 3, "D": 24, "C": 41}
BATCH = {"B": 4, "T": 33, "HQ": 6, "HKV": 2, "D": 64}


def double(inputs):
    return [t.double() if t.is_floating_point() else t for t in inputs.values()]


# --- references ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_past", [-1, 0, 20, 99])
def test_llamas_layout_is_attention_on_permuted_tensors(n_past):
    problem = problems.get("decode_attention")
    inputs = problem.make_inputs(LLAMA)
    Q, K, V = double(inputs)
    seen = 37 if n_past < 0 else min(37, n_past + 1)
    k = K[:seen].permute(1, 0, 2).repeat_interleave(2, 0)
    v = V[:, :, :seen].permute(0, 2, 1).repeat_interleave(2, 0)
    wanted = scaled_dot_product_attention(Q[:, None], k, v)[:, 0]
    torch.testing.assert_close(problem.reference(Q, K, V, n_past), wanted)
    assert problem.baseline(*inputs.values(), n_past).isfinite().all()


def test_llamas_cache_has_what_kernels_must_survive():
    inputs = problems.get("decode_attention").make_inputs(LLAMA)
    K, V = inputs["K"], inputs["V"]
    assert V[..., 37:].isnan().all() and V[..., :37].isfinite().all()
    assert K[:, 1, 0].eq(-math.inf).all(), "a head of which all keys are left out"
    assert 0 < K[:, 2, 0].eq(-math.inf).sum() < 37, "a head of which some are"
    out = problems.get("decode_attention").reference(*double(inputs))
    assert out[2:4].eq(0).all() and out.isfinite().all() and out[[0, 1, 4, 5]].ne(0).any(1).all()
    inputs = problems.get("decode_attention").make_inputs({"T": 129, "HQ": 8, "HKV": 1, "D": 128, "C": 512})
    scores = inputs["Q"][-1] @ inputs["K"][:, 0].float().T / math.sqrt(128)
    assert scores.exp().isinf().any(), "exponentials overflow unless the largest is subtracted"


def test_values_differ_with_the_seed():
    problem = problems.get("decode_attention")
    first, second = (problem.make_inputs(LLAMA, seed)["V"][..., :37] for seed in (0, 1))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_batched_reference_is_pytorchs_sequence_by_sequence(dtype):
    problem = problems.get(f"decode_attention_{dtype.replace('float', 'f')}")
    inputs = problem.make_inputs(BATCH)
    assert inputs["K"].dtype == getattr(torch, dtype)
    Q, K, V, lengths = double(inputs)
    got = problem.reference(Q, K, V, lengths)
    assert lengths.tolist()[:2] == [33, 0] and lengths[-1] == 1
    assert got[1].eq(0).all(), "a sequence without tokens"
    assert got[3, :3].eq(0).all() and got[3, 3:].ne(0).any(), "one key, which is left out for one head of the cache"
    for b in (0, 2):
        k, v = (t[b, : lengths[b]].transpose(0, 1).repeat_interleave(3, 0) for t in (K, V))
        torch.testing.assert_close(got[b], scaled_dot_product_attention(Q[b][:, None], k, v)[:, 0])
    torch.testing.assert_close(problem.baseline(*inputs.values()).double(), got, atol=0.05, rtol=0.05)


def test_beyond_a_sequence_there_is_nothing_to_read():
    inputs = problems.get("decode_attention_f16").make_inputs(BATCH)
    for b, length in enumerate(inputs["lengths"].tolist()):
        for name in "KV":
            assert inputs[name][b, length:].isnan().all() and not inputs[name][b, :length].isnan().any()


def test_mixing_is_a_product_per_group():
    problem = problems.get("att_mix")
    att, v = double(problem.make_inputs({"T": 9, "H": 6, "HKV": 2, "D": 32}))
    assert att.sum(1).sub(1).abs().max() < 1e-6
    torch.testing.assert_close(problem.reference(att, v), torch.einsum("ht,thd->hd", att, v.repeat_interleave(3, 1)))


def test_appended_keys_are_ropes():
    """As the problem rope turns one token of many at `n_past`."""
    dims = {"B": 2, "N": 3, "T": 19, "HKV": 2, "D": 8}
    inputs = problems.get("kv_append").make_inputs(dims)
    k, v, turn, positions = inputs.values()
    K, V = problems.get("kv_append").reference(k.double(), v.double(), turn.double(), positions)
    assert positions.tolist() == [16, 0]
    for b, at in enumerate(positions.tolist()):
        x = k[b].double().view(3, 2, 4, 2)
        wanted = problems.get("rope").reference(x, n_past=at).flatten(-2)
        torch.testing.assert_close(K[b, at : at + 3], wanted, atol=1e-5, rtol=0)
        torch.testing.assert_close(V[b, at : at + 3], v[b].double())
        elsewhere = [t for t in range(19) if not at <= t < at + 3]
        assert K[b, elsewhere].isnan().all() and V[b, elsewhere].isnan().all()


@pytest.mark.parametrize(
    "name, dims, says",
    [
        ("decode_attention", {**LLAMA, "HQ": 5}, "HQ must be a multiple of HKV"),
        ("decode_attention", {**LLAMA, "D": 300}, "at most 256, not 300"),
        ("decode_attention_f16", {**BATCH, "D": 80}, "must be 64 or 128, not 80"),
        ("decode_attention_f16", {**BATCH, "HQ": 5}, "HQ must be a multiple of HKV"),
        ("att_mix", {"T": 3, "H": 2, "HKV": 2, "D": 40}, "multiple of 32, not 40"),
        ("att_mix", {"T": 3, "H": 3, "HKV": 2, "D": 32}, "H must be a multiple of HKV"),
        ("kv_append", {"B": 1, "N": 4, "T": 3, "HKV": 1, "D": 8}, "no room for 4 new ones"),
        ("kv_append", {"B": 1, "N": 1, "T": 3, "HKV": 1, "D": 7}, "must be even, not 7"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(name, dims, says):
    problem = problems.get(name)
    with pytest.raises(lk.LabkitError, match=says):
        problem.reference(*problem.make_inputs(dims).values())


# --- costs -----------------------------------------------------------------------------------------------


def test_bytes_of_caches():
    """Llama 2 7B's cache of 512 tokens takes 512 MiB in float32: llama.cpp's walk-through."""
    assert cache.cache_bytes(cache.LLAMA_2_7B, 512, 4.0) == 512 * 2**20
    dims = {"B": 1, "T": 131072, "HQ": 8, "HKV": 1, "D": 128}
    assert problems.get("decode_attention_f16").bytes(dims) == 2 * 131072 * 128 * 2 + 2 * 8 * 128 * 2 + 4
    prompt = {"B": 4, "N": 8192, "T": 8192, "HKV": 8, "D": 128}
    assert problems.get("kv_append").bytes(prompt) == 2 * 4 * 8192 * 8 * 128 * 6 + 4 * 8192 * 128 + 16
    full, some = (problems.get("decode_attention").bytes({**LLAMA, "n_past": n}) for n in (-1, 9))
    assert full - some == 4 * 3 * 24 * 27, "masked tokens need not be read"


def test_choice_of_splits():
    assert f16.splits_of({"B": 1, "HQ": 8, "T": 131072}) == 132
    assert f16.splits_of({"B": 8, "HQ": 8, "T": 16384}) == 16
    assert f16.splits_of({"B": 512, "HQ": 8, "T": 8192}) == 1
    assert f16.splits_of({"B": 1, "HQ": 8, "T": 300}) == 2, "no pieces of a few tokens"
    assert f16.splits_of({"B": 1, "HQ": 8, "T": 300, "splits": 7}) == 7


@pytest.mark.parametrize("B, T", [(1, 131072), (8, 16384), (512, 8192), (3, 50)])
@pytest.mark.parametrize("rung", ["split_kv", "split_kv_mma"])
def test_launch_lines_fill_the_gpu(rung, B, T):
    """Two blocks of split_kv_mma on each of 132 multiprocessors where there is work for them, and never more."""
    from labkit.kernels.cuda import parse_header, plan

    source = lk.problem("decode_attention_f16")[rung, "cuda"].solution.source
    numbers = {"B": B, "T": T, "HQ": 8, "HKV": 1, "D": 128, "splits": 0}
    tensors = ("O", "Q", "K", "V", "lengths")
    made = plan(parse_header(source, rung), lambda name: name, tensors, numbers, path=rung)
    grid = made.launches[0][1]
    if rung == "split_kv":
        assert grid == (8, B, f16.splits_of(numbers))
    else:
        assert grid == (264 if T > 50 else 2, 1, 1)


# --- accuracy --------------------------------------------------------------------------------------------


def errors(name, rung, language, dims):
    """The largest errors of a kernel's and of PyTorch's results."""
    problem = problems.get(name)
    inputs, outputs = problem.make_inputs(dims, seed=3), problem.make_outputs(dims)
    lk.problem(name)[rung, language].solution.kernel.launch(outputs["O"], *inputs.values(), **problem.options_of(dims))
    wanted = problem.reference(*double(inputs))
    own = problem.baseline(*inputs.values()).double() - wanted
    return float((outputs["O"].double() - wanted).abs().max()), float(own.abs().max())


ROUNDED = {"decode_attention": 2.0**-22, "decode_attention_f16": 2.0**-11, "decode_attention_bf16": 2.0**-8}


@pytest.mark.parametrize(
    "name, rung, language",
    [
        ("decode_attention", "five_kernels", "cuda"),
        ("decode_attention", "fused", "cuda"),
        ("decode_attention_f16", "one_block", "cuda"),
        ("decode_attention_f16", "split_kv", "cuda"),
        ("decode_attention_f16", "split_kv_mma", "cuda"),
        ("decode_attention_bf16", "split_kv_mma", "cuda"),
    ],
)
def test_errors_are_at_most_twice_pytorchs(name, rung, language):
    """And half a unit of the output's last place, which is the least that any result can promise."""
    dims = {**LLAMA, "T": 129, "C": 140} if name == "decode_attention" else {**BATCH, "T": 129, "D": 128}
    mine, torchs = errors(name, rung, language, dims)
    assert mine <= 2 * torchs + ROUNDED[name], (mine, torchs)


def test_large_logits_and_many_pieces():
    """Scores of some hundreds; one piece has the largest by far, and the others must shrink to nothing."""
    kernel = lk.problem("decode_attention_f16")["split_kv_mma", "cuda"].solution.kernel
    generator = torch.Generator().manual_seed(5)
    Q = torch.ones(1, 3, 64).half()
    K, V = (torch.randn(1, 200, 1, 64, generator=generator).half() for _ in range(2))
    K[0, 150] = 60.0  # a score of 480, others are about 1
    K[0, 17] = -math.inf
    for splits in (1, 2, 5, 13):
        out = torch.empty_like(Q)
        kernel.launch(out, Q, K, V, torch.tensor([200], dtype=torch.int32), splits=splits)
        torch.testing.assert_close(out, V[0, 150].expand_as(out))


def test_a_head_of_its_own_for_more_queries_than_a_tile_has_rows():
    """40 query heads on one head of the cache: three blocks of up to 16 rows."""
    mine, torchs = errors("decode_attention_f16", "split_kv_mma", "cuda", {**BATCH, "T": 70, "HQ": 40, "HKV": 1})
    assert mine <= 2 * torchs + ROUNDED["decode_attention_f16"]


def test_what_must_stay_may_be_unwritten_and_nothing_else(tmp_path):
    """check() takes NaN in a row that is not appended, and no missing row."""
    rung, shapes = lk.problem("kv_append")["fused", "cuda"].solution, ({"B": 2, "N": 1, "T": 5, "HKV": 1, "D": 8},)
    assert rung.check(shapes=shapes).passed
    lines = [line for line in rung.source.splitlines() if "((half2 *)V)[at] =" not in line]
    (tmp_path / "fused.cu").write_text("\n".join(lines))
    failure = rung.load(tmp_path / "fused.cu").check(shapes=shapes).failures[0]
    assert failure.kind == "unwritten" and failure.message.startswith("V[0, 4, 0, 0] was never written (16 of 80")


def test_one_hot_rounding_of_appended_values_is_to_nearest():
    problem = problems.get("kv_append")
    dims = {"B": 1, "N": 1, "T": 1, "HKV": 1, "D": 8}
    inputs, outputs = problem.make_inputs(dims), problem.make_outputs(dims)
    inputs["v"].fill_(1 + 2.0**-11)  # halfway between two numbers of float16: to the even one, 1
    lk.problem("kv_append")["vectorized", "cuda"].solution.kernel.launch(tuple(outputs.values()), *inputs.values())
    assert struct.pack("<e", 1.0) == outputs["V"].flatten()[0].numpy().tobytes()
