"""lk.cuda.load4 and store4: one 16-byte access each, and refusals in one sentence."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("numba.cuda")

from numba import cuda, float32, float64, int8, int32, int64, uint32  # noqa: E402
from numba.core.errors import TypingError  # noqa: E402
from numba.cuda.types import float16  # noqa: E402

from labkit.kernels.intrinsics import (  # noqa: E402
    dp4a,
    exp2_approx,
    load2,
    load4,
    load8,
    load16,
    pack_f16x2,
    store4,
    store8,
)


def ptx(kernel, *signature) -> str:
    return cuda.compile_ptx(kernel, signature, cc=(9, 0))[0]


def test_each_is_one_access_of_16_bytes_in_the_right_memory():
    def kernel(out, a, n):
        tile = cuda.shared.array(128, float32, alignment=16)
        t = cuda.threadIdx.x * 4
        store4(tile, t, load4(a, t))
        cuda.syncthreads()
        store4(out, t, load4(tile, 124 - t))

    text = ptx(kernel, float32[::1], float32[::1], int64)
    for access in ("ld.global", "st.shared", "ld.shared", "st.global"):
        assert text.count(f"{access}.v4.f32") == 1, access
        assert f"{access}.f32" not in text


@pytest.mark.parametrize(
    "signature, says",
    [
        ((float32[:, ::1], int64), "1-D float32 array"),
        ((int64[::1], int64), "1-D float32 array"),
        ((float32[:], int64), "contiguous"),
        ((float32[::1], float32), "integer index"),
    ],
)
def test_load4_refuses(signature, says):
    def kernel(a, i):
        load4(a, i)

    with pytest.raises(TypingError, match=says):
        ptx(kernel, *signature)


def test_store4_refuses_other_values():
    def kernel(a):
        store4(a, 0, (1, 2, 3, 4))

    with pytest.raises(TypingError, match="tuple of 4 float32"):
        ptx(kernel, float32[::1])


def test_a_process_may_use_them_first_in_a_kernel():
    """numba must know lk.cuda's names before it types the kernel that mentions them."""
    code = (
        "import labkit as lk; from numba import cuda\n"
        "k = cuda.jit('void(float32[::1])')(lambda a: lk.cuda.store4(a, 0, lk.cuda.load4(a, 4)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_halves_and_bytes_are_one_access_of_16_bytes_each():
    def kernel(out, a, q, r, s):
        store8(out, 0, load8(a, 8))
        left, right = load16(q, 16), load16(r, 0)
        s[0] = dp4a(left[0], right[3], s[0])

    text = ptx(kernel, float16[::1], float16[::1], int8[::1], int8[::1], int32[::1])
    assert len(re.findall(r"ld\.global\.v4\.[bu]32|ld\.global\.v8\.[bf]16|ld\.global\.v2\.[bu]64", text)) == 3, text
    assert len(re.findall(r"st\.global\.v4\.[bu]32|st\.global\.v8\.[bf]16|st\.global\.v2\.[bu]64", text)) == 1
    assert text.count("dp4a.s32.s32") == 1


def test_two_halves_are_one_access_of_4_bytes():
    def kernel(out, a):
        out[0], out[1] = load2(a, 6)

    text = ptx(kernel, float32[::1], float16[::1])
    assert len(re.findall(r"ld\.global\.(?:v2\.)?\w+", text)) == 1, text
    assert text.count("cvt.f32.f16") == 2


@pytest.mark.parametrize(
    "call, array, says",
    [
        (load2, float32[::1], "load2 takes a 1-D float16 array"),
        (load8, float32[::1], "load8 takes a 1-D float16 array"),
        (load16, float16[::1], "load16 takes a 1-D int8 array"),
        (load8, float16[:], "contiguous"),
    ],
)
def test_accesses_to_halves_and_bytes_refuse(call, array, says):
    def kernel(a):
        call(a, 0)

    with pytest.raises(TypingError, match=says):
        ptx(kernel, array)


def test_store8_and_dp4a_refuse_other_values():
    def store(a):
        store8(a, 0, (1.0, 2.0))

    def dot(s):
        s[0] = dp4a(s[0], s[0], s[0])

    with pytest.raises(TypingError, match="tuple of 8 float32"):
        ptx(store, float16[::1])
    with pytest.raises(TypingError, match="three int32"):
        ptx(dot, int64[::1])


def test_two_halves_are_packed_and_powers_of_2_taken_in_one_instruction_each():
    def kernel(out, x):
        out[0] = pack_f16x2(x[0], x[1])
        x[2] = exp2_approx(x[2])

    text = ptx(kernel, uint32[::1], float32[::1])
    assert text.count("cvt.rn.f16x2.f32") == text.count("ex2.approx.ftz.f32") == 1
    out, x = np.zeros(1, np.uint32), np.array([1.5, -2.25, -np.inf], np.float32)
    cuda.jit(kernel)[1, 1](out, x)
    assert out.view(np.float16).tolist() == [1.5, -2.25]
    assert x[2] == 0


def test_they_refuse_doubles():
    def pack(out, x):
        out[0] = pack_f16x2(x[0], x[1])

    def power(out, x):
        x[0] = exp2_approx(x[0])

    for kernel, name in ((pack, "pack_f16x2"), (power, "exp2_approx")):
        with pytest.raises(TypingError, match=f"{name} takes float32, not float64"):
            ptx(kernel, uint32[::1], float64[::1])
