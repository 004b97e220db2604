"""Attention: of many queries with gradients, and of one query per sequence over a cache."""

from __future__ import annotations

import torch
from torch import Tensor

_ops = torch.ops.labkit


def naive_attention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    """softmax(scale q k^T) v in float32, all scores kept in memory: the baseline, for short sequences.

    Arguments as in `flash_attention`. It takes 4 B H N NK bytes beside its arguments, and has no gradient.
    """
    return _ops.naive_attention(q, k, v, _number(scale))


def tiled_attention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    """As `naive_attention`, with the two products from tiles in shared memory."""
    return _ops.tiled_attention(q, k, v, _number(scale))


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    is_causal: bool = False,
    *,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """softmax(scale q k^T) v; neither it nor its gradient stores a tensor of N x NK numbers.

    q is [B, H, N, D], k and v are [B, HK, NK, D], all float32, float16 or bfloat16, contiguous, on one GPU, beginning
    on 16 bytes. D is 32, 64 or 128; H is a multiple of HK, and query head h reads key head h // (H // HK). scale is
    positive; None or 0 stands for 1 / sqrt(D). With is_causal, query i sees the keys 0 .. i, also where N and NK
    differ. Returns [B, H, N, D] in the type of q; with return_lse also float32 [B, H, N], the logarithm of each row's
    sum of exponentials, which has no gradient of its own.

    Scores and sums are in float32. A key whose score is -inf is left out; a row without keys is 0. Differentiable once
    in q, k and v, where these are finite; in 16 bits the gradient of q is summed by atomics, in an order that is not
    the same each time, which torch.use_deterministic_algorithms refuses. In 16 bits at D = 128, a block needs 96 KiB
    of shared memory, and 145 KiB for the gradient. Needs an Ampere GPU or newer.
    """
    out, lse = _ops.flash_attention(q, k, v, _number(scale), is_causal)
    return (out, lse) if return_lse else out


def gqa_decode(q: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(128)) v of one query token per sequence, over a cache of one head that all heads of q share.

    q is [B, HQ, 128], k_cache and v_cache are [B, T, 1, 128], all bfloat16, contiguous, beginning on 16 bytes. lengths
    is int32 [B]: sequence b has the first lengths[b] of T tokens, and what lies beyond is not read. That lengths[b] is
    from 1 to T is **not** checked, for the host would have to wait for the GPU: other lengths read outside the cache.
    Returns bfloat16 [B, HQ, 128]. At most 65535 sequences of 2^24 tokens, and 2^31 - 1 tokens of all. No gradient.
    """
    return _ops.gqa_decode(q, k_cache, v_cache, lengths)


def int4_gqa_decode(q: Tensor, k_cache: Tensor, v_cache: Tensor, lengths: Tensor, groups: int = 1) -> Tensor:
    """As `gqa_decode`, over a cache in 4 bits: k_cache and v_cache are uint8 [B, T, 1, 64 + 4 groups].

    groups is 1 (rows of 68 bytes) or 4 (80 bytes): scales and shifts per row, as `quantize_kv_int4` makes them.
    """
    return _ops.int4_gqa_decode(q, k_cache, v_cache, lengths, groups)


def quantize_kv_int4(x: Tensor, groups: int = 1) -> Tensor:
    """uint8 [..., 64 + 4 groups]: rows of an INT4 cache that stand for the floating-point x [..., 128].

    A row is `groups` times a float16 scale and a float16 shift, then 64 bytes; byte i has number 2 i in its low four
    bits and number 2 i + 1 in its high four. A number is q * scale + shift, with scale = (max - min) / 15 and shift =
    min of its group of 128 / groups. LabkitError for other shapes, and for numbers that float16 cannot hold, which it
    waits for the GPU to find out. Runs on any device; needs labkit.
    """
    from labkit.problems import _kv_int4

    return _kv_int4.quantize(x, groups)


def _number(scale: float | None) -> float:
    return 0.0 if scale is None else float(scale)


def _save(ctx, inputs, output) -> None:
    q, k, v, ctx.scale, ctx.is_causal = inputs
    out, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.save_for_backward(q, k, v, out, lse)


def _backward(ctx, grad, _grad_of_lse):
    q, k, v, out, lse = ctx.saved_tensors
    grad = _whole(grad)
    return *_ops.flash_attention_backward(grad, q, k, v, out, lse, ctx.scale, ctx.is_causal), None, None


def _whole(grad: Tensor) -> Tensor:
    """Contiguous, such as the gradient of a sum is not; and a new tensor if it is a part that begins elsewhere."""
    grad = grad.contiguous()
    return grad.clone() if grad.storage_offset() * grad.element_size() % 16 else grad


def _no_gradient(name: str):
    def refuse(ctx, *grads):
        raise RuntimeError(f"{name} has no gradient; call it under torch.no_grad(), or use flash_attention once.")

    return refuse


torch.library.register_autograd("labkit::flash_attention", _backward, setup_context=_save)
for _name in ("naive_attention", "tiled_attention", "flash_attention_backward", "gqa_decode", "int4_gqa_decode"):
    torch.library.register_autograd(f"labkit::{_name}", _no_gradient(_name))
