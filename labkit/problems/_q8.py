"""Blocks of 32 weights in 8 bits, byte by byte, and how far off a product with them may be.

block_q8_0, 34 bytes (llama.cpp's files): bytes 0 and 1 are a float16 scale d, low byte first; bytes 2 to 33 are 32
signed bytes q, and weight i is d * q[i]. A row of K weights is K / 32 blocks, one after the other. Rows and blocks
start on 2 bytes only.

block_q8_1, 36 bytes (activations, quantized for one product): bytes 0 and 1 are a float16 scale d, bytes 2 and 3 the
sum of the 32 numbers in float16 (of use to formats with an offset; q8_0 has none), bytes 4 to 35 are 32 signed bytes q.
d = max|x| / 127, q = x / d rounded to the nearest; a block of zeros has d = 0 and q = 0. Blocks start on 4 bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.errors import LabkitError

if TYPE_CHECKING:
    import torch

QK = 32  # weights of a block
Q8_0, Q8_1 = 2 + QK, 4 + QK  # bytes of a block
U16, U32 = 2.0**-11, 2.0**-24  # unit roundoffs


def random_blocks(shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
    """uint8 [M, K / 32 * 34]: scales from 1/256 to 1/64, and any q from -127 to 127."""
    import torch

    M, row = shape
    where = {"generator": generator, "device": generator.device}
    blocks = torch.randint(-127, 128, (M, row // Q8_0, Q8_0), dtype=torch.int8, **where)
    scales = 2 ** (torch.rand((M, row // Q8_0, 1), **where) * 2 - 8)
    blocks[..., :2] = scales.half().view(torch.int8)
    return blocks.view(torch.uint8).reshape(M, row)


def random_activations(shape: tuple[int], generator: torch.Generator) -> torch.Tensor:
    """float32 [K], standard normal, but for the second block, which is zeros; LabkitError unless 32 divides K."""
    import torch

    if shape[0] % QK:
        raise LabkitError(f"K of matvec_q8_0 must be a multiple of {QK}, its blocks' size; {shape[0]} is not.")
    x = torch.randn(shape, generator=generator, device=generator.device)
    x[QK : 2 * QK] = 0
    return x


def quants(W: torch.Tensor) -> torch.Tensor:
    """int8 [M, K]: the q of all blocks of W, side by side."""
    import torch

    return W.view(torch.int8).reshape(len(W), -1, Q8_0)[..., 2:].reshape(len(W), -1).contiguous()


def scales(W: torch.Tensor) -> torch.Tensor:
    """float16 [M, K / 32]: the d of all blocks of W."""
    import torch

    return W.view(torch.float16).reshape(len(W), -1, Q8_0 // 2)[..., 0].contiguous()


def weights(W: torch.Tensor) -> torch.Tensor:
    """float64 [M, K / 32, 32]: what the blocks of W stand for."""
    return quants(W).double().reshape(len(W), -1, QK) * scales(W).double()[..., None]


def product(W: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """float64 [M]: the weights times x, neither of them rounded."""
    return weights(W).flatten(1) @ x.double()


def magnitude(W: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """float64 [M]: what errors are relative to, in units of float32's roundoff, where x may be rounded to 8 bits.

    Rounding x to q8_1 is part of the operation, so the bound must grant it. With d = max|x| / 127 in a block, each
    number is off by up to d / 2, evenly spread: a variance of d^2 / 12, and of w^2 d^2 / 12 in the product. Rounding d
    to float16 makes the block's part p of the sum off by up to 2^-11 p: a variance of (2^-11 p)^2 / 3. Variances of
    independent errors add up over a row. The tails of evenly spread errors are no heavier than a normal distribution's
    of the same variance, so that c = 8 standard deviations are passed in less than one of 10^13 sums. A worst case, all
    errors in one direction, would be larger by about the square root of K, and would let wrong kernels through.
    """
    w, blocks = weights(W), x.double().reshape(-1, QK)
    d = blocks.abs().amax(1) / 127
    parts = (w * blocks).sum(2)
    variance = (w.square().sum(2) * d.square() / 12 + (U16 * parts).square() / 3).sum(1)
    return w.abs().flatten(1) @ x.double().abs() + variance.sqrt() / U32
