"""The check of gemm passes kernels that are unusual and right."""

from __future__ import annotations

from pathlib import Path

import pytest

import labkit as lk

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


def test_a_failure_is_said_for_the_one_who_reads_it(tmp_path):
    path = tmp_path / "coalesced.py"
    rung = lk.problem("gemm")["coalesced"]
    path.write_text("def launch(C, A, B):\n    pass\n")
    first, second, third = repr(rung.load(path).check()).split("\n")[1:]
    assert first.startswith("  M=16 N=16 K=16: C[0, 0] was") and third.startswith("  M=1 N=1 K=1: ")
    assert second.startswith("  the same, with other inputs: C[0, 0] was never written")
    launch = "def launch(C, A, B):\n    k[1, 1](C)\n"
    path.write_text(f"from numba import cuda\n@cuda.jit\ndef k(C):\n    C[0] = x\n{launch}")
    failed = rung.load(path).check()
    assert repr(failed).split("\n")[1:] == [
        "  M=16 N=16 K=16: coalesced.py:4: k does not compile: NameError: name 'x' is not defined.",
        "    C[0] = x",
    ]
    assert "white-space:pre-wrap" in failed._repr_html_()


MANY_REGISTERS = """
// launch add<<<((N + 1023) / 1024), (1024), 0>>>(C, A, B, N)

extern "C" __global__ void BOUNDS add(float *C, const float *A, const float *B, int N)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float held[100], last = 0.0f;
    #pragma unroll
    for (int k = 0; k < 100; ++k)
        held[k] = ((const volatile float *)A)[(i + k) % N];
    __syncthreads();  // all are loaded before any is used
    #pragma unroll
    for (int k = 99; k >= 0; --k)
        last = 0.5f * last + held[k];
    if (i < N)
        C[i] = A[i] + B[i] + 0.0f * last;
}
"""


@pytest.mark.parametrize("bounds", ["", "__launch_bounds__(1024)"])
def test_a_block_of_more_registers_than_there_are_fails_its_check(tmp_path, bounds):
    file = tmp_path / "grid.cu"
    file.write_text(MANY_REGISTERS.replace("BOUNDS", bounds))
    result = lk.problem("vector_add")["grid"].load(file).check(on="emulator")
    assert result.passed is bool(bounds)
    if not bounds:
        (failure,) = result.failures
        assert failure.kind == "launch"
        assert failure.message.startswith("A GPU refuses to launch add. A block of 1024 threads with ")
        assert "__launch_bounds__(1024)" in failure.message


def test_code_that_the_assembler_refuses_fails_its_check(tmp_path):
    """Also where it is never reached."""
    file = tmp_path / "grid.cu"
    source = MANY_REGISTERS.replace("BOUNDS", "__launch_bounds__(1024)")
    never = '    if (N < 0)\n        asm("wgmma.fence.sync.aligned;");\n'
    file.write_text(source.replace("    if (i < N)", f"{never}    if (i < N)"))
    result = lk.problem("vector_add")["grid"].load(file).check(on="emulator")
    (failure,) = result.failures
    assert failure.kind == "error" and failure.message.startswith("ptxas refuses this PTX: ")
