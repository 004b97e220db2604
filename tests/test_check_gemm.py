"""The check of gemm must reject wrong kernels, each for the right reason, and pass unusual right ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

import labkit as lk

KERNELS = Path(__file__).parents[1] / "solutions" / "02_gemm" / "kernels" / "gemm"
LANGUAGES = {"numba": ".py", "cuda": ".cu"}


@dataclass(frozen=True)
class Wrong:
    """A wrong kernel: one edit of a solution, the kind of failure and the words that must be reported.

    marker: a piece of the line that the report must point at (in the edited file), if it points at one.
    """

    name: str
    rung: str
    numba: tuple[str, str]
    cuda: tuple[str, str]
    kind: str
    says: str
    marker: tuple[str, str] | None = None


FIRST_BARRIER = (
    "        cuda.syncthreads()  # nobody reads",
    "        __syncthreads();  // nobody reads",
)
SECOND_BARRIER = (
    "        cuda.syncthreads()  # nobody over",
    "        __syncthreads();  // nobody over",
)

WRONG = [
    Wrong(
        "missing first barrier",
        "smem_tile",
        (FIRST_BARRIER[0], "        # nobody reads"),
        (FIRST_BARRIER[1], "        // nobody reads"),
        "race",
        r"barrier|syncthreads",
        ("acc += tA[y, k]", "acc += tA[y][k]"),
    ),
    Wrong(
        "missing second barrier",
        "smem_tile",
        (SECOND_BARRIER[0], "        # nobody over"),
        (SECOND_BARRIER[1], "        // nobody over"),
        "race",
        r"barrier|syncthreads",
        ("tA[y, x] =", "tA[y][x] ="),
    ),
    Wrong(
        "transposed index",
        "smem_tile",
        ("acc += tA[y, k] * tB[k, x]", "acc += tA[y, k] * tB[x, k]"),
        ("acc += tA[y][k] * tB[k][x]", "acc += tA[y][k] * tB[x][k]"),
        "value",
        r"C\[0, 0\] got .* want ",
    ),
    Wrong(
        "off-by-one tail",
        "coalesced",
        ("for k in range(K)", "for k in range(K - 1)"),
        ("k < K;", "k < K - 1;"),
        "value",
        r"C\[0, 0\] got .* want ",
    ),
    Wrong(
        "stray read",
        "coalesced",
        ("if row < M and col < N:", "if row < M and col < N + 1:"),
        ("if (row < M && col < N)", "if (row < M && col < N + 1)"),
        "out_of_bounds",
        r"\b[BC]\b",
    ),
    Wrong(
        "stray write",
        "smem_tile",
        ("    if row < M and col < N:", "    if row < M:"),
        ("    if (row < M && col < N)\n", "    if (row < M)\n"),
        "out_of_bounds|value",
        r"C\[",
    ),
    Wrong(
        "wrong start of the accumulator",
        "coalesced",
        ("acc = float32(0)", "acc = C[row, col]"),
        ("float acc = 0.0f", "float acc = C[(size_t)row * N + col]"),
        "value|uninitialized",
        r"C\[0, 0\].*(nan|written)",
    ),
    Wrong(
        "half a tile unwritten",
        "smem_tile",
        ("        tB[y, x] = B[k0 + y, col]", "        if y < 8: tB[y, x] = B[k0 + y, col]"),
        ("        tB[y][x] = k0", "        if (y < 8) tB[y][x] = k0"),
        "uninitialized",
        r"tB\[128\]|no thread has written",
        ("acc += tA[y, k]", "acc += tA[y][k]"),
    ),
    Wrong(
        "half of the output unwritten",
        "coalesced",
        ("        C[row, col] = acc", "        if col % 2 == 0: C[row, col] = acc"),
        (
            "        C[(size_t)row * N + col] = acc",
            "        if (col % 2 == 0) C[(size_t)row * N + col] = acc",
        ),
        "unwritten",
        r"C\[0, 1\] was never written",
    ),
    Wrong(
        "reads past K",
        "smem_tile",
        ("A[row, k0 + x] if row < M and k0 + x < K", "A[row, k0 + x] if row < M"),
        ("row < M && k0 + x < K ?", "row < M ?"),
        "out_of_bounds|value",
        r"A\[|C\[",
    ),
    Wrong(
        "writes its input",
        "coalesced",
        ("        C[row, col] = acc", "        C[row, col] = acc\n        A[row, 0] = acc"),
        ("float *C, const float *A", "float *C, float *A"),
        "race",
        r"A\[\d+, 0\], which thread .* (reads|writes) at line",
    ),
    Wrong(
        "barrier in a branch",
        "smem_tile",
        (FIRST_BARRIER[0], "        if y < 8: cuda.syncthreads()  # nobody reads"),
        (FIRST_BARRIER[1], "        if (y < 8) __syncthreads();  // nobody reads"),
        "barrier",
        r"128 of 256",
        ("if y < 8: cuda", "if (y < 8) __sync"),
    ),
    Wrong(
        "never ends",
        "coalesced",
        ("        for k in range(K):\n", "        k = 0\n        while k < K:\n"),
        ("++k)", "k += 0)"),
        "no_progress",
        r"line \d+",
    ),
    Wrong(
        "half precision inside",
        "coalesced",
        ("acc += A[row, k] * B[k, col]", "acc += float32(float16(A[row, k])) * B[k, col]"),
        ("A[(size_t)row * K + k] * B", "__half2float(__float2half(A[(size_t)row * K + k])) * B"),
        "value",
        r"allowed",
    ),
]


def edited(case: Wrong, language: str) -> str:
    text = (KERNELS / (case.rung + LANGUAGES[language])).read_text()
    old, new = getattr(case, language)
    assert text.count(old) == 1, f"{case.name}: the {language} solution has changed; mend the edit"
    text = text.replace(old, new)
    if case.name == "writes its input" and language == "cuda":
        text = text.replace("+ col] = acc;", "+ col] = acc;\n        A[(size_t)row * K] = acc;")
    if case.name == "half precision inside":
        header = {"numba": "from numba.cuda.types import float16\n", "cuda": "#include <cuda_fp16.h>\n"}
        text = header[language] + text
    return text


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.name.replace(" ", "_"))
def test_wrong_kernel_is_rejected_for_the_right_reason(case: Wrong, language: str, tmp_path: Path):
    text = edited(case, language)
    file = tmp_path / (case.rung + LANGUAGES[language])
    file.write_text(text)
    result = lk.problem("gemm")[case.rung].load(file).check()
    assert not result.passed
    failure = result.failures[0]
    assert re.fullmatch(case.kind, failure.kind), failure
    assert re.search(case.says, failure.message), failure.message
    if case.marker:
        marker = case.marker[list(LANGUAGES).index(language)]
        line = 1 + next(i for i, row in enumerate(text.splitlines()) if marker in row)
        assert failure.line == line, failure
    assert "\n" not in str(failure)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("rung", ["naive", "coalesced", "smem_tile"])
def test_solution_passes(rung: str, language: str):
    result = lk.problem("gemm")[rung, language].solution.check()
    assert result.passed, result
    assert len(result.runs) >= 9


RIGHT = {
    "one-dimensional block": """
from numba import cuda, float32

@cuda.jit
def kernel(C, A, B):
    i = cuda.grid(1)
    if i < C.size:
        row, col = i // C.shape[1], i % C.shape[1]
        acc = float32(0)
        for k in range(A.shape[1]):
            acc += A[row, k] * B[k, col]
        C[row, col] = acc

def launch(C, A, B):
    kernel[(C.numel() + 95) // 96, 96](C, A, B)
""",
    "sum in float64, backwards": """
from numba import cuda, float64

@cuda.jit
def kernel(C, A, B):
    col, row = cuda.grid(2)
    if row < C.shape[0] and col < C.shape[1]:
        acc = float64(0)
        for k in range(A.shape[1] - 1, -1, -1):
            acc += float64(A[row, k]) * float64(B[k, col])
        C[row, col] = acc

def launch(C, A, B):
    kernel[((C.shape[1] + 31) // 32, (C.shape[0] + 3) // 4), (32, 4)](C, A, B)
""",
    "split along K with atomics": """
from numba import cuda, float32

@cuda.jit
def kernel(C, A, B):
    col, row, part = cuda.grid(3)
    if row < C.shape[0] and col < C.shape[1]:
        acc = float32(0)
        for k in range(part, A.shape[1], 4):
            acc += A[row, k] * B[k, col]
        cuda.atomic.add(C, (row, col), acc)

@cuda.jit
def zero(C):
    col, row = cuda.grid(2)
    if row < C.shape[0] and col < C.shape[1]:
        C[row, col] = 0

def launch(C, A, B):
    M, N = C.shape
    zero[((N + 15) // 16, (M + 15) // 16), (16, 16)](C)
    kernel[((N + 15) // 16, (M + 7) // 8, 4), (16, 8, 1)](C, A, B)
""",
    "one warp per element, shuffles": """
from numba import cuda, float32

@cuda.jit
def kernel(C, A, B):
    lane = cuda.threadIdx.x
    row, col = cuda.blockIdx.y, cuda.blockIdx.x
    acc = float32(0)
    for k in range(lane, A.shape[1], 32):
        acc += A[row, k] * B[k, col]
    offset = 16
    while offset > 0:
        acc += cuda.shfl_down_sync(0xFFFFFFFF, acc, offset)
        offset //= 2
    if lane == 0:
        C[row, col] = acc

def launch(C, A, B):
    kernel[(C.shape[1], C.shape[0]), 32](C, A, B)
""",
    "a tile row per warp, ordered by syncwarp only": """
from numba import cuda, float32

@cuda.jit
def kernel(C, A, B):
    row_of_warp = cuda.shared.array((4, 32), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row = cuda.blockIdx.y * 4 + y
    col = cuda.blockIdx.x * 32 + x
    acc = float32(0)
    for k0 in range(0, A.shape[1], 32):
        inside = row < A.shape[0] and k0 + x < A.shape[1]
        row_of_warp[y, x] = A[row, k0 + x] if inside else float32(0)
        cuda.syncwarp()
        for k in range(min(32, A.shape[1] - k0)):
            if col < B.shape[1]:
                acc += row_of_warp[y, k] * B[k0 + k, col]
        cuda.syncwarp()
    if row < C.shape[0] and col < C.shape[1]:
        C[row, col] = acc

def launch(C, A, B):
    kernel[((C.shape[1] + 31) // 32, (C.shape[0] + 3) // 4), (32, 4)](C, A, B)
""",
    "two outputs per thread, transposed shared tile": """
from numba import cuda, float32

@cuda.jit
def kernel(C, A, B):
    tA = cuda.shared.array((8, 8), float32)
    tB = cuda.shared.array((8, 16), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * 8 + y, cuda.blockIdx.x * 16 + x
    left = right = float32(0)
    for k0 in range(0, A.shape[1], 8):
        tA[x, y] = A[row, k0 + x] if row < A.shape[0] and k0 + x < A.shape[1] else float32(0)
        for half in range(0, 16, 8):
            there = k0 + y < B.shape[0] and col + half < B.shape[1]
            tB[y, x + half] = B[k0 + y, col + half] if there else float32(0)
        cuda.syncthreads()
        for k in range(8):
            left += tA[k, y] * tB[k, x]
            right += tA[k, y] * tB[k, x + 8]
        cuda.syncthreads()
    if row < C.shape[0]:
        if col < C.shape[1]:
            C[row, col] = left
        if col + 8 < C.shape[1]:
            C[row, col + 8] = right

def launch(C, A, B):
    kernel[((C.shape[1] + 15) // 16, (C.shape[0] + 7) // 8), (8, 8)](C, A, B)
""",
}


@pytest.mark.parametrize("name", RIGHT)
def test_unusual_but_right_variant_passes(name: str, tmp_path: Path):
    file = tmp_path / "variant.py"
    file.write_text(RIGHT[name])
    result = lk.problem("gemm")["naive"].load(file).check()
    assert result.passed, result


DYNAMIC = """
// launch kernel<<<(N, (M + 63) / 64), (64), 64 * 4>>>(C, A, B, M, N, K)
extern "C" __global__ void kernel(float *C, const float *A, const float *B, int M, int N, int K)
{
    extern __shared__ float column[];
    int row = blockIdx.y * 64 + threadIdx.x;
    float acc = 0.0f;
    for (int k0 = 0; k0 < K; k0 += 64) {
        int k = k0 + threadIdx.x;
        column[threadIdx.x] = k < K ? B[k * N + blockIdx.x] : 0.0f;
        __syncthreads();
        if (row < M)
            for (int j = 0; j < 64 && k0 + j < K; ++j)
                acc = fmaf(A[row * K + k0 + j], column[j], acc);
        __syncthreads();
    }
    if (row < M)
        C[row * N + blockIdx.x] = acc;
}
"""


def test_dynamic_shared_memory_variant_passes(tmp_path: Path):
    file = tmp_path / "variant.cu"
    file.write_text(DYNAMIC)
    result = lk.problem("gemm")["naive"].load(file).check()
    assert result.passed, result
