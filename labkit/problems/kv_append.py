"""kv_append: new keys and values go into the cache: keys turned by their position (RoPE), both rounded to float16.

k and v are float32 [B, N, HKV, D], as the projections leave them: N new tokens for each of B sequences, N = 1 where
tokens are generated, many where a prompt is read. positions is int32 [B]: token n of sequence b stands at position
t = positions[b] + n. turn is float32 [T, D / 2, 2], the cosine and sine of t * 10000^(-2 p / D) for each position t
and pair p, made once and kept, as engines do. D is even; pairs are neighbors, as in the problem rope.

The caches K and V are float16 [B, T, HKV, D]. Of sequence b, the rows positions[b] to positions[b] + N - 1 are written,
and no other byte is: here, the others are NaN before and after.
"""

from __future__ import annotations

from labkit.errors import LabkitError
from labkit.models.decode import LLAMA_2_7B, MISTRAL_7B
from labkit.problems._metrics import INSTRUCTIONS, STORES
from labkit.problems.problem import Problem, Question, Step, Tensor

BASE = 10000.0
NAN = float("nan")


def _positions(known):
    """int32 [B] that follow from B, N and T: the first sequence's rows are the last of the cache, the last one's the
    first, and those between lie anywhere."""
    import torch

    B, free = known["B"], known["T"] - known["N"]
    if free < 0:
        raise LabkitError(f"A cache of {known['T']} tokens has no room for {known['N']} new ones.")
    b = torch.arange(B, device=known["k"].device)
    at = free - b * 7919 % (free + 1)
    if B > 1:
        at[-1] = 0
    return at.to(torch.int32)


def _turn(known):
    """float32 [T, D / 2, 2]: cosines and sines, from angles in float64."""
    import torch

    T, D = known["T"], known["D"]
    if D % 2:
        raise LabkitError(f"RoPE turns pairs, so the head size D must be even, not {D}.")
    place = {"dtype": torch.float64, "device": known["k"].device}
    theta = torch.arange(T, **place)[:, None] * BASE ** (-2 * torch.arange(D // 2, **place) / D)
    return torch.stack((theta.cos(), theta.sin()), -1).float()


def _at(positions, N):
    """[B, N] positions of the tokens."""
    import torch

    return positions.long()[:, None] + torch.arange(N, device=positions.device)


def _turned(k, turn, positions):
    """k with RoPE, in its own precision."""
    import torch

    cosine, sine = turn[_at(positions, k.shape[1])].to(k.dtype).unsqueeze(2).unbind(-1)
    a, b = k.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cosine - b * sine, a * sine + b * cosine), -1).flatten(-2)


def _caches(k, v, turn, positions, elsewhere=NAN):
    """Caches of as many tokens as `turn` has, with the rows of k and v in their places."""
    import torch

    which, at = torch.arange(len(k), device=k.device)[:, None], _at(positions, k.shape[1])
    caches = tuple(t.new_full((len(t), len(turn), *t.shape[2:]), elsewhere) for t in (k, v))
    for cache, rows in zip(caches, (k, v), strict=True):
        cache[which, at] = rows
    return caches


def reference(k, v, turn, positions):
    return _caches(_turned(k, turn, positions), v, turn, positions)


def baseline(k, v, turn, positions):
    """PyTorch's operators: RoPE in float32, rounding, indexed stores; it fills new caches besides."""
    return _caches(_turned(k, turn, positions).half(), v.half(), turn, positions)


def magnitude(k, v, turn, positions):
    """The sum of |products| of each key, and each value: 0 where nothing is written."""
    import torch

    a, b = k.abs().unflatten(-1, (-1, 2)).unbind(-1)
    cosine, sine = turn[_at(positions, k.shape[1])].abs().unsqueeze(2).unbind(-1)
    turned = torch.stack((a * cosine + b * sine, a * sine + b * cosine), -1).flatten(-2)
    return _caches(turned, v.abs(), turn, positions, 0.0)


def traffic(d) -> int:
    """Bytes: k and v in float32, their rows in float16, and of `turn` the rows of as many positions as there may be."""
    numbers = d["B"] * d["N"] * d["HKV"] * d["D"]
    return 2 * numbers * (4 + 2) + 4 * min(d["T"], d["B"] * d["N"]) * d["D"] + 4 * d["B"]


_NEW = ("B", "N", "HKV", "D")
_CACHE = Tensor(("B", "T", "HKV", "D"), "float16")
_PROMPT = {"B": 4, "N": 8192, "T": 8192, "HKV": 8, "D": 128}


def cache_bytes(model, context: int, number: float = 2.0) -> int:
    """Bytes of the whole cache of one sequence."""
    return model.bytes_per_token(context, cache=number)["key-value cache"]


problem = Problem(
    name="kv_append",
    lab="03_attention",
    formula="K[b, t] = half(RoPE of k[b, n] at t), V[b, t] = half(v[b, n]) at t = positions[b] + n",
    dims=("B", "N", "T", "HKV", "D"),
    inputs={
        "k": Tensor(_NEW),
        "v": Tensor(_NEW),
        "turn": Tensor(("T", "D // 2", 2), derive=_turn),
        "positions": Tensor(("B",), "int32", derive=_positions),
    },
    outputs={"K": _CACHE, "V": _CACHE},
    reference=reference,
    baseline=baseline,
    magnitude=magnitude,
    flops=lambda d: 3 * d["B"] * d["N"] * d["HKV"] * d["D"],  # 4 products and 2 sums per pair of K
    traffic=traffic,
    c=2.0,  # float32 sums of two products, then one rounding to float16
    ladder=(
        Step("three_kernels", "RoPE, a copy of K, a copy of V, as in llama.cpp", "launches; bytes in between"),
        Step("fused", "one kernel: a thread turns a pair of K and takes one of V along", "load and store requests",
             gates=(STORES,), timed=True),
        Step("vectorized", "16 bytes per access, a row of the table for 4 heads", "instructions; store requests",
             gates=(STORES, INSTRUCTIONS)),
    ),
    shapes=(
        {"B": 3, "N": 1, "T": 33, "HKV": 2, "D": 16},
        {"B": 1, "N": 1, "T": 1, "HKV": 1, "D": 2},
        {"B": 2, "N": 5, "T": 17, "HKV": 3, "D": 10},
        {"B": 5, "N": 3, "T": 129, "HKV": 5, "D": 64},
        {"B": 2, "N": 33, "T": 40, "HKV": 1, "D": 24},
        {"B": 17, "N": 1, "T": 9, "HKV": 8, "D": 128},
    ),
    large_shapes=(
        {"B": 64, "N": 1, "T": 2048, "HKV": 8, "D": 128},
        {"B": 3, "N": 777, "T": 1000, "HKV": 5, "D": 80},
        {"B": 2, "N": 129, "T": 131, "HKV": 7, "D": 34},
    ),
    profile_shape={"B": 8, "N": 1, "T": 64, "HKV": 8, "D": 128},
    odd_shape={"B": 7, "N": 3, "T": 61, "HKV": 5, "D": 72},
    bench_shape=_PROMPT,  # a prompt: 403 MB
    questions={
        "per_token": Question(
            "Mistral-7B has 32 layers with 8 heads of keys and values of 128 numbers. How many bytes does one token "
            "take in a cache in float16?",
            lambda: cache_bytes(MISTRAL_7B, 1),
            "bytes",
            "32 layers, keys and values, 8 heads, 128 numbers, 2 bytes: 128 KiB.",
        ),
        "llama_per_token": Question(
            "And of Llama 2 7B, with 32 heads of keys and values in each of its 32 layers?",
            lambda: cache_bytes(LLAMA_2_7B, 1),
            "bytes",
            "Four times as many heads: 512 KiB. Its query heads share nothing.",
        ),
        "room": Question(
            "llama.cpp makes room for 512 tokens of Llama 2 7B. How many MiB does the cache take in float16?",
            lambda: cache_bytes(LLAMA_2_7B, 512) / 2**20,
            "MiB",
            "256 MiB, and 512 MiB in float32, as llama.cpp's walk-through computes it.",
        ),
        "longest": Question(
            "A GPU has 24 GB, and the weights of Mistral-7B take 14.5 GB of it. How many tokens fit into what is left, "
            "in one cache in float16?",
            lambda: 9.5e9 / cache_bytes(MISTRAL_7B, 1),
            "tokens",
            "9.5e9 / 131,072.",
        ),
        "three_kernels/between": Question(
            "three_kernels stores the turned keys in float32 and reads them again. How many bytes more than fused does "
            "it move, per number of k?",
            lambda: 4 + 4,
            "bytes",
            "4 out and 4 in. fused moves 4 in and 2 out for a number of k.",
        ),
    },
)
