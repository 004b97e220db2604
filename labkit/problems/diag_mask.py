"""diag_mask: minus infinity where a token would look at one after it; float32.

Scores are [H, T, S]: for each head, T new tokens by S tokens to look at, of which n_past came before the new ones. Row
t is token n_past + t. llama.cpp subtracts INT_MAX in place of writing minus infinity: after softmax both are 0. Here,
minus infinity is asked for.
"""

from __future__ import annotations

from labkit.problems._operators import operator
from labkit.problems.problem import Question, Tensor

_BENCH = {"H": 32, "T": 2048, "S": 2048}


def reference(x, n_past=0):
    import torch

    _, T, S = x.shape
    after = torch.arange(S, device=x.device) > n_past + torch.arange(T, device=x.device)[:, None]
    return x.masked_fill(after, float("-inf"))


def masked(d) -> int:
    """How many scores are masked."""
    return d["H"] * sum(max(0, d["S"] - 1 - d.get("n_past", 0) - t) for t in range(d["T"]))


problem = operator(
    "diag_mask",
    "dst[h, t, s] = -inf where s > n_past + t, else x[h, t, s]",
    reference,
    dims=("H", "T", "S"),
    inputs={"x": Tensor(("H", "T", "S"))},
    outputs={"dst": Tensor(("H", "T", "S"))},
    magnitude=lambda x, n_past=0: x.abs(),
    flops=lambda d: 0,  # nothing but comparisons of indices
    # Copied numbers come in, all go out; what is masked need not be read.
    traffic=lambda d: 4 * (2 * d["H"] * d["T"] * d["S"] - masked(d)),
    options={"n_past": 0},
    shapes=(
        {"H": 2, "T": 5, "S": 9, "n_past": 4},
        {"H": 1, "T": 1, "S": 1},
        {"H": 3, "T": 17, "S": 17},
        {"H": 2, "T": 7, "S": 33, "n_past": 11},
        {"H": 1, "T": 1, "S": 123, "n_past": 122},  # generation: nothing to mask
        {"H": 2, "T": 5, "S": 1028, "n_past": 500},
    ),
    large_shapes=({"H": 8, "T": 512, "S": 512}, {"H": 3, "T": 501, "S": 1003, "n_past": 502}),
    profile_shape={"H": 2, "T": 16, "S": 256},
    odd_shape={"H": 2, "T": 13, "S": 251},
    bench_shape=_BENCH,
    questions={
        "generation": Question(
            "One new token is generated after 122 others: T = 1, S = 123, n_past = 122. How many scores of a head does "
            "diag_mask change?",
            lambda: masked({"H": 1, "T": 1, "S": 123, "n_past": 122}),
            "scores",
            "The newest token may look at all that there are, itself included. llama.cpp launches the kernel anyway.",
        ),
    },
)
