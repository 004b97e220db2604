"""add: rows of float32 numbers plus one row, which all of them share."""

from __future__ import annotations

from labkit.problems._operators import ROWS, operator
from labkit.problems.problem import Question


def reference(x, y):
    return x + y


problem = operator(
    "add",
    "dst[r, c] = x[r, c] + y[c]",
    reference,
    flops=lambda d: d["R"] * d["C"],
    questions={
        "vectorized/loads_of_y": Question(
            "In plain, each thread loads one number of x and one of y. In vectorized, a thread loads 4 numbers of y "
            "once and adds them to 4 rows. How many numbers of y does it load per number of x?",
            lambda: 4 / (4 * 4),
            "numbers of y per number of x",
            "4 numbers of y for 4 rows of 4 numbers of x.",
        ),
    },
    **ROWS,
)
