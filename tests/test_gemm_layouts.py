"""register_2d: alpha, beta and all four layouts are the same operation on other memory."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import labkit as lk
from labkit.emulator import Emulation
from labkit.kernels import emulating

sizes = st.integers(1, 40)
factors = st.sampled_from([0.0, 1.0, -0.5, 3.25])


@pytest.mark.parametrize("language", ["numba", "cuda"])
def test_layouts_alpha_and_beta(language):
    kernel = lk.problem("gemm")["register_2d", language].solution.kernel

    @settings(max_examples=25, deadline=None)
    @given(M=sizes, N=sizes, K=sizes, alpha=factors, beta=factors, trans_a=st.booleans(), trans_b=st.booleans())
    def equivalent(M, N, K, alpha, beta, trans_a, trans_b):
        A, B, C = torch.randn(M, K), torch.randn(K, N), torch.randn(M, N)
        want = alpha * (A.double() @ B.double()) + beta * C.double()
        if beta == 0:
            C.fill_(float("nan"))  # beta = 0 must not read C
        stored_A = A.T.contiguous() if trans_a else A
        stored_B = B.T.contiguous() if trans_b else B
        options = {"alpha": alpha, "beta": beta, "trans_a": int(trans_a), "trans_b": int(trans_b)}
        if language == "cuda":
            options["K"] = K
        with emulating(Emulation()):
            kernel.launch(C, stored_A, stored_B, **options)
        scale = abs(alpha) * (A.abs().double() @ B.abs().double()) + 1
        assert bool(((C.double() - want).abs() <= 8 * 2.0**-24 * scale).all())

    equivalent()
