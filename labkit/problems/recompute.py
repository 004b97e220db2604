"""recompute: three sigmoids in a chain, y = s(s(s(x))), and the gradient dx of a loss of which dy is given.

Forward and backward are apart in time: dy depends on y by way of the rest of a network. So no kernel may do both, and
x counts twice in the compulsory traffic: x in, y out; x and dy in, dx out.
"""

from __future__ import annotations

import functools

import torch

from labkit.problems._metrics import LOAD_SECTORS, STORE_SECTORS
from labkit.problems.problem import Problem, Question, Step, Tensor


def _chain(x):
    return torch.sigmoid(torch.sigmoid(torch.sigmoid(x)))


def _forward_and_backward(chain, x, dy):
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        y = chain(leaf)
        (dx,) = torch.autograd.grad(y, leaf, dy)
    return y.detach(), dx


@functools.cache
def _compiled():
    return torch.compile(_chain)


def _magnitude(x, dy):
    """1 for y. For dx, |dy| times slopes of at most 1/4 each, whose relative error has the size of u."""
    return torch.ones_like(x), dy / 64


problem = Problem(
    name="recompute",
    lab="01_gpu_basics",
    formula="y[N] = s(s(s(x[N]))), dx = dy * dy/dx; s(t) = 1 / (1 + exp(-t))",
    dims=("N",),
    inputs={"x": Tensor(("N",)), "dy": Tensor(("N",))},
    outputs={"y": Tensor(("N",)), "dx": Tensor(("N",))},
    reference=lambda x, dy: _forward_and_backward(_chain, x, dy),
    baseline=lambda x, dy: _forward_and_backward(_chain, x, dy),
    magnitude=lambda x, dy: _magnitude(x, dy.abs()),
    flops=lambda d: 15 * d["N"],  # three sigmoids of 3 operations, three slopes of 2: none of it computed twice
    traffic=lambda d: 5 * 4 * d["N"],
    rivals={"compiled": lambda x, dy: _forward_and_backward(_compiled(), x, dy)},
    ladder=(
        Step("operators", "a kernel per sigmoid, forward and backward, as PyTorch does it", "global loads and stores"),
        Step("store", "one kernel each way; the activations are stored for the way back", "global loads and stores",
             gates=(LOAD_SECTORS, STORE_SECTORS)),
        Step("recompute", "nothing stored; the way back computes the activations again", "global loads and stores",
             gates=(STORE_SECTORS,)),
        Step("vectorized", "the same with 16-byte accesses and a division without corrections", "instructions"),
    ),
    shapes=({"N": 512}, {"N": 1}, {"N": 5}, {"N": 33}, {"N": 123}, {"N": 1031}),
    large_shapes=({"N": 1 << 22}, {"N": 10_000_019}),
    profile_shape={"N": 2048},
    bench_shape={"N": 1 << 26},
    questions={
        "operators/memory_operations": Question(
            "PyTorch runs three kernels forward (one vector in, one out) and three backward: each reads the gradient "
            "that comes back and the sigmoid's own output, and writes a gradient. How many vectors travel?",
            lambda: 3 * (1 + 1) + 3 * (2 + 1),
            "vectors",
            "Three times 2, and three times 3.",
        ),
        "store/memory_operations": Question(
            "store has one kernel each way. Forward reads x and writes s1, s2 and y; backward reads s1, s2 and dy, "
            "and writes dx. How many vectors travel?",
            lambda: (1 + 3) + (3 + 1),
            "vectors",
            "Four each way.",
        ),
        "recompute/memory_operations": Question(
            "recompute stores no activations; its backward kernel starts from x. How many vectors travel?",
            lambda: (1 + 1) + (2 + 1),
            "vectors",
            "Forward: x in, y out. Backward: x and dy in, dx out.",
        ),
        "recompute/sigmoids": Question(
            "What does it cost? In operators, 3 sigmoids are evaluated per number, all in the forward pass. How many "
            "are in recompute, both ways together?",
            lambda: 3 + 3,
            "sigmoids per number",
            "The slope of a sigmoid needs its value: s' = s (1 - s). So all three are needed again.",
        ),
    },
)
