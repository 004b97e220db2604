"""llama.cpp's operators and block formats: what the references compute, and how far the bound on q8_0 reaches."""

from __future__ import annotations

import math
import struct

import pytest
import torch

import labkit as lk
from labkit import problems
from labkit.problems import _q8


def test_rope_turns_adjacent_pairs_by_the_position():
    rope = problems.get("rope")
    x = rope.make_inputs({"T": 2, "H": 2, "P": 4})["x"].double()
    got = rope.reference(x, n_past=3, base=100.0)
    for t, h, p in ((0, 0, 0), (1, 1, 2), (1, 0, 3)):
        theta = (3 + t) * 100.0 ** (-p / 4)
        a, b = x[t, h, p].tolist()
        want = (a * math.cos(theta) - b * math.sin(theta), a * math.sin(theta) + b * math.cos(theta))
        assert got[t, h, p].tolist() == pytest.approx(want)


def test_rope_keeps_lengths():
    rope = problems.get("rope")
    x = rope.make_inputs({"T": 3, "H": 2, "P": 5})["x"].double()
    assert torch.allclose(rope.reference(x, n_past=7).norm(dim=-1), x.norm(dim=-1))


def test_diag_mask_masks_what_comes_after():
    mask = problems.get("diag_mask")
    x = torch.zeros(2, 3, 6)
    got = mask.reference(x, n_past=2)
    assert [[int(v) for v in row.isinf()] for row in got[1]] == [[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1], [0] * 5 + [1]]


@pytest.mark.parametrize(
    "shape", [{"H": 2, "T": 5, "S": 9}, {"H": 1, "T": 9, "S": 5}, {"H": 3, "T": 4, "S": 7, "n_past": 2}]
)
def test_diag_mask_counts_what_need_not_be_read(shape):
    mask = problems.get("diag_mask")
    dims = mask.dims_of(shape)
    got = mask.reference(mask.make_inputs(dims)["x"], **mask.options_of(shape))
    assert mask.bytes(dims) == 4 * (2 * got.numel() - int(got.isinf().sum()))


def test_rounding_to_float16_has_one_right_result():
    cpy = problems.get("cpy_f32_f16")
    x = torch.tensor([1 + 2**-11, 1 + 3 * 2**-11, 2.0**-25, 65520.0]).reshape(1, 1, 4)  # ties, too small, too large
    assert cpy.reference(x.double()).flatten().tolist() == [1.0, 1 + 2**-9, 0.0, math.inf]


def test_blocks_are_read_byte_by_byte():
    inputs = problems.get("matvec_q8_0").make_inputs({"M": 3, "K": 96}, seed=4)
    assert inputs["W"].shape == (3, 102)
    for row in range(3):
        for block in range(3):
            d, *q = struct.unpack_from("<e32b", bytes(inputs["W"][row].tolist()), 34 * block)
            assert inputs["D"][row, block] == d
            assert inputs["Q"][row, 32 * block : 32 * block + 32].tolist() == q
            assert _q8.weights(inputs["W"])[row, block].tolist() == [d * v for v in q]


def test_scales_are_of_a_kind_and_quants_of_all():
    W = _q8.random_blocks((50, 34 * 40), torch.Generator().manual_seed(0))
    d, q = _q8.scales(W).double(), _q8.quants(W)
    assert 1 / 260 < d.min() < d.max() < 1 / 63
    assert set(q.flatten().tolist()) == set(range(-127, 128))


def _rounded(x: torch.Tensor) -> torch.Tensor:
    """x as block_q8_1 stands for it, its scale rounded to float16."""
    blocks = x.double().reshape(-1, 32)
    d = blocks.abs().amax(1, keepdim=True) / 127
    return torch.where(d > 0, (blocks / d).round() * d.half().double(), 0.0).flatten()


@pytest.mark.parametrize("K", [32, 96, 1024, 4096])
def test_bound_on_q8_0_is_eight_standard_deviations(K):
    problem = problems.get("matvec_q8_0")
    errors = []
    for seed in range(8):
        inputs = problem.make_inputs({"M": 500, "K": K}, seed=seed)
        W, x = inputs["W"], inputs["x"]
        bound = problem.c * _q8.U32 * _q8.magnitude(W, x)
        errors.append((_q8.product(W, _rounded(x)) - _q8.product(W, x)) / bound)
    errors = torch.cat(errors)
    assert 0.6 / 8 < errors.std() < 1.3 / 8
    assert errors.abs().max() < 0.85  # a row's errors share their x, so that tails differ from vector to vector


def test_bound_is_far_below_the_worst_case():
    inputs = problems.get("matvec_q8_0").make_inputs({"M": 4, "K": 4096})
    W, x = inputs["W"], inputs["x"]
    d = x.double().reshape(-1, 32).abs().amax(1) / 127
    worst = (_q8.weights(W).abs().sum(2) * d / 2).sum(1)
    assert (8 * _q8.U32 * _q8.magnitude(W, x) < worst / 4).all()


def test_k_must_fill_blocks():
    with pytest.raises(lk.LabkitError, match="multiple of 32"):
        problems.get("matvec_q8_0").make_inputs({"M": 1, "K": 48})


def test_compulsory_bytes_of_q8_0_count_the_weights_once():
    problem = problems.get("matvec_q8_0")
    assert problem.bytes(problem.bench_shape) == 8192 * 28672 // 32 * 34 + 4 * (8192 + 28672)
    assert problem.read_only(problem.bench_shape)
