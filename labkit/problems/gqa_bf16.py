"""gqa_bf16: attention of one query token per sequence over a KV cache in bfloat16 with a single head, D = 128.

Q is bfloat16 [B, HQ, 128], the caches K and V are bfloat16 [B, T, 1, 128], lengths int32 [B] says how many of T tokens
each sequence has (at least 1), O is bfloat16 [B, HQ, 128]. All HQ query heads, 1 to 16, share the one head of the
cache, as on one of eight GPUs that hold a Llama 2 70B. What lies beyond a sequence's length is NaN.
"""

from __future__ import annotations

from labkit.problems import _kv_int4 as kv
from labkit.problems._metrics import INSTRUCTIONS, LOAD_CONFLICTS
from labkit.problems.problem import Problem, Question, Step, Tensor


def reference(Q, K, V, lengths, split_k=16):
    return kv.attend(Q, kv.inside(K, lengths), kv.inside(V, lengths), lengths)


def magnitude(Q, K, V, lengths, split_k=16):
    return kv.magnitude(Q, kv.inside(K, lengths), kv.inside(V, lengths), lengths)


def baseline(Q, K, V, lengths, split_k=16):
    """PyTorch's scaled dot product attention."""
    return kv.baseline(Q, kv.inside(K, lengths), kv.inside(V, lengths), lengths)


def _rows(shape, generator):
    import torch

    return kv.spoil(kv.random_rows(shape, generator).to(torch.bfloat16))


def flops(d):
    return 4 * d["B"] * d["HQ"] * d["T"] * kv.D  # a multiplication and an addition, in Q K^T and in P V


def intensity(row_bytes: float, heads: int = 8) -> float:
    """FLOP per byte of cache: the document's estimate, without scales and shifts where rows are bare."""
    return 4 * heads * kv.D / (2 * row_bytes)


def ridge() -> float:
    """FLOP per byte at which tensor cores and memory take the same time, by the ceilings measured on an H200."""
    from labkit.models.roofline import roofs

    return roofs("NVIDIA H200").ridges["tensor", "DRAM"]


SHAPES = (
    {"B": 2, "T": 33, "HQ": 8, "split_k": 2},
    {"B": 1, "T": 1, "HQ": 1},
    {"B": 3, "T": 123, "HQ": 5, "split_k": 3},
    {"B": 1, "T": 64, "HQ": 16, "split_k": 1},
    {"B": 3, "T": 301, "HQ": 9, "split_k": 2},
)
LARGE = (
    {"B": 3, "T": 16381, "HQ": 16},
    {"B": 16, "T": 8192, "HQ": 8, "split_k": 32},
    {"B": 37, "T": 2047, "HQ": 7, "split_k": 7},
)

problem = Problem(
    name="gqa_bf16",
    lab="04_int4_gqa",
    formula="O[b,h] = softmax(Q[b,h] K[b]^T / sqrt(128)) V[b]",
    dims=("B", "T", "HQ"),
    inputs={
        "Q": Tensor(("B", "HQ", kv.D), "bfloat16"),
        "K": Tensor(("B", "T", 1, kv.D), "bfloat16", _rows),
        "V": Tensor(("B", "T", 1, kv.D), "bfloat16", _rows),
        "lengths": Tensor(("B",), "int32", derive=lambda i: kv.random_lengths(i["K"])),
    },
    outputs={"O": Tensor(("B", "HQ", kv.D), "bfloat16")},
    reference=reference,
    baseline=baseline,
    magnitude=magnitude,
    flops=flops,
    math="bfloat16",
    options={"split_k": 16},
    ladder=(
        Step("cuda_core", "a warp per token, lanes share a row", "instructions per byte"),
        Step(
            "cu_baseline", "8 heads at once on tensor cores, 4 warps", "tensor operations; local memory",
            gates=(INSTRUCTIONS,),
        ),
        Step(
            "cu_optimized", "int4_gqa's rungs, as far as they concern bfloat16", "stalls; bank conflicts",
            gates=(LOAD_CONFLICTS,),
        ),
        Step("direct_mma", "ldmatrix and mma on tiles that arrive ahead; work cut evenly", "DRAM throughput"),
    ),
    shapes=SHAPES,
    large_shapes=LARGE,
    profile_shape={"B": 2, "T": 256, "HQ": 8, "split_k": 1},
    odd_shape={"B": 3, "T": 219, "HQ": 6, "split_k": 2},
    bench_shape={"B": 512, "T": 8192, "HQ": 8, "split_k": 16},
    questions={
        "intensity": Question(
            "8 query heads share a cache in bfloat16. How many FLOP are done per byte of K and V read?",
            lambda: intensity(2 * kv.D),
            "FLOP/byte",
            "Each number of K and of V is 2 bytes, and takes part in 8 multiplications and 8 additions.",
        ),
        "intensity_alone": Question(
            "And if each query head had a K and a V of its own, as in the first transformers?",
            lambda: intensity(2 * kv.D, heads=1),
            "FLOP/byte",
            "Each number is used once, in one multiplication and one addition, and costs 2 bytes.",
        ),
        "cache_gigabytes": Question(
            "Llama 2 70B has 80 layers with 8 heads of K and V, of 128 numbers each. How many GB (10^9 bytes) is the "
            "cache of one sequence of 8192 tokens in bfloat16, on all GPUs together?",
            lambda: 80 * 8 * 8192 * 2 * 2 * kv.D / 1e9,
            "GB",
            "K and V, 256 bytes a row each.",
        ),
        "heads_to_ridge": Question(
            "How many query heads would have to share a head of K and V in bfloat16, for tensor cores to be the limit? "
            "Take the ceilings that were measured on an H200.",
            ridge,
            "heads",
            "In bfloat16 the FLOP per byte are as many as the heads.",
        ),
    },
)
