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


def test_a_product_of_bfloat16_is_exact():
    """As above, of small integers, which bfloat16 holds; what is packed is rounded to the nearest, ties to even."""

    @cuda.jit
    def kernel(C, A, B):
        g, q = cuda.threadIdx.x // 4, cuda.threadIdx.x % 4
        a0 = lk.cuda.pack_bf16x2(A[g, 2 * q], A[g, 2 * q + 1])
        a1 = lk.cuda.pack_bf16x2(A[g + 8, 2 * q], A[g + 8, 2 * q + 1])
        a2 = lk.cuda.pack_bf16x2(A[g, 2 * q + 8], A[g, 2 * q + 9])
        a3 = lk.cuda.pack_bf16x2(A[g + 8, 2 * q + 8], A[g + 8, 2 * q + 9])
        b0 = lk.cuda.pack_bf16x2(B[2 * q, g], B[2 * q + 1, g])
        b1 = lk.cuda.pack_bf16x2(B[2 * q + 8, g], B[2 * q + 9, g])
        zero = float32(0)
        c = lk.cuda.mma_m16n8k16_bf16((a0, a1, a2, a3), (b0, b1), (zero, zero, zero, zero))
        C[g, 2 * q], C[g, 2 * q + 1], C[g + 8, 2 * q], C[g + 8, 2 * q + 1] = c[0], c[1], c[2], c[3]

    rng = np.random.default_rng(0)
    A, B = (rng.integers(-256, 257, shape).astype(np.float32) for shape in ((16, 16), (16, 8)))
    A[0, 0], A[1, 1] = 257, 259  # halfway between what bfloat16 has: 256 and 258, 258 and 260
    C = np.zeros((16, 8), np.float32)
    kernel[1, 32](C, A, B)
    A[0, 0], A[1, 1] = 256, 260
    assert (C == A @ B).all()


def test_a_matrix_turned_round():
    @cuda.jit
    def kernel(to, words):
        to[cuda.threadIdx.x] = lk.cuda.movmatrix_transposed(words[cuda.threadIdx.x])

    matrix = np.arange(64, dtype=np.uint16).reshape(8, 8)
    to = np.zeros(32, np.uint32)
    kernel[1, 32](to, matrix.reshape(-1).view(np.uint32))
    assert (to.view(np.uint16).reshape(8, 8) == matrix.T).all()


def test_a_function_of_three_words():
    @cuda.jit
    def kernel(to, w):
        to[0] = lk.cuda.lop3(w[0], w[1], w[2], 0xEA)
        to[1] = lk.cuda.lop3(w[0], w[1], w[2], 0x96)

    words = np.array([0x0F0F1234, 0x00FF00FF, 0x43004300], np.uint32)
    to = np.zeros(2, np.uint32)
    kernel[1, 1](to, words)
    assert to.tolist() == [words[0] & words[1] | words[2], words[0] ^ words[1] ^ words[2]]


def test_two_halves_of_a_word():
    @cuda.jit
    def kernel(to, words):
        to[0], to[1] = lk.cuda.unpack_f16x2(words[0])

    to = np.zeros(2, np.float32)
    kernel[1, 1](to, np.array([1.5, -3.0625], np.float16).view(np.uint32))
    assert to.tolist() == [1.5, -3.0625]


@pytest.mark.parametrize(
    "call, signature, says",
    [
        (lambda a: lk.cuda.ldmatrix(a, 0), (int64[::1],), "1-D array of 8, 16 or 32-bit elements"),
        (lambda a: lk.cuda.ldmatrix(a, 0), (float16[:, ::1],), "1-D array"),
        (lambda a: lk.cuda.ldmatrix(a, 0), (float16[:],), "contiguous"),
        (lambda a: lk.cuda.ldmatrix(a, 1.5), (float16[::1],), "integer index"),
        (lambda a, b, c: lk.cuda.mma_m16n8k16(a, b, c), (TWO, TWO, SUMS), "a as a tuple of 4 uint32"),
        (lambda a, b, c: lk.cuda.mma_m16n8k16(a, b, c), (FOUR, FOUR, SUMS), "b as a tuple of 2 uint32"),
        (lambda a, b, c: lk.cuda.mma_m16n8k32(a, b, c), (FOUR, TWO, SUMS), "c as a tuple of 4 int32"),
        (lambda a, b, c: lk.cuda.mma_m16n8k16_bf16(a, b, c), (FOUR, TWO, FOUR), "c as a tuple of 4 float32"),
        (lambda w: lk.cuda.movmatrix_transposed(w), (int64,), "takes a uint32"),
        (lambda a, b: lk.cuda.pack_bf16x2(a, b), (float32, int32), "takes float32"),
        (lambda w: lk.cuda.unpack_f16x2(w), (int32,), "takes a uint32"),
        (lambda w, n: lk.cuda.lop3(w, w, w, n), (uint32, int32), "constant table"),
        (lambda w: lk.cuda.lop3(w, w, 1, 0xEA), (uint32,), "three uint32"),
        (lambda a, b: lk.cuda.cp_async(a, 0, b, 0, 16), (int64[::1], int8[::1]), "cp_async takes a 1-D array"),
        (lambda a, b: lk.cuda.cp_async(a, 0, b, 0, 1.0), (int8[::1], int8[::1]), "number of bytes"),
        (lambda n: lk.cuda.cp_async_wait(n), (int32,), "constant number of groups"),
    ],
)
def test_refusals(call, signature, says):
    with pytest.raises(TypingError, match=says):
        ptx(cuda.jit(device=True)(call).py_func, *signature)
