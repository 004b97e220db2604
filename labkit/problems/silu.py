"""silu: x * sigmoid(x), the activation of Llama's feed-forward network, float32, any length."""

from __future__ import annotations

from labkit.problems._operators import FLAT, operator
from labkit.problems.problem import Question


def reference(x):
    import torch

    return torch.nn.functional.silu(x)


problem = operator(
    "silu",
    "dst[i] = x[i] / (1 + exp(-x[i]))",
    reference,
    flops=lambda d: 4 * d["N"],  # minus, exp, plus, divide
    questions={
        "intensity": Question(
            "Count the minus, the exp, the plus and the division as one operation each. How many operations per byte "
            "does silu do, if every number is read once and written once?",
            lambda: problem.flops({"N": 1}) / problem.bytes({"N": 1}),
            "operations per byte",
            "Four operations, four bytes in, four bytes out.",
        ),
    },
    **FLAT,
)
