"""softmax: of each row of a float32 matrix, any number of rows and columns of at least 1.

As in PyTorch, -inf is an entry that is left out (0), and a row of nothing else is NaN.
"""

from __future__ import annotations

from labkit.problems._metrics import BUSIEST, LOAD_SECTORS
from labkit.problems.problem import Problem, Question, Step, Tensor


def flops(d) -> int:
    return 5 * d["rows"] * d["cols"]  # per entry: a comparison, a subtraction, an exponential, an addition, a product


def reference(x):
    return x.softmax(1)


def magnitude(x):
    """Errors of an entry: of its own exponent, x - max, of which exp passes on the absolute error, and of the sum.

    A sum of n positive numbers, one after the other in float32, is off by about sqrt(n) / 3 roundings of itself: each
    addition's is uniform, and relative to the sum so far. With c = 8 this allows six times as much.
    """
    away = (x - x.amax(1, keepdim=True)).abs().nan_to_num(posinf=0.0)  # of -inf nothing is left
    return x.softmax(1) * (1 + away + x.shape[1] ** 0.5 / 4)


def _logits(shape, generator):
    """Rows about different, large means, exp of which overflows; one entry in 16 is -inf, but never a whole row."""
    import torch

    rows, cols = shape
    how = {"generator": generator, "device": generator.device}
    x = torch.randn(shape, **how).mul_(4).add_(torch.randn((rows, 1), **how), alpha=100)
    left_out = torch.rand(shape, **how) < 1 / 16
    left_out[torch.arange(rows), torch.arange(rows) % cols] = False
    return x.masked_fill_(left_out, float("-inf"))


problem = Problem(
    name="softmax",
    lab="01_gpu_basics",
    formula="y[r, c] = exp(x[r, c] - max_r) / sum over k of exp(x[r, k] - max_r)",
    dims=("rows", "cols"),
    inputs={"x": Tensor(("rows", "cols"), make=_logits)},
    outputs={"y": Tensor(("rows", "cols"))},
    reference=reference,
    baseline=reference,
    magnitude=magnitude,
    flops=flops,
    ladder=(
        Step("three_pass", "a block per row: the largest, the sum, the quotients", "global load sectors"),
        Step("online", "largest and sum in one pass, each correcting the other", "global load sectors; instructions",
             gates=(LOAD_SECTORS,)),
        Step("vectorized", "the row stays in registers; 16-byte accesses", "global load sectors and requests",
             gates=(LOAD_SECTORS,), timed=True),
        Step("long_rows", "several blocks per row, which leave partial results", "multiprocessors in use",
             gates=(BUSIEST,), gate_shape={"rows": 2, "cols": 32768}, timed=True),
    ),
    shapes=(
        {"rows": 4, "cols": 256},
        {"rows": 1, "cols": 1},
        {"rows": 5, "cols": 17},
        {"rows": 7, "cols": 1},
        {"rows": 3, "cols": 33},
        {"rows": 33, "cols": 5},
        {"rows": 2, "cols": 123},
        {"rows": 5, "cols": 1031},
        {"rows": 1, "cols": 16404},
        {"rows": 1, "cols": 16391},
    ),
    large_shapes=(
        {"rows": 1024, "cols": 4096},
        {"rows": 4099, "cols": 129},
        {"rows": 333, "cols": 4099},
        {"rows": 3, "cols": 500_009},
        {"rows": 5, "cols": 400_000},
        {"rows": 70_001, "cols": 3},
    ),
    profile_shape={"rows": 8, "cols": 2048},
    bench_shape={"rows": 65536, "cols": 4096},
    recorded_at={
        "bench": (
            {"rows": 65536, "cols": 4096},
            {"rows": 262144, "cols": 1024},
            {"rows": 4096, "cols": 65536},
            {"rows": 64, "cols": 2**22},
        )
    },
    questions={
        "online/correction": Question(
            "So far the largest number is 2 and the sum of exp(x - 2) is 3. Now comes x = 5. What is the sum of "
            "exp(x - 5) over all numbers, the new one included?",
            lambda: 3 * 2.718281828459045 ** (2 - 5) + 1,
            "",
            "The old sum is too large by the factor exp(5 - 2), and the new number adds exp(0).",
        ),
        "online/load_ratio": Question(
            "How many times fewer global load sectors does online have than three_pass?",
            lambda: 3 / 2,
            "times",
            "Two reads of the row in place of three.",
        ),
        "vectorized/load_request_ratio": Question(
            "vectorized reads a row once, 16 bytes per lane. How many times fewer global load requests does it issue "
            "than online?",
            lambda: 2 * 4,
            "times",
            "Half of the reads, and 4 numbers with each.",
        ),
        "long_rows/busy": Question(
            "64 rows of 4 million numbers, one block per row, on a GPU with 132 multiprocessors: how many percent of "
            "them have work?",
            lambda: 100 * 64 / 132,
            "%",
            "A block runs on one multiprocessor.",
        ),
        "long_rows/passes": Question(
            "long_rows reads x twice and writes y once, and x is far larger than the L2. At most how many percent of "
            "what the memory can do will its GB/s reach, if we count only compulsory bytes?",
            lambda: 100 * 2 / 3,
            "%",
            "Three passes through memory, of which two are compulsory.",
        ),
    },
)
