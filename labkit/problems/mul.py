"""mul: rows of float32 numbers times one row, which all of them share: the weights of a norm."""

from __future__ import annotations

from labkit.problems._operators import ROWS, operator
from labkit.problems.problem import Question


def reference(x, y):
    return x * y


problem = operator(
    "mul",
    "dst[r, c] = x[r, c] * y[c]",
    reference,
    flops=lambda d: d["R"] * d["C"],
    questions={
        "vectorized/requests_ratio": Question(
            "plain loads one number of x and one of y per product. In vectorized, a thread loads 4 numbers of y once, "
            "and 4 rows of 4 numbers of x. How many times fewer load requests per product is that?",
            lambda: (16 * 2) / (4 + 1),
            "times",
            explain="For 16 products, plain takes 16 loads of x and 16 of y; vectorized takes 4 and 1, 16 bytes each.",
        ),
    },
    **ROWS,
)
