"""gemm_bf16: gemm_f16 on bfloat16; the same kernels, compiled with -DBF16."""

from __future__ import annotations

from dataclasses import replace

from labkit.problems.gemm_f16 import problem as gemm_f16
from labkit.problems.problem import Tensor

problem = replace(
    gemm_f16,
    name="gemm_bf16",
    kernels="gemm_f16",
    inputs={"A": Tensor(("M", "K"), "bfloat16"), "B": Tensor(("K", "N"), "bfloat16")},
    math="bfloat16",
    ladder=tuple(
        replace(step, languages=("cuda",), defines=("BF16",), why="numba knows no bfloat16 tensors")
        for step in gemm_f16.ladder
    ),
    questions={},
)
