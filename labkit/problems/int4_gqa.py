"""int4_gqa: attention of one query token per sequence over a KV cache in 4 bits with a single head, D = 128.

As gqa_bf16, but K and V are uint8 [B, T, 1, 68], rows of 128 numbers in 4 bits with one float16 scale and shift (row-
wise; `labkit.problems._kv_int4` has the layout byte by byte). int4_gqa_4group is the same with 4 scales and shifts a
row. `split_k` says into how many pieces a sequence's tokens are cut, for the blocks of a GPU to share.
"""

from __future__ import annotations

from labkit.problems import _kv_int4 as kv
from labkit.problems import gqa_bf16
from labkit.problems.problem import Problem, Step, Tensor

_WMMA = "numba has no wmma fragments"
_BF16 = "labkit's mma for numba takes float16, not bfloat16"


def _dequantized(K, V, lengths, dtype=None):
    return (kv.inside(kv.dequantize(cache, dtype), lengths) for cache in (K, V))


def reference(Q, K, V, lengths, split_k=16):
    return kv.attend(Q, *_dequantized(K, V, lengths), lengths)


def magnitude(Q, K, V, lengths, split_k=16):
    return kv.magnitude(Q, *_dequantized(K, V, lengths), lengths)


def baseline(Q, K, V, lengths, split_k=16):
    """The cache in bfloat16, then PyTorch's scaled dot product attention."""
    import torch

    return kv.baseline(Q, *_dequantized(K, V, lengths, torch.bfloat16), lengths)


def banks(words: list[int]) -> int:
    """How many of the 32 banks 4-byte words fall into."""
    return len({word % 32 for word in words})


def passes(words: list[int]) -> int:
    """Wavefronts that lanes' 4-byte words take: the most distinct words in one bank."""
    distinct = [word % 32 for word in set(words)]
    return max(distinct.count(bank) for bank in distinct)


# Where lane `4 g + q` finds its first number of a fragment of P, 8 heads by 16 tokens, if heads are `row` words apart.
def _p_words(row: int) -> list[int]:
    return [row * (lane // 4) + 2 * (lane % 4) for lane in range(32)]


# Where lane `4 g + q` finds a pair of numbers of K, 32 tokens of 16 numbers, if tokens are `row` words apart.
def _k_words(row: int) -> list[int]:
    return [row * (lane // 4) + lane % 4 for lane in range(32)]


def _fragment(name: str, change: str, moves: str) -> Step:
    return Step(name, change, moves, languages=("cuda",), why=_WMMA)


LADDER = (
    Step("cuda_core", "a warp per token, lanes share a row", "instructions per number"),
    _fragment("cu_baseline", "8 heads at once on tensor cores, 4 warps", "tensor operations; instructions"),
    _fragment("opt01_unroll_k", "8 words of K loaded before the first is used", "long scoreboard stalls at K"),
    _fragment("opt02_cast_p", "P to bfloat16 in place, two at a time", "shared wavefronts; barriers"),
    _fragment("opt03_max_registers", "a thread's maximum is of one head", "local loads and stores"),
    _fragment("opt04_sum_registers", "so is its sum", "local loads and stores"),
    _fragment("opt05_prefetch_v", "V's next words on their way during the product", "long scoreboard stalls at V"),
    _fragment("opt06_group_vector_loads", "8 bytes a load, if rows let it", "global load requests"),
    _fragment("opt07_max_from_fragment", "the maximum out of the fragments", "shared load wavefronts"),
    _fragment("opt08_p_into_fragment", "P rounded on its way into the fragment", "barriers; shared stores"),
    _fragment("opt09_swizzle_p", "P tile by tile in shared memory", "shared bank conflicts"),
    _fragment("opt10_pad_dequant", "rows of dequantised K and V padded", "shared bank conflicts"),
    Step(
        "opt11_direct_mma", "packed words straight into mma's fragments; scales outside", "instructions per number",
        languages=("cuda",), why=_BF16,
    ),
)

problem = Problem(
    name="int4_gqa",
    lab="04_int4_gqa",
    formula="O[b,h] = softmax(Q[b,h] K[b]^T / sqrt(128)) V[b], K, V = q * scale + shift",
    dims=("B", "T", "HQ"),
    inputs={
        "Q": Tensor(("B", "HQ", kv.D), "bfloat16"),
        "K": Tensor(("B", "T", 1, kv.row_bytes(1)), "uint8", kv.random_cache),
        "V": Tensor(("B", "T", 1, kv.row_bytes(1)), "uint8", kv.random_cache),
        "lengths": Tensor(("B",), "int32", derive=lambda inputs: kv.random_lengths(inputs["K"])),
    },
    outputs={"O": Tensor(("B", "HQ", kv.D), "bfloat16")},
    reference=reference,
    baseline=baseline,
    magnitude=magnitude,
    flops=gqa_bf16.flops,
    math="bfloat16",
    options={"split_k": 16},
    ladder=LADDER,
    shapes=gqa_bf16.SHAPES,
    large_shapes=gqa_bf16.LARGE,
    profile_shape=gqa_bf16.problem.profile_shape,
    odd_shape=gqa_bf16.problem.odd_shape,
    bench_shape=gqa_bf16.problem.bench_shape,
    questions={},
)
