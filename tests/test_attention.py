"""The references of attention and of its gradients against PyTorch's in float64, and their edges."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import labkit as lk
from labkit import problems
from labkit.problems.attention import pairs, shape

SHAPES = [
    shape(B=2, H=4, HK=2, N=9, NK=33, D=32, causal=1),
    shape(H=2, N=33, NK=9, D=64, causal=1, scale=0.25),
    shape(H=3, HK=1, N=17, D=128),
]


def options_of(dims):
    scale = dims.get("scale") or 1 / math.sqrt(dims["D"])
    return {"is_causal": bool(dims.get("causal")), "scale": scale, "enable_gqa": dims["H"] != dims["HK"]}


@pytest.mark.parametrize("dims", SHAPES, ids=str)
def test_forward_reference_is_pytorchs(dims):
    problem = problems.get("attention")
    inputs = [t.double() for t in problem.make_inputs(dims).values()]
    out, L = problem.reference(*inputs, **problem.options_of(dims))
    torch.testing.assert_close(out, scaled_dot_product_attention(*inputs, **options_of(dims)))
    assert L.shape == out.shape[:3]


def test_rows_without_keys_are_zero():
    dims = shape(B=2, H=2, N=3, NK=5)
    problem = problems.get("attention")
    inputs = problem.make_inputs(dims)
    assert inputs["K"][1, 1, :, 0].eq(-math.inf).all() and inputs["Q"][..., 0].gt(0).all()
    out, L = problem.reference(*(t.double() for t in inputs.values()))
    assert out[1, 1].eq(0).all() and L[1, 1].eq(-math.inf).all()
    assert out.isfinite().all() and L[0].isfinite().all()
    assert scaled_dot_product_attention(*inputs.values())[1, 1].eq(0).all()


def test_timed_lengths_have_no_key_left_out():
    K = problems.get("attention").make_inputs(shape(B=2, H=2, N=1, NK=1024))["K"]
    assert K.isfinite().all()


@pytest.mark.parametrize("dims", SHAPES, ids=str)
def test_gradients_are_those_of_autograd(dims):
    problem = problems.get("attention_backward")
    inputs = problem.make_inputs(dims)
    Q, K, V, dO = (inputs[name].double() for name in ("Q", "K", "V", "dO"))
    leaves = [t.clone().requires_grad_() for t in (Q, K, V)]
    out = scaled_dot_product_attention(*leaves, **options_of(dims))
    wanted = torch.autograd.grad(out, leaves, dO)
    torch.testing.assert_close(inputs["O"], out.detach().float())
    got = problem.reference(*(t.double() for t in inputs.values()), **problem.options_of(dims))
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("dims", SHAPES, ids=str)
def test_what_the_forward_pass_leaves_knows_the_options(dims):
    """exp(scores - L) sums to 1 in each row."""
    problem = problems.get("attention_backward")
    inputs = problem.make_inputs(dims)
    _, L = problems.get("attention").reference(
        *(inputs[name].double() for name in "QKV"), **problem.options_of(dims)
    )
    torch.testing.assert_close(inputs["L"], L.float())


def test_pairs_count_what_a_causal_mask_leaves():
    for N, NK in ((5, 5), (3, 7), (7, 3), (1, 1)):
        assert pairs({"N": N, "NK": NK, "causal": 1}) == torch.ones(N, NK).tril().sum()
        assert pairs({"N": N, "NK": NK}) == N * NK


@pytest.mark.parametrize(
    "dims, says",
    [(shape(H=3, HK=2, N=4), "H must be a multiple of HK"), (shape(N=4, D=48), "must be 32, 64 or 128, not 48")],
)
def test_shapes_that_do_not_fit_are_refused(dims, says):
    problem = problems.get("attention")
    with pytest.raises(lk.LabkitError, match=says):
        problem.reference(*problem.make_inputs(dims).values())


def test_memory_of_the_rungs():
    """The scores lie in memory in naive, and in no rung from online_softmax on."""
    ladder = lk.problem("attention")
    for step in ladder.problem.ladder:
        text = ladder[step.name, "cuda"].solution.source
        assert ("// workspace S float32 (B, H, N, NK)" in text) == (step.name in ("naive", "tiled"))
