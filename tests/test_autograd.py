"""Attention through two rungs against autograd in float64, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import labkit as lk

SHAPES = [  # q, k and v, causal, scale
    ((1, 2, 5, 32), (1, 1, 9, 32), True, 0.0),
    ((2, 1, 17, 64), (2, 1, 3, 64), False, 0.25),
]


def rungs(dtype="", forward="flash", language="numba", backward="recompute", of_backward="numba"):
    suffix = f"_{dtype}" if dtype else ""
    return (
        lk.problem(f"attention{suffix}")[forward, language].solution,
        lk.problem(f"attention_backward{suffix}")[backward, of_backward].solution,
    )


def train(attend, of_q, of_k, causal, scale, tolerance, device="cpu"):
    """Results and gradients of attend against float64; q comes as a view that is not contiguous."""
    torch.manual_seed(0)
    exact = [torch.randn(shape).to(attend.dtype).to(device).double() for shape in (of_q, of_k, of_k)]
    grad = torch.randn(of_q).to(attend.dtype).to(device)
    mine = [t.to(attend.dtype).requires_grad_() for t in exact]
    q = mine[0].mT.contiguous().mT
    assert not q.is_contiguous()
    out = attend(q, *mine[1:], causal=causal, scale=scale)
    out.backward(grad)
    for t in exact:
        t.requires_grad_()
    want = scaled_dot_product_attention(
        *exact, is_causal=causal, scale=scale or None, enable_gqa=of_q[1] != of_k[1]
    )
    want.backward(grad.double())
    torch.testing.assert_close(out.double(), want, atol=tolerance, rtol=tolerance)
    for got, theirs in zip(mine, exact, strict=True):
        assert got.grad.dtype == attend.dtype
        torch.testing.assert_close(got.grad.double(), theirs.grad, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("of_q, of_k, causal, scale", SHAPES, ids=str)
def test_gradients_are_those_of_float64(of_q, of_k, causal, scale):
    train(lk.attention(*rungs()), of_q, of_k, causal, scale, 1e-5)


def test_languages_may_be_mixed_and_precision_lower():
    train(lk.attention(*rungs(of_backward="cuda")), *SHAPES[0], 1e-5)
    train(lk.attention(*rungs("f16", "flash_mma", "numba", "mma", "cuda")), *SHAPES[0], 2e-2)


def test_a_wrong_kernel_does_not_pass(tmp_path):
    """These tests can fail: a backward pass that forgets the scale."""
    forward, backward = rungs(of_backward="cuda")
    file = tmp_path / "recompute.cu"
    text = backward.source
    assert text.count("(dp[i][j] - r) * scale") == 1
    file.write_text(text.replace("(dp[i][j] - r) * scale", "(dp[i][j] - r)"))
    with pytest.raises(AssertionError, match="not close"):
        train(lk.attention(forward, backward.load(file)), *SHAPES[0], 1e-5)


def test_it_keeps_what_it_says():
    """q, k, v, the result, and one float32 per row."""
    kept = []
    q, k, v = (torch.randn(1, 2, 9, 32, requires_grad=True) for _ in "qkv")
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(tuple(t.shape)) or t, lambda t: t):
        lk.attention(*rungs())(q, k, v)
    assert sorted(kept) == sorted([(1, 2, 9, 32)] * 4 + [(1, 2, 9)])


def test_it_is_differentiable_once():
    q, k, v = (torch.randn(1, 1, 3, 32, requires_grad=True) for _ in "qkv")
    (first,) = torch.autograd.grad(lk.attention(*rungs())(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        first.sum().backward()


def test_rungs_that_do_not_fit_are_refused():
    forward, backward = rungs()
    with pytest.raises(lk.LabkitError, match="attention_backward/recompute is no kernel for the forward pass"):
        lk.attention(backward, backward)
    with pytest.raises(lk.LabkitError, match="attention/flash is no kernel for the backward pass"):
        lk.attention(forward, forward)
    with pytest.raises(lk.LabkitError, match="takes float32 and attention_backward_f16/mma float16"):
        lk.attention(forward, rungs("f16", "flash_mma", "numba", "mma", "cuda")[1])


@pytest.mark.parametrize(
    "change, says",
    [
        (lambda q, k, v: (q[0], k, v), "q must be"),
        (lambda q, k, v: (q, k[:, :, :0], v), "k must be"),
        (lambda q, k, v: (q, k, v.half()), "v is torch.float16, and attention/flash takes torch.float32"),
        (lambda q, k, v: (q, k.to("meta"), v), "q is on cpu and k is on meta"),
        (lambda q, k, v: (q, k, v[:, :, 1:]), "do not fit together"),
        (lambda q, k, v: (q[..., :16], k[..., :16], v[..., :16]), "must be 32, 64 or 128, not 16"),
        (lambda q, k, v: (q[:, :3], k, v), "H must be a multiple of HK"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(change, says):
    with pytest.raises(lk.LabkitError, match=says):
        lk.attention(*rungs())(*change(*(torch.randn(1, h, 5, 32) for h in (4, 2, 2))))


def test_a_negative_scale_is_refused():
    with pytest.raises(lk.LabkitError, match="scale must be positive"):
        lk.attention(*rungs())(*(torch.randn(1, 1, 2, 32) for _ in "qkv"), scale=-1.0)


@pytest.mark.gpu
@pytest.mark.parametrize("of_q, of_k, causal, scale", SHAPES, ids=str)
def test_gradients_on_a_gpu(of_q, of_k, causal, scale):
    train(lk.attention(*rungs()), of_q, of_k, causal, scale, 1e-4, "cuda")
    train(lk.attention(*rungs("f16", "flash_mma", "cuda", "mma", "cuda")), of_q, of_k, causal, scale, 2e-2, "cuda")
