"""attention: O = softmax(scale Q K^T) V in float32, and L, the logarithm of each row's sum of exponentials.

Q is [B, H, N, D], K and V are [B, HK, NK, D]; D is 32, 64 or 128, every length at least 1. H is a multiple of HK: query
head h reads the key head h / (H / HK) (grouped queries). scale 0 stands for 1 / sqrt(D); otherwise it is positive.
With causal, query i sees the keys 0 .. i, also where N and NK differ, as in PyTorch. A key whose score is -inf is left
out; a row of which every key is left out has O = 0 and L = -inf, as in PyTorch.
"""

from __future__ import annotations

import math

from labkit.errors import LabkitError
from labkit.problems._metrics import LOAD_SECTORS, LOADS, STORE_SECTORS
from labkit.problems.problem import Problem, Question, Step, Tensor

LONG = 1024  # keys from which on the data are plain, as they are timed


def pairs(d) -> int:
    """Pairs of a query and a key that it sees, of one head."""
    N, NK = d["N"], d["NK"]
    if not d.get("causal"):
        return N * NK
    seen = min(N, NK)  # queries that see one key more than the last
    return seen * (seen + 1) // 2 + (N - seen) * NK


def flops(d) -> int:
    return 4 * d["B"] * d["H"] * d["D"] * pairs(d)  # two products, a multiplication and an addition each


def heads(Q, K):
    """(batch, query head, key head) of every head; LabkitError where the shapes do not fit."""
    (B, H, _, D), HK = Q.shape, K.shape[1]
    if H % HK:
        raise LabkitError(f"H must be a multiple of HK, so that key heads serve equally many; {H} and {HK} are not.")
    if D not in (32, 64, 128):
        raise LabkitError(f"The head dimension D must be 32, 64 or 128, not {D}.")
    return [(b, h, h // (H // HK)) for b in range(B) for h in range(H)]


def scores(q, k, scale, causal):
    """The scaled scores of one head, [N, NK]; -inf where a query does not see a key."""
    s = (q @ k.T) * (scale or 1 / math.sqrt(q.shape[-1]))
    return s.masked_fill_(s.new_ones(s.shape).tril_() == 0, -math.inf) if causal else s


def probabilities(q, k, scale, causal):
    """softmax of one head's scores, 0 in rows of -inf, and the logarithm of each row's sum."""
    s = scores(q, k, scale, causal)
    L = s.logsumexp(-1)
    return s.sub_(L.masked_fill(L == -math.inf, 0.0)[:, None]).exp_(), L


def reference(Q, K, V, scale=0.0, causal=0):
    """Head by head, so that a long row's N x NK numbers are there once."""
    O, L = Q.new_empty(Q.shape), Q.new_empty(Q.shape[:3])
    for b, h, g in heads(Q, K):
        p, L[b, h] = probabilities(Q[b, h], K[b, g], scale, causal)
        O[b, h] = p @ V[b, g]
    return O, L


def baseline(Q, K, V, scale=0.0, causal=0):
    """PyTorch's own: on a GPU the kernel that scaled_dot_product_attention would pick, with its L."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    scale, causal, same = scale or 1 / math.sqrt(Q.shape[-1]), bool(causal), Q.shape[1] == K.shape[1]
    if Q.is_cuda:
        if Q.dtype != torch.float32 and (not causal or Q.shape[2] == K.shape[2]):
            return torch.ops.aten._scaled_dot_product_flash_attention(Q, K, V, 0.0, causal, scale=scale)[:2]
        K, V = (t if same else t.repeat_interleave(Q.shape[1] // K.shape[1], 1) for t in (K, V))
        return rival("efficient")(Q, K, V, scale, causal)
    O = scaled_dot_product_attention(Q, K, V, is_causal=causal, scale=scale, enable_gqa=not same)
    L = torch.stack([scores(Q[b, h].float(), K[b, g].float(), scale, causal).logsumexp(-1) for b, h, g in heads(Q, K)])
    return O, L.view(Q.shape[:3])


def rival(backend: str):
    """PyTorch's attention by the kernel "efficient" or "cudnn" (16 bits), with L; no grouped queries."""

    def run(Q, K, V, scale=0.0, causal=0):
        import torch

        kernel = getattr(torch.ops.aten, f"_scaled_dot_product_{backend}_attention")
        O, L = kernel(Q, K, V, None, True, 0.0, bool(causal), scale=scale or 1 / math.sqrt(Q.shape[-1]))[:2]
        return O, L.reshape(*L.shape[:2], -1)[..., : Q.shape[2]]  # L may come in multiples of 32

    return run


def magnitude(Q, K, V, scale=0.0, causal=0, weight=1.0, of_scores=1.0):
    """What rounding errors are relative to, for O = sum over j of p_j v_j and L.

    A score's error is relative to a_j = scale sum |q| |k_j|; so p_j, which has passed exp and the division by the
    sum, has one relative to a_j + sum over k of p_k a_k, besides its own rounding. L = m + log(sum) has the mean of the
    scores' errors and its own. weight, of_scores : what an own rounding and a score's error count.
    """
    O, L = Q.new_empty(Q.shape), Q.new_empty(Q.shape[:3])
    for b, h, g in heads(Q, K):
        p, total = probabilities(Q[b, h], K[b, g], scale, causal)
        a = scores(Q[b, h].abs(), K[b, g].abs().nan_to_num(posinf=0.0), scale, causal).nan_to_num_(neginf=0.0)
        mean = (p * a).sum(-1)
        O[b, h] = (p * (weight + of_scores * (a + mean[:, None]))) @ V[b, g].abs()
        L[b, h] = mean + total.abs().nan_to_num(posinf=0.0) + 1
    return O, L


def queries(dtype="float32"):
    """Standard normal, the first number of each positive; the last of several heads has scores of 100 and more."""

    def make(shape, generator):
        import torch

        Q = torch.randn(shape, generator=generator, device=generator.device)
        Q[..., 0].abs_().add_(0.5)
        if shape[1] > 1:
            Q[:, -1] *= 40
        return Q.to(getattr(torch, dtype))

    return make


def keys(dtype="float32"):
    """Standard normal, but in the last of several heads -inf leaves out one key in 8, in the last of several batches
    all: it is the first number of such a key. Long rows, which are timed, have none."""

    def make(shape, generator):
        import torch

        K = torch.randn(shape, generator=generator, device=generator.device)
        left_out = torch.rand(shape[2], generator=generator, device=generator.device) < 1 / 8
        if shape[1] > 1 and shape[2] < LONG:
            K[:, -1, left_out, 0] = -math.inf
            if shape[0] > 1:
                K[-1, -1, :, 0] = -math.inf
        return K.to(getattr(torch, dtype))

    return make


def shape(B=1, H=1, N=1, NK=0, D=32, HK=0, **options) -> dict[str, int]:
    """A shape; as many keys as queries, and key heads as query heads, where nothing else is said."""
    return {"B": B, "H": H, "HK": HK or H, "N": N, "NK": NK or N, "D": D, **options}


SHAPES = (
    shape(N=32),
    shape(N=1, D=64),
    shape(N=17, causal=1),
    shape(B=2, H=2, N=33, NK=9, D=64),
    shape(H=4, HK=2, N=9, NK=33, causal=1),
    shape(N=5, NK=1, D=128),
    shape(N=129, causal=1, scale=0.25),
    shape(N=33, NK=129, D=128),
    shape(H=3, HK=1, N=70, NK=40, D=64, causal=1),
)
LARGE = (
    shape(B=2, H=4, N=1024, D=64),
    shape(H=8, HK=2, N=1000, D=128, causal=1),
    shape(H=2, N=777, NK=1531, D=32, scale=0.1),
    shape(H=2, N=1201, NK=517, D=128, causal=1),
)
OPTIONS = {"scale": 0.0, "causal": 0}
SMALL = shape(N=64, D=64)
TENSORS = {
    "Q": Tensor(("B", "H", "N", "D"), make=queries()),
    "K": Tensor(("B", "HK", "NK", "D"), make=keys()),
    "V": Tensor(("B", "HK", "NK", "D")),
}
# Of the tiles of flash in numba, which the questions are about.
_ROWS, _COLUMNS = 32, 16


def _score_bytes(N: int) -> int:
    return 4 * 4 * 16 * N * N


def _flash_shared(D: int, copies: int = 1) -> int:
    """Bytes of shared memory of a block of flash, rows of Q, K and P padded, with so many tiles each of K and V."""
    padded = D + 4
    return 4 * (_ROWS * padded + copies * _COLUMNS * (padded + D) + _ROWS * (_COLUMNS + 4))


problem = Problem(
    name="attention",
    lab="03_attention",
    formula="O = softmax(scale Q K^T) V, L = log of the sum of exponentials of each row of scale Q K^T",
    dims=("B", "H", "HK", "N", "NK", "D"),
    inputs=TENSORS,
    outputs={"O": Tensor(("B", "H", "N", "D")), "L": Tensor(("B", "H", "N"))},
    reference=reference,
    baseline=baseline,
    magnitude=magnitude,
    flops=flops,
    options=OPTIONS,
    ladder=(
        Step("naive", "three kernels: scores, softmax, weighted sum; the scores in memory", "sectors; peak memory"),
        Step("tiled", "the two products from tiles in shared memory", "global load requests", gates=(LOADS,)),
        Step("online_softmax", "one kernel, a warp per query: no score is ever stored", "store sectors; peak memory",
             gates=(STORE_SECTORS,)),
        Step("flash", "tiles of queries and keys, sums in registers", "load sectors; shared wavefronts",
             gates=(LOAD_SECTORS,)),
        Step("flash_double_buffered", "V is copied while K is multiplied, and K while V is", "stalls at the barrier"),
    ),
    shapes=SHAPES,
    large_shapes=LARGE,
    profile_shape=SMALL,
    odd_shape=shape(H=2, HK=1, N=49, NK=75, D=64, causal=1),
    bench_shape=shape(B=4, H=16, N=4096, D=128),
    recorded_at={"profiles": (shape(B=4, H=16, N=2048, D=128),)},  # some rungs take half a second at 4096
    questions={
        "flops": Question(
            "How many floating-point operations do the two products of one head take at N = 8192, D = 128?",
            lambda: flops(shape(N=8192, D=128)),
            "FLOP",
            "Each of the N * N scores takes D multiplications and additions, and so does its share of O.",
        ),
        "compulsory_bytes": Question(
            "How many bytes must move at least for this head, if Q, K and V are read once, and O and L written once?",
            lambda: 4 * (4 * 8192 * 128 + 8192),
            "bytes",
            "Four matrices of N * D numbers and one number for each row, of 4 bytes each.",
        ),
        "naive/score_bytes": Question(
            "How many bytes do the scores of 4 batches of 16 heads take at N = 8192, in float32?",
            lambda: _score_bytes(8192),
            "bytes",
            "4 * 16 * 8192 * 8192 numbers of 4 bytes. Q, K, V and O take 268 MB each, at D = 128.",
        ),
        "naive/longest": Question(
            "A GPU has 141 GB (10^9 bytes each). At which length N would the scores of these 64 heads alone fill it?",
            lambda: math.sqrt(141e9 / (4 * 4 * 16)),
            "queries",
            "The memory grows with the square of N.",
        ),
        "naive/sectors_of_k": Question(
            "In the first kernel of naive a block has 16 x 16 threads, and threadIdx.x counts keys. How many sectors "
            "does one warp's load of K touch, for one d, at D = 64?",
            lambda: len({4 * 64 * (lane % 16) // 32 for lane in range(32)}),
            "sectors",
            "The warp has 16 keys, and their rows are 256 bytes apart: a sector for each. Of its 32 bytes, 4 are used.",
        ),
        "naive/score_traffic": Question(
            "Follow one score through the three kernels of naive: each time that it is written to S or read from there "
            "counts 4 bytes, and all reads for the weighted sum count as one. How many bytes is that for each score?",
            lambda: 4 * (1 + 3 + 1 + 1),
            "bytes",
            "Written; read for the maximum, for the sum and for the weight; written as a weight; read for O.",
        ),
        "tiled/request_ratio": Question(
            "How many times fewer global load requests do the two products of tiled make than those of naive? Tiles "
            "have 16 x 16 numbers.",
            lambda: 16,
            "times",
            "Each thread loads one number of each factor per tile, and the tile covers 16 steps of its sum.",
        ),
        "tiled/unpadded_wavefronts": Question(
            "If the rows of tK were 16 words long and not 17, how many wavefronts would a warp's read of tK[x, d] "
            "take?",
            lambda: max(sum(16 * x % 32 == bank for x in range(16)) for bank in range(32)),
            "wavefronts",
            "16 rows, 16 words apart, fall into two banks: 8 different words in each.",
        ),
        "online_softmax/intensity": Question(
            "Had each score only to be written once and read once, 4 bytes each time, and nothing else were counted: "
            "how many FLOP per byte would that be at D = 128?",
            lambda: 4 * 128 / 8,
            "FLOP/byte",
            "4 D operations per score, 8 bytes of traffic.",
        ),
        "online_softmax/sum": Question(
            "The largest score so far is 2, and the sum of exponentials relative to it is 3. The next score is 4. What "
            "is the sum relative to the new largest score?",
            lambda: 3 * math.exp(2 - 4) + 1,
            "",
            "What was relative to exp(2) is now relative to exp(4); the new score adds exp(4 - 4).",
        ),
        "online_softmax/records": Question(
            "8192 different scores come in random order. How often is one larger than all before it, on average? (The "
            "first one counts.)",
            lambda: sum(1 / k for k in range(1, 8193)),
            "times",
            "The k-th is the largest of the first k with probability 1/k; the sum grows like the logarithm.",
        ),
        "online_softmax/merge": Question(
            "Of one half of a row, the largest score is 1 and the sum relative to it 2; of the other half they are 3 "
            "and 4. What is the sum of the whole row, relative to its largest score?",
            lambda: 2 * math.exp(1 - 3) + 4,
            "",
            "The smaller maximum's sum is corrected; the other one stays.",
        ),
        "online_softmax/store_sectors": Question(
            "How many sectors does the kernel store at B = H = 1, N = 64, D = 64? Count O, and one store of a single "
            "lane for each number of L.",
            lambda: 64 * 64 * 4 // 32 + 64,
            "sectors",
            "O is stored by whole warps, 8 numbers to a sector; each number of L takes a request of its own, and so a "
            "sector.",
        ),
        "online_softmax/load_sectors": Question(
            "How many sectors does a warp load for each key, at D = 64?",
            lambda: 2 * 64 * 4 // 32,
            "sectors",
            "A row of K and a row of V, 256 bytes each. All warps load the same rows, each for its own query.",
        ),
        "flash/rereads": Question(
            "online_softmax loads all of K and V once for each query. How many times fewer loads of K and V does flash "
            "have, with tiles of 32 queries?",
            lambda: _ROWS,
            "times",
            "A tile of K and V serves all queries of the block.",
        ),
        "flash/intensity": Question(
            "A block of flash has 32 queries. How many FLOP does it do per byte of K and V that it loads, at D = 128 "
            "in float32?",
            lambda: 4 * _ROWS * 128 / (2 * 128 * 4),
            "FLOP/byte",
            "For each key: 32 * 4 * 128 operations, for 2 * 128 numbers. D does not matter, the queries do.",
        ),
        "flash/correction": Question(
            "A row's largest score so far is 2, its sum of exponentials 3. A tile brings the scores 5 and 1. By what "
            "is O multiplied before the tile's share is added?",
            lambda: math.exp(2 - 5),
            "",
            "The sums so far are relative to exp(2), from now on to exp(5).",
        ),
        "flash/causal": Question(
            "With causal, N = 128, and tiles of 32 queries and 16 keys: how many of the 32 tiles of scores have "
            "anything to compute?",
            lambda: sum(-(-(row + _ROWS) // _COLUMNS) for row in range(0, 128, _ROWS)),
            "tiles",
            "A block stops after its last query's key: 2, 4, 6 and 8 tiles. Those on the diagonal are half empty.",
        ),
        "flash/shared_bytes": Question(
            "Tiles of 32 queries, 16 keys and 16 values of D = 128 numbers, and 32 x 16 weights; rows of Q and K are "
            "padded by 4 numbers, and rows of weights too. How many bytes of shared memory is that?",
            lambda: _flash_shared(128),
            "bytes",
            "4 * (32 * 132 + 16 * 132 + 16 * 128 + 32 * 20).",
        ),
        "flash_double_buffered/shared_bytes": Question(
            "And with two tiles of K and two of V, so that both can be copied while both are used?",
            lambda: _flash_shared(128, copies=2),
            "bytes",
            "That is more than the 48 KiB (49,152 bytes) that a numba kernel may have.",
        ),
    },
)
