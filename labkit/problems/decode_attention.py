"""decode_attention: softmax(Q K^T / sqrt(D)) V of one new token over a cache in float16, as llama.cpp has it in memory.

Q is float32 [HQ, D], K is float16 [T, HKV, D]: token by token, so that a head's rows lie HKV * D numbers apart. V is
float16 [HKV, D, C], turned round and with room for C tokens, of which T are there: numbers of one d lie side by side,
the next d is C further. What lies beyond T is NaN. O is float32 [HQ, D]. Query head h reads the head h / (HQ / HKV) of
the cache. D is at most 256, C at least T.

The new token is number n_past and sees the tokens 0 .. n_past; n_past -1 stands for T - 1, which masks none. A key
whose score is -inf is left out; where all of a head's keys are, O is 0.
"""

from __future__ import annotations

import math

from labkit.errors import LabkitError
from labkit.problems import attention
from labkit.problems._metrics import STORE_SECTORS
from labkit.problems.problem import Problem, Question, Step, Tensor


def _tensors(Q, K, V, n_past):
    """Q, K, V as [1, heads, tokens, D], with the keys that are seen; LabkitError where the shapes do not fit."""
    (HQ, D), (T, HKV, _) = Q.shape, K.shape
    if HQ % HKV:
        raise LabkitError(f"HQ must be a multiple of HKV, so that cache heads serve equally many, not {HQ} and {HKV}.")
    if V.shape[2] < T:
        raise LabkitError(f"V has room for {V.shape[2]} tokens, and there are {T}.")
    if D > 256:
        raise LabkitError(f"The head size D is at most 256, not {D}.")
    seen = keys(T, n_past)
    return Q[None, :, None], K[None, :seen].transpose(1, 2), V[None, :, :, :seen].transpose(2, 3)


def keys(T: int, n_past: int = -1) -> int:
    """How many tokens the new one sees."""
    return T if n_past < 0 else min(T, n_past + 1)


def _rows(O):
    return O[0, :, 0]


def reference(Q, K, V, n_past=-1):
    Q, K, V = _tensors(Q, K, V, n_past)
    O = Q.new_empty(Q.shape)
    for b, h, g in _heads(Q, K):
        p, _ = attention.probabilities(Q[b, h], K[b, g], 0.0, 0)
        O[b, h] = p @ V[b, g]
    return _rows(O)


def _heads(Q, K):
    group = Q.shape[1] // K.shape[1]
    return [(0, h, h // group) for h in range(Q.shape[1])]


def baseline(Q, K, V, n_past=-1):
    """PyTorch's scaled dot product attention in float32, the cache widened first."""
    from torch.nn.functional import scaled_dot_product_attention

    Q, K, V = _tensors(Q, K, V, n_past)
    return _rows(scaled_dot_product_attention(Q, K.float(), V.float(), enable_gqa=Q.shape[1] != K.shape[1]))


def magnitude(Q, K, V, n_past=-1):
    """What rounding errors are relative to, as in the problem attention."""
    Q, K, V = _tensors(Q, K, V, n_past)
    O = Q.new_empty(Q.shape)
    for b, h, g in _heads(Q, K):
        p, _ = attention.probabilities(Q[b, h], K[b, g], 0.0, 0)
        a = attention.scores(Q[b, h].abs(), K[b, g].abs().nan_to_num(posinf=0.0), 0.0, 0)
        O[b, h] = (p * (1 + a + (p * a).sum(-1, keepdim=True))) @ V[b, g].abs()
    return _rows(O)


def _queries(shape, generator):
    """Standard normal, the first number of each positive; the last of several heads has scores of 100 and more."""
    import torch

    Q = torch.randn(shape, generator=generator, device=generator.device)
    Q[:, 0].abs_().add_(0.5)
    if shape[0] > 1:
        Q[-1] *= 40
    return Q


def _keys(shape, generator):
    """Standard normal; of several heads, -inf leaves out one key in 8 in the last, of three and more all in the one
    before. Long caches, which are timed, have none."""
    import torch

    T, HKV, _ = shape
    K = torch.randn(shape, generator=generator, device=generator.device)
    left_out = torch.rand(T, generator=generator, device=generator.device) < 1 / 8
    if HKV > 1 and T < attention.LONG:
        K[left_out, -1, 0] = -math.inf
    if HKV > 2 and T < attention.LONG:
        K[:, -2, 0] = -math.inf
    return K.half()


def _values(known):
    """Standard normal, other numbers for other keys; NaN beyond T."""
    import torch

    K, shape = known["K"], (known["HKV"], known["D"], known["C"])
    generator = torch.Generator(device=K.device).manual_seed(int(K.view(torch.int16).long().sum().abs()))
    V = torch.randn(shape, generator=generator, device=K.device).half()
    V[..., known["T"] :] = math.nan
    return V


LLAMA = {"T": 511, "HQ": 32, "HKV": 32, "D": 128, "C": 512}  # Llama 2 7B in llama.cpp's context of 512

problem = Problem(
    name="decode_attention",
    lab="03_attention",
    formula="O[h] = softmax(Q[h] K[:, g]^T / sqrt(D)) V[g], g = h / (HQ / HKV)",
    dims=("T", "HQ", "HKV", "D", "C"),
    inputs={
        "Q": Tensor(("HQ", "D"), make=_queries),
        "K": Tensor(("T", "HKV", "D"), "float16", make=_keys),
        "V": Tensor(("HKV", "D", "C"), "float16", derive=_values),
    },
    outputs={"O": Tensor(("HQ", "D"))},
    reference=reference,
    baseline=baseline,
    magnitude=magnitude,
    flops=lambda d: 4 * d["HQ"] * d["D"] * keys(d["T"], d.get("n_past", -1)),
    traffic=lambda d: 4 * d["HKV"] * d["D"] * keys(d["T"], d.get("n_past", -1)) + 8 * d["HQ"] * d["D"],
    options={"n_past": -1},
    ladder=(
        Step("five_kernels", "llama.cpp's: scores, scale, mask, softmax, values", "launches; store sectors"),
        Step("fused", "one kernel, a block per head: scores stay in shared memory", "launches; store sectors",
             gates=(STORE_SECTORS,), timed=True),
    ),
    shapes=(
        {"T": 33, "HQ": 4, "HKV": 2, "D": 64, "C": 40},
        {"T": 1, "HQ": 1, "HKV": 1, "D": 1, "C": 1},
        {"T": 17, "HQ": 3, "HKV": 3, "D": 33, "C": 17},
        {"T": 129, "HQ": 8, "HKV": 1, "D": 128, "C": 512},
        {"T": 40, "HQ": 3, "HKV": 1, "D": 20, "C": 41, "n_past": 6},
        {"T": 603, "HQ": 3, "HKV": 3, "D": 24, "C": 611},
        {"T": 1100, "HQ": 2, "HKV": 2, "D": 12, "C": 1103},
    ),
    large_shapes=(LLAMA, {"T": 4097, "HQ": 32, "HKV": 8, "D": 128, "C": 8192},
                  {"T": 1531, "HQ": 12, "HKV": 4, "D": 80, "C": 1531, "n_past": 1100}),
    profile_shape={"T": 200, "HQ": 4, "HKV": 4, "D": 64, "C": 256},
    odd_shape={"T": 157, "HQ": 6, "HKV": 3, "D": 72, "C": 161},
    bench_shape={"T": 32768, "HQ": 32, "HKV": 32, "D": 128, "C": 32768},  # 537 MB
    questions={
        "intensity": Question(
            "One query head reads a cache head of its own in float16. How many FLOP are done per byte of K and V?",
            lambda: (4 * 128) / (2 * 128 * 2),
            "FLOP/byte",
            "Each number of K and of V takes a multiplication and an addition, and 2 bytes.",
        ),
        "five_kernels/blocks": Question(
            "llama.cpp starts a block of one warp per score. How many blocks is that for Llama 2 7B with 511 tokens?",
            lambda: 511 * 32,
            "blocks",
            "511 tokens times 32 heads; each does one dot product of 128 numbers.",
        ),
        "five_kernels/score_bytes": Question(
            "Scores are stored by the first kernel, read and stored by each of the next three, and read by the last. "
            "How many bytes does that move, for 32 heads and 511 tokens in float32?",
            lambda: (1 + 3 * 2 + 1) * 4 * 32 * 511,
            "bytes",
            "8 times over 65,408 bytes. The cache itself is 8.4 MB: it is the launches that hurt, not these bytes.",
        ),
        "fused/blocks": Question(
            "fused has one block per head. How many of the 132 multiprocessors of an H200 have nothing to do, with 32 "
            "heads?",
            lambda: 132 - 32,
            "",
            "A block never leaves its multiprocessor.",
        ),
    },
)
