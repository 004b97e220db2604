"""rope: rotary position embedding of adjacent pairs, as llama.cpp does it; float32.

x is [T, H, P, 2]: T tokens of H heads of P pairs (heads of 2 P numbers). Token t stands at position n_past + t, and
pair p of each of its heads is turned by the angle (n_past + t) * base ** (-p / P).
"""

from __future__ import annotations

from labkit.problems._operators import PLAIN, operator
from labkit.problems.problem import Question, Step, Tensor

BASE = 10000.0
_BENCH = {"T": 16384, "H": 32, "P": 64}


def angles(T, P, n_past, base, like):
    """[T, 1, P] angles in the dtype and on the device of `like`."""
    import torch

    place = {"dtype": like.dtype, "device": like.device}
    return (n_past + torch.arange(T, **place))[:, None, None] * base ** (-torch.arange(P, **place) / P)


def reference(x, n_past=0, base=BASE):
    import torch

    theta = angles(x.shape[0], x.shape[2], n_past, base, x)
    turned = torch.view_as_complex(x.contiguous()) * torch.polar(torch.ones_like(theta), theta)
    return torch.view_as_real(turned)


def magnitude(x, n_past=0, base=BASE):
    """Sums of |products|, and what a rounded angle does to them.

    An angle theta = position * f ** p is off by a relative error of a few u in float32, and by p u more where f itself
    was rounded; sine and cosine hand on theta (1 + p) u.
    """
    import torch

    T, _, P, _ = x.shape
    theta = angles(T, P, n_past, base, x) * (1 + torch.arange(P, dtype=x.dtype, device=x.device))
    return (x.abs().sum(-1) * (1 + theta))[..., None].expand_as(x)


problem = operator(
    "rope",
    "(dst[t, h, p, 0], dst[t, h, p, 1]) = (x[t, h, p, 0], x[t, h, p, 1]) turned by (n_past + t) * base^(-p / P)",
    reference,
    dims=("T", "H", "P"),
    inputs={"x": Tensor(("T", "H", "P", 2))},
    outputs={"dst": Tensor(("T", "H", "P", 2))},
    magnitude=magnitude,
    flops=lambda d: 6 * d["T"] * d["H"] * d["P"],  # 4 products and 2 sums per pair; angles serve all heads
    options={"n_past": 0, "base": BASE},
    ladder=(
        PLAIN,
        Step(
            "vectorized",
            "16 bytes per access; an angle computed once for 4 heads",
            "instructions per pair; load requests",
        ),
    ),
    shapes=(
        {"T": 2, "H": 3, "P": 8, "n_past": 5},
        {"T": 1, "H": 1, "P": 1},
        {"T": 3, "H": 5, "P": 5},
        {"T": 2, "H": 17, "P": 12, "n_past": 100},
        {"T": 5, "H": 9, "P": 64},
    ),
    large_shapes=({"T": 128, "H": 32, "P": 64}, {"T": 61, "H": 7, "P": 33, "n_past": 4000}),
    profile_shape={"T": 4, "H": 8, "P": 64},
    odd_shape={"T": 3, "H": 7, "P": 61},
    bench_shape=_BENCH,
    questions={
        "plain/threads_at_work": Question(
            "llama.cpp launches 512 threads for each row of 128 numbers, and a thread turns one pair. How many of the "
            "512 have a pair?",
            lambda: 128 // 2,
            "threads",
            "A row of 128 numbers is 64 pairs; the other 448 threads return at once.",
        ),
        "vectorized/angles": Question(
            "A token has 32 heads of 64 pairs. plain computes an angle, its sine and its cosine for every pair. How "
            "many times fewer does vectorized compute, where one angle serves 4 heads?",
            lambda: (32 * 64) / (32 / 4 * 64),
            "times",
            "The angle depends on the token and the pair, not on the head.",
        ),
    },
)
