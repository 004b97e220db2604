"""precision: ReLU of N numbers, y[i] = max(x[i], 0), held in float32 or in float16."""

from __future__ import annotations

import torch

from labkit.problems._metrics import LOAD_SECTORS, LOADS
from labkit.problems.problem import Problem, Question, Step, Tensor

HALF = {"x": "float16", "y": "float16"}
PAIRS = "numba can hold float16, but has no type for a pair of them and no expression that works on both at once"


def reference(x):
    return x.clamp(min=0)


problem = Problem(
    name="precision",
    lab="01_gpu_basics",
    formula="y[N] = max(x[N], 0)",
    dims=("N",),
    inputs={"x": Tensor(("N",))},
    outputs={"y": Tensor(("N",))},
    reference=reference,
    baseline=torch.relu,
    flops=lambda d: d["N"],  # the lecture counts one comparison per number
    ladder=(
        Step("fp32", "one float32 per thread", "sectors per request; bytes per operation"),
        Step("fp16", "one float16 per thread", "sectors per request; bytes per operation", dtypes=HALF,
             gates=(LOAD_SECTORS,)),
        Step("half2", "two float16 per thread and instruction", "instructions; requests", ("cuda",), why=PAIRS,
             dtypes=HALF,
             gates=(LOADS,)),
        Step("half8", "eight float16 per thread, 16-byte accesses", "requests; bytes in flight", ("cuda",), why=PAIRS,
             dtypes=HALF),
    ),
    shapes=({"N": 1024}, {"N": 1}, {"N": 5}, {"N": 33}, {"N": 123}, {"N": 257}, {"N": 2063}),
    large_shapes=({"N": 1 << 22}, {"N": 10_000_019}),
    profile_shape={"N": 8192},
    bench_shape={"N": 1 << 27},
    questions={
        "fp32/bytes_per_operation": Question(
            "ReLU does one operation per number: a comparison with 0. How many bytes move per operation, if x and y "
            "are float32 and each is touched once?",
            lambda: problem.bytes({"N": 1024}) / problem.flops({"N": 1024}),
            "bytes per operation",
            "4 bytes in, 4 bytes out.",
        ),
        "fp16/sectors_per_request": Question(
            "In fp16, neighboring lanes load neighboring float16 numbers, one each. How many 32-byte sectors does "
            "a load request touch?",
            lambda: len({lane * 2 // 32 for lane in range(32)}),
            "sectors per request",
            "32 lanes of 2 bytes are 64 bytes in a row.",
        ),
    },
)  # fmt: skip
