"""decode_attention_f16: attention of one new token per sequence over a batch of caches, all in float16.

Q is float16 [B, HQ, D], the caches K and V are float16 [B, T, HKV, D] with room for T tokens; sequence b has lengths[b]
of them, 0 to T. O is float16 [B, HQ, D]: softmax(Q K^T / sqrt(D)) V, query head h on the head h / (HQ / HKV) of the
cache. D is 64 or 128. What lies beyond a sequence's length is NaN. A key whose score is -inf is left out; where all
keys are, or there is none, O is 0. splits says into how many pieces the tokens of a sequence are cut; 0 lets the kernel
choose.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from labkit.errors import LabkitError
from labkit.problems._kv_int4 import full
from labkit.problems._metrics import BUSIEST, LOAD_SECTORS
from labkit.problems.attention import LONG, queries
from labkit.problems.problem import Problem, Question, Step, Tensor

FULL_GPU = 1056  # blocks of split_kv that 132 multiprocessors hold, 8 each


def lengths_of(B: int, T: int, device: str = "cpu"):
    """int32 [B] lengths, which follow from B and T alone.

    Where 32 divides T all caches are full, as in published measurements. Elsewhere the first is full, the second of
    three and more is empty, the last has 1 token, and the others have any number.
    """
    import torch

    if full(T):
        return torch.full((B,), T, dtype=torch.int32, device=device)
    lengths = T - torch.arange(B, device=device) * 7919 % T
    if B > 1:
        lengths[-1] = 1
    if B > 2:
        lengths[1] = 0
    return lengths.to(torch.int32)


def _rows(shape, generator, dtype, keys):
    """Standard normal, NaN beyond each length. Of keys, -inf leaves out one in 8 in the first sequence's last head,
    and all in the first head of the last of several sequences. Long caches, which are timed, have none."""
    import torch

    B, T = shape[:2]
    x = torch.randn(shape, generator=generator, device=generator.device).to(getattr(torch, dtype))
    left_out = torch.rand(T, generator=generator, device=generator.device) < 1 / 8
    if keys and 1 < T < LONG:
        x[0, left_out, -1, 0] = -math.inf
    if keys and B > 1 and T < LONG:
        x[-1, :, 0, 0] = -math.inf
    x[torch.arange(T, device=x.device) >= lengths_of(B, T, x.device)[:, None]] = math.nan
    return x


def _sequences(Q, K, V, lengths):
    """Of each sequence: q [HKV, HQ / HKV, D], k and v [HKV, tokens, D]."""
    (_, HQ, D), HKV = Q.shape, K.shape[2]
    if HQ % HKV:
        raise LabkitError(f"HQ must be a multiple of HKV, so that cache heads serve equally many, not {HQ} and {HKV}.")
    if D not in (64, 128):
        raise LabkitError(f"The head size D must be 64 or 128, not {D}.")
    for b, length in enumerate(lengths.tolist()):
        yield Q[b].view(HKV, HQ // HKV, D), K[b, :length].transpose(0, 1), V[b, :length].transpose(0, 1)


def _weights(q, k):
    """The scores' softmax, 0 in rows without keys."""
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
    total = scores.logsumexp(-1, keepdim=True)
    return (scores - total.masked_fill(total == -math.inf, 0.0)).exp()


def reference(Q, K, V, lengths, splits=0):
    import torch

    rows = [_weights(q, k) @ v for q, k, v in _sequences(Q, K, V, lengths)]
    return torch.stack(rows).view(Q.shape)


def magnitude(Q, K, V, lengths, splits=0, weight=1.0, of_scores=1.0):
    """What rounding errors are relative to, as in the problem attention, with its weight and of_scores."""
    import torch

    rows = []
    for q, k, v in _sequences(Q, K, V, lengths):
        p = _weights(q, k)
        a = q.abs() @ k.abs().nan_to_num(posinf=0.0).transpose(1, 2) / math.sqrt(q.shape[-1])
        rows.append((p * (weight + of_scores * (a + (p * a).sum(-1, keepdim=True)))) @ v.abs())
    return torch.stack(rows).view(Q.shape)


def baseline(Q, K, V, lengths, splits=0):
    """PyTorch's scaled dot product attention; where caches are not all full, with a mask.

    That they are full is told by T: reading `lengths` would make the host wait.
    """
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    mask = None
    if not full(K.shape[1]):
        within = torch.arange(K.shape[1], device=K.device) < lengths[:, None]
        K, V = (torch.where(within[..., None, None], t, 0) for t in (K, V))
        mask = within[:, None, None]
    K, V, gqa = K.transpose(1, 2), V.transpose(1, 2), Q.shape[1] != K.shape[2]
    return scaled_dot_product_attention(Q.unsqueeze(2), K, V, attn_mask=mask, enable_gqa=gqa).squeeze(2)


def _backend(name, Q, K, V, lengths, splits=0):
    """PyTorch's, by one of its backends."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(getattr(SDPBackend, name)):
        return baseline(Q, K, V, lengths)


def splits_of(d, blocks: int = FULL_GPU) -> int:
    """Into how many pieces split_kv cuts the tokens of each sequence: enough to fill the GPU, of 256 and more."""
    return d.get("splits") or max(1, min((d["T"] + 255) // 256, blocks // (d["B"] * d["HQ"])))


def in_16_bits(name: str, dtype: str, roundoff: float, ladder, **more) -> Problem:
    """The problem in float16 or bfloat16; roundoff is the dtype's.

    P and O are rounded to 16 bits once each, as in attention_f16: weights of 2 for c = 8.
    """
    rows = ("B", "T", "HKV", "D")
    return Problem(
        name=name,
        lab="03_attention",
        formula="O[b, h] = softmax(Q[b, h] K[b, :, g]^T / sqrt(D)) V[b, :, g], g = h / (HQ / HKV)",
        dims=("B", "T", "HQ", "HKV", "D"),
        inputs={
            "Q": Tensor(("B", "HQ", "D"), dtype, make=queries(dtype)),
            "K": Tensor(rows, dtype, make=partial(_rows, dtype=dtype, keys=True)),
            "V": Tensor(rows, dtype, make=partial(_rows, dtype=dtype, keys=False)),
            "lengths": Tensor(("B",), "int32", derive=lambda i: lengths_of(i["B"], i["T"], i["Q"].device)),
        },
        outputs={"O": Tensor(("B", "HQ", "D"), dtype)},
        reference=reference,
        baseline=baseline,
        rivals={f"torch_{n}": partial(_backend, f"{n.upper()}_ATTENTION") for n in ("flash", "cudnn")},
        magnitude=partial(magnitude, weight=2 / 8, of_scores=2.0**-24 / roundoff),
        flops=lambda d: 4 * d["B"] * d["HQ"] * d["T"] * d["D"],
        math=dtype,
        options={"splits": 0},
        kernels="decode_attention_f16",
        ladder=ladder,
        shapes=(
            {"B": 2, "T": 33, "HQ": 4, "HKV": 2, "D": 64, "splits": 2},
            {"B": 1, "T": 1, "HQ": 1, "HKV": 1, "D": 128},
            {"B": 3, "T": 17, "HQ": 3, "HKV": 3, "D": 128},
            {"B": 2, "T": 259, "HQ": 8, "HKV": 1, "D": 128, "splits": 1},
            {"B": 2, "T": 129, "HQ": 5, "HKV": 1, "D": 128, "splits": 3},
            {"B": 1, "T": 411, "HQ": 17, "HKV": 1, "D": 64, "splits": 1},
            {"B": 4, "T": 301, "HQ": 6, "HKV": 2, "D": 128},
            {"B": 34, "T": 7, "HQ": 1, "HKV": 1, "D": 64, "splits": 1},
        ),
        large_shapes=(
            {"B": 1, "T": 131071, "HQ": 8, "HKV": 1, "D": 128},
            {"B": 7, "T": 16385, "HQ": 32, "HKV": 8, "D": 128},
            {"B": 300, "T": 1023, "HQ": 12, "HKV": 4, "D": 64},
            {"B": 2, "T": 4097, "HQ": 71, "HKV": 1, "D": 64, "splits": 7},
        ),
        profile_shape={"B": 1, "T": 512, "HQ": 8, "HKV": 1, "D": 128},
        odd_shape={"B": 3, "T": 219, "HQ": 12, "HKV": 2, "D": 128},
        bench_shape={"B": 512, "T": 8192, "HQ": 8, "HKV": 1, "D": 128},
        recorded_at={
            "bench": tuple(
                {"B": B, "T": T, "HQ": 8, "HKV": 1, "D": 128} for B, T in ((512, 8192), (8, 16384), (1, 131072))
            )
        },
        **more,
    )


_MMA = Step(
    "split_kv_mma", "query heads of a group as rows of one product; work cut evenly; copies ahead",
    "load sectors; tensor operations; DRAM throughput", gates=(LOAD_SECTORS,), timed=True,
)

problem = in_16_bits(
    "decode_attention_f16",
    "float16",
    2.0**-11,
    ladder=(
        Step("one_block", "a block per sequence and query head, 16 bytes per load", "blocks; waves"),
        Step("split_kv", "a sequence's tokens cut into pieces, whose results are put together", "blocks; launches",
             gates=(BUSIEST,), gate_shape={"B": 1, "T": 4096, "HQ": 8, "HKV": 1, "D": 128}, timed=True),
        _MMA,
    ),
    questions={
        "intensity": Question(
            "8 query heads share a head of the cache in float16. How many FLOP are done per byte of K and V?",
            lambda: (4 * 8 * 128) / (2 * 128 * 2),
            "FLOP/byte",
            "Each number of K and of V takes part in 8 multiplications and 8 additions, and is 2 bytes.",
        ),
        "one_block/blocks": Question(
            "B = 1, HQ = 8. How many of the 132 multiprocessors of an H200 have a block of one_block?",
            lambda: 1 * 8,
            "",
            "One block per sequence and query head, whatever the length.",
        ),
        "split_kv/splits": Question(
            "B = 1, HQ = 8, T = 131072. Into how many pieces must the tokens be cut to have 8 blocks on each of 132 "
            "multiprocessors?",
            lambda: splits_of({"B": 1, "HQ": 8, "T": 131072}),
            "pieces",
            "1056 blocks, 8 of them for each piece. A piece has 993 tokens.",
        ),
        "split_kv/batch": Question(
            "And for B = 512, HQ = 8?",
            lambda: splits_of({"B": 512, "HQ": 8, "T": 8192}),
            "",
            "4096 blocks without any cut: the batch fills the GPU by itself.",
        ),
        "split_kv/parts": Question(
            "A piece leaves 128 sums and 2 statistics in float32 for each query head. How many percent of the bytes of "
            "K and V that it read are these, if it has 993 tokens of float16?",
            lambda: 100 * (128 + 2) * 4 / (2 * 993 * 128 * 2),
            "%",
            "520 bytes for 508,416. They are written once and read once.",
        ),
        "split_kv_mma/reads": Question(
            "With 8 query heads for each head of the cache: how many times fewer loads of K and V does split_kv_mma "
            "issue, in bytes?",
            lambda: 8,
            "times",
            "split_kv reads a token once for each query head, split_kv_mma once.",
        ),
        "split_kv_mma/in_flight": Question(
            "A warp has 2 stages of 16 tokens of K and V under way, D = 128 in float16, and a multiprocessor holds 2 "
            "blocks of 4 warps. How many bytes are in flight on it?",
            lambda: 2 * 4 * 2 * 2 * 16 * 128 * 2,
            "bytes",
            "128 KiB. Little's law asks for about 26,000 bytes: 4.8 TB/s times 700 ns, shared by 132.",
        ),
    },
)
BF16_LADDER = (  # with no rung below, of which a gate could tell it
    replace(
        _MMA, defines=("BF16",), languages=("cuda",), gates=(), timed=False,
        why="the numba kernel is written for float16; gqa_bf16/direct_mma is one for bfloat16",
    ),
)
