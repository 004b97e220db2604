"""cpy_f32_f16: float32 numbers rounded to float16 into another order, as keys go into a cache kept head by head.

llama.cpp's kernel takes any strides for both sides. Here x is [T, H, D] (tokens, heads, head size) and dst is
[H, T, D]. Each number must be the nearest float16, ties to even: no other result is allowed.
"""

from __future__ import annotations

from labkit.problems._operators import operator
from labkit.problems.problem import Question, Tensor

_BENCH = {"T": 32768, "H": 32, "D": 128}


def reference(x):
    import torch

    return x.transpose(0, 1).to(torch.float16, memory_format=torch.contiguous_format)


problem = operator(
    "cpy_f32_f16",
    "dst[h, t, d] = half(x[t, h, d])",
    reference,
    dims=("T", "H", "D"),
    inputs={"x": Tensor(("T", "H", "D"))},
    outputs={"dst": Tensor(("H", "T", "D"), "float16")},
    c=0.0,  # rounding has one right result
    flops=lambda d: 0,
    shapes=(
        {"T": 3, "H": 4, "D": 16},
        {"T": 1, "H": 1, "D": 1},
        {"T": 5, "H": 3, "D": 33},
        {"T": 17, "H": 2, "D": 123},
        {"T": 2, "H": 5, "D": 136},
        {"T": 7, "H": 1, "D": 12},
    ),
    large_shapes=({"T": 512, "H": 32, "D": 128}, {"T": 129, "H": 7, "D": 125}),
    profile_shape={"T": 16, "H": 4, "D": 128},
    odd_shape={"T": 13, "H": 3, "D": 125},
    bench_shape=_BENCH,
    questions={
        "bytes_per_number": Question(
            "How many bytes must move per number that is rounded to float16?",
            lambda: problem.bytes(_BENCH) / (_BENCH["T"] * _BENCH["H"] * _BENCH["D"]),
            "bytes per number",
            "4 in, 2 out.",
        ),
    },
)
