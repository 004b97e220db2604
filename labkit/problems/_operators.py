"""What the small operators of llama.cpp have in common: shapes, ladders, and questions on memory traffic.

Each is one pass over its operands, with a handful of operations per number: memory sets its time. The names are those
of llama.cpp's CUDA kernels: `x` and `y` are read, `dst` is written.
"""

from __future__ import annotations

from typing import Any

from labkit.problems._metrics import LOADS
from labkit.problems.problem import Problem, Question, Step, Tensor

LAB = "01_gpu_basics"
PLAIN = Step("plain", "one thread per number, as in llama.cpp", "sectors per request; instructions per number")
VECTORIZED = Step("vectorized", "16 bytes per access", "load requests; bytes in flight",
                  gates=(LOADS,))

FLAT = {  # of operators on N numbers in a row
    "dims": ("N",),
    "inputs": {"x": Tensor(("N",))},
    "outputs": {"dst": Tensor(("N",))},
    "shapes": ({"N": 300}, {"N": 1}, {"N": 5}, {"N": 33}, {"N": 123}, {"N": 4099}),
    "large_shapes": ({"N": 2**20}, {"N": 1_000_003}),
    "profile_shape": {"N": 8192},
    "odd_shape": {"N": 8189},
    "bench_shape": {"N": 2**27},  # 1 GiB read and written: far past any L2
}

ROWS = {  # of operators on rows of C numbers, whose second operand is one such row
    "dims": ("R", "C"),
    "inputs": {"x": Tensor(("R", "C")), "y": Tensor(("C",))},
    "outputs": {"dst": Tensor(("R", "C"))},
    "shapes": (
        {"R": 4, "C": 64},
        {"R": 1, "C": 1},
        {"R": 5, "C": 33},
        {"R": 17, "C": 123},
        {"R": 9, "C": 1028},
        {"R": 3, "C": 7},
    ),
    "large_shapes": ({"R": 512, "C": 4096}, {"R": 1023, "C": 1021}),
    "profile_shape": {"R": 16, "C": 1024},
    "odd_shape": {"R": 13, "C": 1019},
    "bench_shape": {"R": 32768, "C": 4096},  # prompt of 32768 tokens, Llama 2 7B
}


def operator(name: str, formula: str, reference: Any, **more: Any) -> Problem:
    """A problem of the family; `more` as Problem takes it, and the ladder plain, vectorized where it gives none."""
    return Problem(
        **{
            "name": name,
            "lab": LAB,
            "formula": formula,
            "reference": reference,
            "baseline": reference,
            "ladder": (PLAIN, VECTORIZED),
            **more,
        }
    )


def requests_question(numbers: int = 32 * 4) -> Question:
    """How far 16-byte accesses cut the requests of a float32 operator."""
    return Question(
        "A load request of a full warp of plain brings 32 numbers, one per lane. How many does one of vectorized "
        "bring?",
        lambda: numbers,
        "numbers per request",
        "32 lanes of 16 bytes, which are 4 numbers of 4 bytes.",
    )
