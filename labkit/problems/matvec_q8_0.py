"""matvec_q8_0: a matrix in 8-bit blocks times a float32 vector, as llama.cpp does it; K a multiple of 32.

W is uint8 [M, K / 32 * 34], rows of block_q8_0 (34 bytes: a float16 scale, 32 signed bytes), as they lie in the file.
Q (int8 [M, K]) and D (float16 [M, K / 32]) are the same weights taken apart, as an engine may keep them once it has
loaded the file: row m, block b has the scale D[m, b] and the quants Q[m, 32 b .. 32 b + 31]. A kernel reads either W,
or Q and D. x is float32 [K]. `labkit.problems._q8` has the layouts byte by byte, and the bound on the error.

The reference rounds nothing. A kernel may round x to 8 bits, block by block (q8_1): the tolerance grants what that does
to a sum of independent errors, and not more.
"""

from __future__ import annotations

from labkit.problems import _q8
from labkit.problems._metrics import INSTRUCTIONS, LOADS
from labkit.problems.problem import Problem, Question, Step, Tensor

_SMALL = {"M": 32, "K": 512}


def reference(W, Q, D, x):
    return _q8.product(W, x)


problem = Problem(
    name="matvec_q8_0",
    lab="01_gpu_basics",
    formula="y[m] = sum over blocks b of d[m, b] * sum over i of q[m, b, i] * x[32 b + i]",
    dims=("M", "K"),
    inputs={
        "W": Tensor(("M", "K // 32 * 34"), "uint8", _q8.random_blocks),
        "Q": Tensor(("M", "K"), "int8", derive=lambda inputs: _q8.quants(inputs["W"])),
        "D": Tensor(("M", "K // 32"), "float16", derive=lambda inputs: _q8.scales(inputs["W"])),
        "x": Tensor(("K",), make=_q8.random_activations),
    },
    outputs={"y": Tensor(("M",))},
    reference=reference,
    baseline=None,  # PyTorch has no such blocks
    magnitude=lambda W, Q, D, x: _q8.magnitude(W, x),
    flops=lambda d: 2 * d["M"] * d["K"],  # a multiplication and an addition per weight
    traffic=lambda d: d["M"] * d["K"] // 32 * 34 + 4 * d["K"] + 4 * d["M"],  # the weights once, in either layout
    ladder=(
        Step("dequantize", "weights widened to float32 one by one", "load requests; instructions per weight"),
        Step("dp4a", "x rounded to 8 bits first, then four products per instruction", "instructions per weight",
             gates=(INSTRUCTIONS,), timed=True),
        Step("repacked", "scales and quants apart: aligned 16-byte loads", "load requests; bytes in flight",
             gates=(LOADS,), timed=True),
    ),
    shapes=(
        {"M": 5, "K": 96},
        {"M": 1, "K": 32},
        {"M": 17, "K": 160},
        {"M": 33, "K": 64},
        {"M": 3, "K": 2592},
    ),
    large_shapes=({"M": 4096, "K": 4096}, {"M": 1021, "K": 1056}),
    profile_shape=_SMALL,
    odd_shape={"M": 29, "K": 480},
    bench_shape={"M": 8192, "K": 28672},  # Llama 2 70B, down projection: 250 MB
    questions={
        "bits_per_weight": Question(
            "How many bits does a weight take in block_q8_0, its share of the scale included?",
            lambda: _q8.Q8_0 * 8 / _q8.QK,
            "bits",
            "34 bytes for 32 weights.",
        ),
        "speedup": Question(
            "If memory bandwidth is all that counts, how many times faster than float16 is q8_0?",
            lambda: 16 / (_q8.Q8_0 * 8 / _q8.QK),
            "times",
            "16 bits against 8.5.",
        ),
        "dp4a/instructions_per_block": Question(
            "How many dp4a instructions multiply and add up a block of 32 weights with 32 activations?",
            lambda: _q8.QK / 4,
            "instructions",
            "Four products each, added to a running int32.",
        ),
        "dp4a/alignment": Question(
            "Blocks lie 34 bytes apart, the first on 16 bytes, and quants begin 2 bytes into each. Of 8 blocks in a "
            "row, how many have their quants on a multiple of 4 bytes?",
            lambda: sum((34 * block + 2) % 4 == 0 for block in range(8)),
            "blocks",
            "2, 36, 70, 104, ...: every other one. A kernel must not rely on it.",
        ),
        "repacked/load_instructions": Question(
            "dp4a reads the quants 2 bytes at a time. How many times fewer load instructions for quants does repacked "
            "need, at 16 bytes each?",
            lambda: 16 / 2,
            "times",
            "Quants alone lie side by side and start on 16 bytes, which 34-byte blocks never let them.",
        ),
    },
)
