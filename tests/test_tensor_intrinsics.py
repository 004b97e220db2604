"""Tensor-core and copy intrinsics for numba: one instruction each, and refusals in one sentence."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba.cuda")

from numba import cuda, float32, int8, int32, int64, uint32  # noqa: E402
from numba.core import types  # noqa: E402
from numba.core.errors import TypingError  # noqa: E402
from numba.cuda.types import float16  # noqa: E402

import labkit as lk  # noqa: E402

FOUR, TWO, SUMS = types.UniTuple(uint32, 4), types.UniTuple(uint32, 2), types.UniTuple(float32, 4)


def ptx(kernel, *signature) -> str:
    return cuda.compile_ptx(kernel, signature, cc=(9, 0))[0]


def test_each_is_one_instruction():
    def kernel(out, a, n):
        tile = cuda.shared.array(512, float16, alignment=16)
        lk.cuda.cp_async(tile, cuda.threadIdx.x * 8, a, cuda.threadIdx.x * 8, n)
        lk.cuda.cp_async_commit()
        lk.cuda.cp_async_wait(0)
        cuda.syncthreads()
        x = lk.cuda.ldmatrix(tile, cuda.threadIdx.x * 8)
        y = lk.cuda.ldmatrix_transposed(tile, cuda.threadIdx.x * 8 + 256)
        zero = float32(0)
        c = lk.cuda.mma_m16n8k16(x, (y[0], y[1]), (zero, zero, zero, zero))
        out[cuda.threadIdx.x] = c[0] + c[1] + c[2] + c[3]

    text = ptx(kernel, float32[::1], float16[::1], int32)
    for instruction in (
        "cp.async.cg.shared.global",
        "cp.async.commit_group",
        "cp.async.wait_group 0",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    ):
        assert text.count(instruction) == 1, instruction


def test_a_product_of_bytes_is_exact():
    """One warp: 16 x 32 by 32 x 8, fragments put together by hand as the manual draws them."""

    @cuda.jit
    def kernel(C, A, B):
        g, q = cuda.threadIdx.x // 4, cuda.threadIdx.x % 4
        a = (A[g, q], A[g + 8, q], A[g, q + 4], A[g + 8, q + 4])  # words of four bytes
        b = (B[g, q], B[g, q + 4])
        zero = int32(0)
        c = lk.cuda.mma_m16n8k32(a, b, (zero, zero, zero, zero))
        C[g, 2 * q], C[g, 2 * q + 1], C[g + 8, 2 * q], C[g + 8, 2 * q + 1] = c[0], c[1], c[2], c[3]

    rng = np.random.default_rng(0)
    A, B = (rng.integers(-128, 128, (rows, 32), dtype=np.int8) for rows in (16, 8))
    C = np.zeros((16, 8), np.int32)
    kernel[1, 32](C, A.view(np.uint32), B.view(np.uint32))
    assert (C == A.astype(int) @ B.astype(int).T).all()


@pytest.mark.parametrize(
    "call, signature, says",
    [
        (lambda a: lk.cuda.ldmatrix(a, 0), (float32[::1],), "1-D array of 8 or 16-bit elements"),
        (lambda a: lk.cuda.ldmatrix(a, 0), (float16[:, ::1],), "1-D array"),
        (lambda a: lk.cuda.ldmatrix(a, 0), (float16[:],), "contiguous"),
        (lambda a: lk.cuda.ldmatrix(a, 1.5), (float16[::1],), "integer index"),
        (lambda a, b, c: lk.cuda.mma_m16n8k16(a, b, c), (TWO, TWO, SUMS), "a as a tuple of 4 uint32"),
        (lambda a, b, c: lk.cuda.mma_m16n8k16(a, b, c), (FOUR, FOUR, SUMS), "b as a tuple of 2 uint32"),
        (lambda a, b, c: lk.cuda.mma_m16n8k32(a, b, c), (FOUR, TWO, SUMS), "c as a tuple of 4 int32"),
        (lambda a, b: lk.cuda.cp_async(a, 0, b, 0, 16), (int64[::1], int8[::1]), "cp_async takes a 1-D array"),
        (lambda a, b: lk.cuda.cp_async(a, 0, b, 0, 1.0), (int8[::1], int8[::1]), "number of bytes"),
        (lambda n: lk.cuda.cp_async_wait(n), (int32,), "constant number of groups"),
    ],
)
def test_refusals(call, signature, says):
    with pytest.raises(TypingError, match=says):
        ptx(cuda.jit(device=True)(call).py_func, *signature)
