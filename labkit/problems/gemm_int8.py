"""gemm_int8: the product of two int8 matrices, exact in int32; both have K as their inner dimension."""

from __future__ import annotations

from labkit.problems.gemm import flops
from labkit.problems.gemm_f16 import _conflicts
from labkit.problems.problem import Problem, Question, Step, Tensor


def reference(A, B):
    return A.double() @ B.double().T  # exact: sums stay below 2**53


def baseline(A, B):
    """cuBLASLt where it takes the shape, else float64."""
    import torch

    M, K = A.shape
    if A.is_cuda and M > 16 and K % 8 == 0 and B.shape[0] % 8 == 0:
        return torch._int_mm(A, B.t())
    return reference(A, B).to(torch.int32)


problem = Problem(
    name="gemm_int8",
    lab="02_gemm",
    formula="C[M,N] = A[M,K] @ B[N,K].T",
    dims=("M", "N", "K"),
    inputs={"A": Tensor(("M", "K"), "int8"), "B": Tensor(("N", "K"), "int8")},
    outputs={"C": Tensor(("M", "N"), "int32")},
    reference=reference,
    baseline=baseline,
    flops=flops,
    math="int8",
    ladder=(
        Step(
            "int8_wmma", "int8 fragments of 16 x 16 from tiles in slices", "int8 tensor operations; bank conflicts",
            languages=("cuda",), why="numba has no wmma fragments; int8_mma has labkit's intrinsics",
        ),
        Step("int8_mma", "ldmatrix, mma.sync and cp.async; swizzled tiles in four stages", "stalls; tensor pipe"),
    ),
    shapes=(
        {"M": 16, "N": 16, "K": 32},
        {"M": 1, "N": 1, "K": 1},
        {"M": 33, "N": 65, "K": 17},
        {"M": 129, "N": 264, "K": 80},
        {"M": 5, "N": 123, "K": 123},
        {"M": 64, "N": 48, "K": 208},
        {"M": 133 * 128, "N": 8, "K": 16},  # more tiles than an H200 has multiprocessors, for blocks that take several
    ),
    large_shapes=(
        {"M": 1024, "N": 1024, "K": 1024},
        {"M": 1023, "N": 1025, "K": 511},
        {"M": 4097, "N": 136, "K": 2064},
    ),
    profile_shape={"M": 256, "N": 256, "K": 256},
    odd_shape={"M": 129, "N": 264, "K": 144},
    bench_shape={"M": 4096, "N": 4096, "K": 4096},
    questions={
        "int8_wmma/largest_sum": Question(
            "int8 goes from -128 to 127. Up to which K is every sum of K products sure to fit into int32?",
            lambda: (2**31 - 1) // 128**2,
            "products",
            "The largest product is (-128) * (-128) = 16384, and int32 holds 2147483647.",
        ),
        "int8_wmma/passes_in_rows": Question(
            "8 rows of a fragment, 16 bytes each, are read together. The tile has rows of 64 int8. How many passes "
            "through the banks does that take?",
            lambda: _conflicts(64),
            "passes",
            "Every second row begins in the same bank, so that 8 rows meet in fours.",
        ),
        "int8_wmma/passes_in_slices": Question(
            "And in slices, where the rows of a fragment follow each other, 16 bytes apart?",
            lambda: _conflicts(16),
            "passes",
            "8 rows are 128 bytes in a row: all 32 banks once.",
        ),
        "quantise/largest_error": Question(
            "The largest magnitude in a row is 4. It is quantized to int8, symmetrically, with the scale 4 / 127. By "
            "how much can rounding change an element at most?",
            lambda: 4 / 127 / 2,
            "",
            "Half a step, and a step is the scale.",
        ),
        "int8_mma/bytes": Question(
            "C = A @ B.T at M = N = K = 4096: how many bytes must move at least, with A and B in int8 and C in int32?",
            lambda: problem.bytes({"M": 4096, "N": 4096, "K": 4096}),
            "bytes",
            "4096 * 4096 * (1 + 1 + 4): the result weighs twice as much as both operands.",
        ),
        "int8_mma/multiply_adds": Question(
            "How many multiply-adds does a warp do with one m16n8k32?",
            lambda: 16 * 8 * 32,
            "multiply-adds",
            "Twice as many as with m16n8k16 of float16, from registers of the same size.",
        ),
    },
)
