"""mul: rows of float32 numbers times one row, which all of them share: the weights of a norm."""

from __future__ import annotations

from labkit.problems._operators import ROWS, operator, requests_question


def reference(x, y):
    return x * y


problem = operator(
    "mul",
    "dst[r, c] = x[r, c] * y[c]",
    reference,
    flops=lambda d: d["R"] * d["C"],
    questions={"vectorized/numbers_per_request": requests_question()},
    **ROWS,
)
