"""A KV cache in 4 bits, byte by byte, and attention of one query token over it.

A row is what one token keeps of one head, 128 numbers, in 4 G + 64 bytes, for G = 1 (row-wise, 68 bytes) or G = 4
groups (80 bytes) of 128 / G numbers that lie side by side:

    bytes 4 g and 4 g + 1      float16 scale of group g, low byte first
    bytes 4 g + 2, 4 g + 3     float16 shift of group g, low byte first
    byte 4 G + i               number 2 i in the low four bits, number 2 i + 1 in the high four

    x = q * scale + shift      shift = min, scale = (max - min) / 15 of the group, q from 0 to 15

Rows of 68 bytes start on 4 bytes, rows of 80 bytes on 16. This is the layout of FBGEMM's `gqa_attn_splitk`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.errors import LabkitError

if TYPE_CHECKING:
    import torch

D = 128  # numbers of a head
SHARED_BY = 15  # steps between the least and the greatest number
HALF_MOST = 65504.0
CHUNK = 1 << 20  # rows quantized at a time


def row_bytes(groups: int) -> int:
    """Bytes of a row: 68 or 80."""
    if groups not in (1, 4):
        raise LabkitError(f"A row of the INT4 cache has 1 or 4 groups, not {groups}.")
    return 4 * groups + D // 2


def groups_of(cache: torch.Tensor) -> int:
    """The number of groups that the rows of `cache` have, told by their length."""
    groups = (cache.shape[-1] - D // 2) // 4
    if row_bytes(groups) != cache.shape[-1]:
        raise LabkitError(f"Rows of the INT4 cache have 68 or 80 bytes, not {cache.shape[-1]}.")
    return groups


def quantize(x: torch.Tensor, groups: int = 1) -> torch.Tensor:
    """uint8 [..., 4 groups + 64] rows of the floating-point x [..., 128]; LabkitError where float16 cannot hold them.

    q is rounded to the nearest against the scale and shift as they are stored. Where a group is constant, scale and q
    are 0 and the shift is all there is.
    """
    import torch

    length = row_bytes(groups)
    if x.shape[-1] != D:
        raise LabkitError(f"A row of the INT4 cache holds {D} numbers, not {x.shape[-1]}.")
    if not (x.abs() <= HALF_MOST).all():
        raise LabkitError(f"The INT4 cache holds numbers of at most {HALF_MOST:.0f}, the most that float16 can say.")
    parts = x.reshape(-1, groups, D // groups).float()
    low, high = parts.amin(-1, keepdim=True), parts.amax(-1, keepdim=True)
    scale, shift = (((high - low) / SHARED_BY).half(), low.half())
    steps = torch.where(scale > 0, (parts - shift.float()) / scale.float(), 0.0)
    q = steps.nan_to_num(0.0).round().clamp(0, SHARED_BY).to(torch.uint8).reshape(-1, D // 2, 2)
    rows = torch.empty((len(parts), length), dtype=torch.uint8, device=x.device)
    rows[:, : 4 * groups] = torch.cat((scale, shift), -1).reshape(-1, 2 * groups).view(torch.uint8)
    rows[:, 4 * groups :] = q[..., 0] | q[..., 1] << 4
    return rows.reshape(*x.shape[:-1], length)


def parameters(cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The float16 scales and shifts of rows [..., row bytes], [..., groups] each."""
    import torch

    header = cache[..., : 4 * groups_of(cache)].contiguous().view(torch.float16)
    return header[..., 0::2], header[..., 1::2]


def quants(cache: torch.Tensor) -> torch.Tensor:
    """uint8 [..., 128]: the q of rows [..., row bytes]."""
    import torch

    packed = cache[..., -D // 2 :]
    return torch.stack((packed & 15, packed >> 4), -1).flatten(-2)


def dequantize(cache: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """[..., 128] in `dtype` (float64 by default, where nothing is rounded): what rows [..., row bytes] stand for."""
    import torch

    dtype = dtype or torch.float64
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    scale, shift = (part.to(exact).unsqueeze(-1) for part in parameters(cache))
    q = quants(cache).unflatten(-1, (scale.shape[-2], -1)).to(exact)
    return (q * scale + shift).flatten(-2).to(dtype)


def bound(x: torch.Tensor, groups: int = 1) -> torch.Tensor:
    """float64 [..., 128]: how far off `dequantize(quantize(x))` may be from x.

    Half a step, and what rounding shift and scale to float16 moves: 2^-11 of each, 15 steps of the scale, and half of
    float16's least number, 2^-24, where they are smaller than it can say well.
    """
    parts = x.double().unflatten(-1, (groups, D // groups))
    low, high = parts.amin(-1, keepdim=True), parts.amax(-1, keepdim=True)
    span = high - low
    per = span / SHARED_BY / 2 + 2.0**-11 * (low.abs() + 1.05 * span) + 2.0**-25 * (1 + SHARED_BY)
    return per.expand_as(parts).flatten(-2)


# --- what the problems are made of -----------------------------------------------------------------------


def random_rows(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """float32 [B, T, 1, 128] that a cache must survive: standard normal numbers, but that of the tokens of a sequence
    number 3, 14, 25 ... have one number 20 times as large (an outlier), and number 5, 22, 39 ... are constant."""
    import torch

    x = torch.randn((*shape[:-1], D), generator=generator, device=generator.device)
    x[:, 3::11, :, 77] *= 20
    x[:, 5::17] = x[:, 5::17, :, :1]
    return x


def random_cache(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """uint8 [B, T, 1, row bytes]: `random_rows`, quantized a few sequences at a time, and `spoil`ed."""
    import torch

    groups = (shape[-1] - D // 2) // 4
    some = max(1, CHUNK // shape[1])
    return spoil(torch.cat([
        quantize(random_rows((min(some, shape[0] - b), *shape[1:]), generator), groups)
        for b in range(0, shape[0], some)
    ]))


def full(T: int) -> bool:
    """Whether `random_lengths` makes all caches of T tokens full."""
    return T % 32 == 0


def random_lengths(cache: torch.Tensor) -> torch.Tensor:
    """int32 [B]: how many tokens of `cache` [B, T, ...] each sequence has; they follow from B and T alone.

    Where 32 divides T every cache is full, as in published measurements. Elsewhere the first is full, the last has 1
    token, and those between have any number, not the same each.
    """
    import torch

    B, T = cache.shape[:2]
    if full(T):
        return torch.full((B,), T, dtype=torch.int32, device=cache.device)
    b = torch.arange(B, device=cache.device)
    lengths = T - b * 7919 % T
    if B > 1:
        lengths[-1] = 1
    return lengths.to(torch.int32)


def spoil(cache: torch.Tensor) -> torch.Tensor:
    """Fill `cache` [B, T, 1, ...] with NaN, bytes 0xFF, beyond `random_lengths`: nothing there may matter."""
    import torch

    beyond = torch.arange(cache.shape[1], device=cache.device) >= random_lengths(cache)[:, None]
    cache.view(torch.uint8)[beyond] = 0xFF
    return cache


def inside(rows: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """`rows` [B, T, 1, 128] as [B, 1, T, 128], with zeros where `spoil` put NaN."""
    import torch

    if full(rows.shape[1]):
        return rows.transpose(1, 2)
    within = torch.arange(rows.shape[1], device=rows.device) < lengths[:, None]
    return torch.where(within[..., None], rows[:, :, 0], 0).unsqueeze(1)


def attend(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """[B, HQ, 128]: softmax(Q K^T / sqrt(128)) V of Q [B, HQ, 128] and K, V [B, 1, T, 128], in their precision."""
    return weights(Q, K, lengths) @ V[:, 0]


def weights(Q: torch.Tensor, K: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """[B, HQ, T]: the softmax, 0 beyond each sequence's length."""
    import torch

    scores = Q @ K[:, 0].transpose(1, 2) / D**0.5
    beyond = torch.arange(K.shape[2], device=K.device) >= lengths[:, None, None]
    return scores.masked_fill(beyond, float("-inf")).softmax(-1)


def magnitude(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """float64 [B, HQ, 128]: what errors are relative to, in units of bfloat16's roundoff u.

    K, V and P are rounded to bfloat16 on their way into tensor cores. Each of these errors is at most u of what is
    rounded and takes its own sign, so variances add up: a score is off by e = u sqrt(sum (q k)^2 / 128), its weight p
    by a part e of itself, which moves the output by p e (v - o); and the product p v is off by u p |v|. The worst
    case, all errors in one direction, would be larger by about the square root of T, and let wrong kernels through.
    """
    P = weights(Q, K, lengths)
    k, v = K[:, 0], V[:, 0]
    O = P @ v
    score = (Q.square() @ k.square().transpose(1, 2)) / D  # e^2 / u^2
    p = P.square()
    moved = (p * score) @ v.square() - 2 * O * ((p * score) @ v) + O.square() * (p * score).sum(-1, keepdim=True)
    return O.abs() + (moved.clamp(min=0) + p @ v.square()).sqrt()


def baseline(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """bfloat16 [B, HQ, 128] by PyTorch's scaled dot product attention; K, V bfloat16 [B, 1, T, 128].

    `lengths` are `random_lengths`: whether they need a mask is told by T, for reading them would make the host wait.
    """
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    mask = None
    if not full(K.shape[2]):
        mask = (torch.arange(K.shape[2], device=K.device) < lengths[:, None])[:, None, None]
    O = scaled_dot_product_attention(Q.unsqueeze(2), K, V, attn_mask=mask, enable_gqa=True)
    return O.squeeze(2)
