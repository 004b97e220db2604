"""ffn_glu: the gated half of Llama's feed-forward network for one token, silu(W1 x) * (W3 x); float16 weights.

As in yalm: weights are float16, x, sums and result are float32. Any M, K of at least 1.
"""

from __future__ import annotations

from labkit.problems._metrics import LOAD_SECTORS
from labkit.problems.problem import Problem, Question, Step, Tensor

_SMALL = {"M": 64, "K": 512}


def _weights(shape, generator):
    """Sums of K products of about 1: where silu is neither zero nor the identity."""
    import torch

    return (torch.randn(shape, generator=generator, device=generator.device) * shape[1] ** -0.5).half()


def reference(W1, W3, x):
    import torch

    return torch.nn.functional.silu(W1 @ x) * (W3 @ x)


def torch_fp16(W1, W3, x):
    """What people call in PyTorch: it has no product of float16 and float32, so all is float16."""
    import torch

    x = x.half()
    return (torch.nn.functional.silu(torch.mv(W1, x)) * torch.mv(W3, x)).float()


def magnitude(W1, W3, x):
    """|d(silu)/dh| is at most 1.1, and |silu(h)| at most |h|: both sums' errors are relative to sums of |products|."""
    return (W1.abs() @ x.abs()) * (W3.abs() @ x.abs())


problem = Problem(
    name="ffn_glu",
    lab="01_gpu_basics",
    formula="h[m] = silu(sum over k of W1[m, k] x[k]) * (sum over k of W3[m, k] x[k])",
    dims=("M", "K"),
    inputs={
        "W1": Tensor(("M", "K"), "float16", _weights),
        "W3": Tensor(("M", "K"), "float16", _weights),
        "x": Tensor(("K",)),
    },
    outputs={"h": Tensor(("M",))},
    reference=reference,
    baseline=None,
    rivals={"torch_fp16": torch_fp16},
    magnitude=magnitude,
    flops=lambda d: 4 * d["M"] * d["K"] + 5 * d["M"],  # two matvecs; silu counts 4, the product 1
    ladder=(
        Step("three_kernels", "two matvecs, then silu and the product", "launches; bytes between kernels"),
        Step("fused_glu", "one kernel: a warp sums a row of W1 and of W3", "launches; load requests",
             gates=(LOAD_SECTORS,), timed=True),
    ),
    shapes=(
        {"M": 9, "K": 264},
        {"M": 1, "K": 1},
        {"M": 5, "K": 17},
        {"M": 33, "K": 123},
        {"M": 17, "K": 40},
    ),
    large_shapes=({"M": 4096, "K": 4096}, {"M": 1021, "K": 1001}),
    profile_shape=_SMALL,
    odd_shape={"M": 61, "K": 505},
    bench_shape={"M": 14336, "K": 4096},  # Mistral-7B: 235 MB
    questions={
        "fused_glu/bytes_saved": Question(
            "three_kernels writes W1 x and W3 x to memory and reads them again, float32 each. How many bytes is that "
            "at M = 14336, written and read?",
            lambda: 2 * 2 * 14336 * 4,
            "bytes",
            "Two vectors of M numbers of 4 bytes, each written once and read once.",
        ),
    },
)
