"""PyTorch operators from the kernels of the labs.

    import labkit_ops
    c = labkit_ops.gemm(a, b, alpha=1.0, beta=0.0, trans_a=False, trans_b=False, c=None)
    c = labkit_ops.tensor_core_gemm(a, b)
    c = labkit_ops.tensor_core_gemm_int8(a, b)
    o = labkit_ops.flash_attention(q, k, v, scale=None, is_causal=False, return_lse=False)
    o = labkit_ops.naive_attention(q, k, v)  # and tiled_attention
    o = labkit_ops.gqa_decode(q, k_cache, v_cache, lengths)
    o = labkit_ops.int4_gqa_decode(q, k_cache, v_cache, lengths, groups=1)  # of labkit_ops.quantize_kv_int4(x, groups)

The same are `torch.ops.labkit.*`: torch.compile knows them, they run on the current stream of the tensors' device, and
`gemm`, `tensor_core_gemm` and `flash_attention` have gradients. A wrong argument ends in a RuntimeError of one sentence
before anything is launched. Built for a GPU they run there; built without nvcc, they check their arguments and tell
shapes only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labkit_ops.build import load

load()
_ops = torch.ops.labkit

from labkit_ops._attention import (  # noqa: E402  (its operators are there only now)
    flash_attention,
    gqa_decode,
    int4_gqa_decode,
    naive_attention,
    quantize_kv_int4,
    tiled_attention,
)

__all__ = [
    "flash_attention",
    "gemm",
    "gqa_decode",
    "int4_gqa_decode",
    "naive_attention",
    "quantize_kv_int4",
    "tensor_core_gemm",
    "tensor_core_gemm_int8",
    "tiled_attention",
]


def gemm(
    a: Tensor,
    b: Tensor,
    alpha: float = 1.0,
    beta: float = 0.0,
    trans_a: bool = False,
    trans_b: bool = False,
    *,
    c: Tensor | None = None,
) -> Tensor:
    """alpha * op(a) @ op(b) + beta * c, all float32 and contiguous.

    op(a) is [M, K] and op(b) [K, N]; op transposes where trans_a or trans_b is set, so that a is [K, M] or b is [N, K].
    c is [M, N], and needed where beta is not 0; it is not changed. Returns [M, N]. Differentiable in a, b and c.
    """
    return _ops.gemm(a, b, alpha, beta, trans_a, trans_b, c)


def tensor_core_gemm(a: Tensor, b: Tensor) -> Tensor:
    """a @ b on tensor cores: a [M, K], b [K, N], both float16 or both bfloat16, contiguous; returns float32 [M, N].

    Sums are in float32. Needs an Ampere GPU or newer. Differentiable; the gradient is rounded to the type of a and b
    before it is multiplied, as PyTorch rounds that of a 16-bit product.
    """
    return _ops.tensor_core_gemm(a, b)


def tensor_core_gemm_int8(a: Tensor, b: Tensor) -> Tensor:
    """a @ b on tensor cores, exact: a [M, K] int8, contiguous; b [K, N] int8, with contiguous columns; returns int32.

    b is w.t() of a contiguous w [N, K], as weights of a linear layer are stored. Needs an Ampere GPU or newer.
    """
    return _ops.tensor_core_gemm_int8(a, b)


def _save_gemm(ctx, inputs, output) -> None:
    a, b, ctx.alpha, ctx.beta, ctx.trans_a, ctx.trans_b, c = inputs
    ctx.save_for_backward(a, b)
    ctx.has_c = c is not None


def _gemm_backward(ctx, grad):
    a, b = ctx.saved_tensors
    grad, ta, tb = grad.contiguous(), ctx.trans_a, ctx.trans_b
    grad_a = grad_b = None
    if ctx.needs_input_grad[0]:  # d op(a) = grad @ op(b).T
        grad_a = (
            _ops.gemm(b, grad, ctx.alpha, 0.0, tb, True) if ta else _ops.gemm(grad, b, ctx.alpha, 0.0, False, not tb)
        )
    if ctx.needs_input_grad[1]:  # d op(b) = op(a).T @ grad
        grad_b = (
            _ops.gemm(grad, a, ctx.alpha, 0.0, True, ta) if tb else _ops.gemm(a, grad, ctx.alpha, 0.0, not ta, False)
        )
    grad_c = ctx.beta * grad if ctx.has_c and ctx.needs_input_grad[6] else None
    return grad_a, grad_b, None, None, None, None, grad_c


def _save_pair(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _tensor_core_gemm_backward(ctx, grad):
    a, b = ctx.saved_tensors
    grad = grad.to(a.dtype).contiguous()
    grad_a = grad_b = None
    if ctx.needs_input_grad[0]:
        grad_a = _ops.tensor_core_gemm(grad, b.t().contiguous()).to(a.dtype)
    if ctx.needs_input_grad[1]:
        grad_b = _ops.tensor_core_gemm(a.t().contiguous(), grad).to(b.dtype)
    return grad_a, grad_b


torch.library.register_autograd("labkit::gemm", _gemm_backward, setup_context=_save_gemm)
torch.library.register_autograd("labkit::tensor_core_gemm", _tensor_core_gemm_backward, setup_context=_save_pair)
