"""The PyTorch operators: their checks and shapes on the CPU, and on a GPU the operators themselves."""

from __future__ import annotations

import math
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

EXTENSION = Path(__file__).parents[1] / "solutions" / "extension"


@pytest.fixture(scope="session")
def ops():
    if not (shutil.which("g++") and shutil.which("ninja")) and not os.environ.get("LABKIT_REQUIRE_COMPILER"):
        pytest.skip("g++ and ninja are not here to build the extension")
    sys.path.insert(0, str(EXTENSION))
    import labkit_ops

    return labkit_ops


def matrix(rows, cols, dtype=torch.float32, device="cpu"):
    if dtype == torch.int8:
        return torch.randint(-128, 128, (rows, cols), dtype=dtype, device=device)
    return torch.randn(rows, cols, device=device).to(dtype)


F, H, I8 = torch.float32, torch.float16, torch.int8
REFUSED = [
    ("gemm", lambda: (matrix(3, 4), matrix(5, 6)), {}, "inner dimensions differ, 4 of a and 5 of b"),
    ("gemm", lambda: (matrix(3, 4), matrix(4, 6)), {"trans_a": True}, "inner dimensions differ, 3 of a and 4 of b"),
    ("gemm", lambda: (matrix(3, 4), matrix(6, 3)), {"trans_b": True}, "inner dimensions differ, 4 of a and 3 of b"),
    ("gemm", lambda: (torch.randn(3), matrix(3, 4)), {}, "a must be a matrix, but it has 1 dimensions"),
    ("gemm", lambda: (matrix(3, 4), torch.randn(2, 4, 5)), {}, "b must be a matrix, but it has 3 dimensions"),
    ("gemm", lambda: (matrix(0, 4), matrix(4, 5)), {}, r"a is empty \(0 x 4\)"),
    ("gemm", lambda: (matrix(3, 4), matrix(4, 0)), {}, r"b is empty \(4 x 0\)"),
    ("gemm", lambda: (matrix(3, 4, H), matrix(4, 5, H)), {}, "a must be float32, not Half"),
    ("gemm", lambda: (matrix(3, 4), matrix(4, 5, H)), {}, "a is Float and b is Half"),
    ("gemm", lambda: (matrix(4, 3).t(), matrix(4, 5)), {}, "a must be contiguous"),
    ("gemm", lambda: (matrix(3, 4), matrix(4, 10)[:, ::2]), {}, "b must be contiguous"),
    ("gemm", lambda: (matrix(3, 4), matrix(4, 5)), {"beta": 1.0}, "beta is 1 and there is no c"),
    ("gemm", lambda: (matrix(3, 4), matrix(4, 5)), {"alpha": float("nan")}, "alpha and beta must be finite"),
    ("gemm", lambda: (matrix(3, 4), matrix(4, 5)), {"beta": 1.0, "c": matrix(5, 3)}, "c is 5 x 3, and the product"),
    ("gemm", lambda: (matrix(3, 4), matrix(4, 5)), {"beta": 1.0, "c": matrix(3, 5, H)}, "c must be float32"),
    ("gemm", lambda: (matrix(3, 4), matrix(4, 5)), {}, "runs on CUDA tensors, and these are on the CPU"),
    ("tensor_core_gemm", lambda: (matrix(3, 4), matrix(4, 5)), {}, "a must be float16 or bfloat16, not Float"),
    ("tensor_core_gemm", lambda: (matrix(3, 4, H), matrix(4, 5, torch.bfloat16)), {}, "a is Half and b is BFloat16"),
    ("tensor_core_gemm", lambda: (matrix(3, 4, H), matrix(5, 4, H).t()), {}, "b must be contiguous"),
    ("tensor_core_gemm", lambda: (matrix(3, 4, H), matrix(4, 5, H)), {}, "runs on CUDA tensors"),
    ("tensor_core_gemm_int8", lambda: (matrix(3, 4), matrix(4, 5)), {}, "a must be int8, not Float"),
    ("tensor_core_gemm_int8", lambda: (matrix(3, 4, I8), matrix(4, 5, I8)), {}, r"pass w\.t\(\) of a contiguous w"),
    ("tensor_core_gemm_int8", lambda: (matrix(1, 131072, I8), matrix(1, 131072, I8).t()), {}, "may not fit into int32"),
    ("tensor_core_gemm_int8", lambda: (matrix(3, 4, I8), matrix(5, 4, I8).t()), {}, "runs on CUDA tensors"),
]


BF = torch.bfloat16


def qkv(B=2, H=4, HK=2, N=5, NK=7, D=32, dtype=F, device="cpu"):
    """q [B, H, N, D], k and v [B, HK, NK, D]."""
    shapes = (B, H, N, D), (B, HK, NK, D), (B, HK, NK, D)
    return tuple(torch.randn(shape, device=device).to(dtype) for shape in shapes)


def cached(B=3, T=9, HQ=8, dtype=BF, row=128, device="cpu"):
    """q, k_cache, v_cache and lengths of gqa_decode, or with uint8 and 68 or 80 of int4_gqa_decode."""
    caches = [torch.randn(B, T, 1, row, device=device).to(dtype) for _ in "kv"]
    if dtype == torch.uint8:
        caches = [torch.randint(0, 255, (B, T, 1, row), dtype=dtype, device=device) for _ in "kv"]
    lengths = torch.full((B,), T, dtype=torch.int32, device=device)
    return torch.randn(B, HQ, 128, device=device).to(BF), *caches, lengths


def but(arguments, which, change):
    """The arguments, one of them changed."""
    return tuple(change(t) if i == which else t for i, t in enumerate(arguments))


def shifted(t):
    """The same numbers, beginning one element further on."""
    return torch.cat([t.new_zeros(1), t.flatten()])[1:].view(t.shape)


def backward_arguments(**shape):
    q, k, v = qkv(**shape)
    return torch.randn(q.shape), q, k, v, torch.randn(q.shape), torch.randn(q.shape[:3])


U8, BACKWARD = torch.uint8, "flash_attention_backward"
REFUSED += [
    ("flash_attention", lambda: but(qkv(), 0, lambda t: t[0]), {}, "q must have 4 dimensions.* but it has 3"),
    ("flash_attention", lambda: but(qkv(), 2, lambda t: t[None]), {}, "v must have 4 dimensions.* but it has 5"),
    ("flash_attention", lambda: qkv(N=0), {}, r"q is empty, \[2, 4, 0, 32\]"),
    ("flash_attention", lambda: qkv(NK=0), {}, "k is empty"),
    ("flash_attention", lambda: qkv(dtype=torch.float64), {}, "must be float32, float16 or bfloat16, not Double"),
    ("flash_attention", lambda: but(qkv(), 1, lambda t: t.half()), {}, "q is Float and k is Half"),
    ("flash_attention", lambda: but(qkv(dtype=BF), 2, lambda t: t.half()), {}, "q is BFloat16 and v is Half"),
    ("flash_attention", lambda: but(qkv(), 0, lambda t: t.mT.contiguous().mT), {}, "q must be contiguous"),
    ("flash_attention", lambda: but(qkv(), 1, lambda t: t.mT.contiguous().mT), {}, "k must be contiguous"),
    ("flash_attention", lambda: but(qkv(N=8), 2, lambda t: t[:, :, 1:]), {}, "v must be contiguous"),
    ("flash_attention", lambda: but(qkv(), 2, lambda t: t[:, :, 1:].contiguous()), {}, "every key needs a value"),
    ("flash_attention", lambda: (*qkv(B=2)[:1], *qkv(B=3)[1:]), {}, "q has 2 batches and k has 3"),
    ("flash_attention", lambda: (*qkv(D=64)[:1], *qkv(D=32)[1:]), {}, "have 64 numbers in q and 32 in k"),
    ("flash_attention", lambda: qkv(D=48), {}, "head dimension must be 32, 64 or 128, not 48"),
    ("flash_attention", lambda: qkv(H=4, HK=3), {}, "4 query heads cannot share 3 key heads"),
    ("flash_attention", lambda: qkv(H=2, HK=4), {}, "2 query heads cannot share 4 key heads"),
    ("flash_attention", qkv, {"scale": -1.0}, "scale must be positive"),
    ("flash_attention", qkv, {"scale": math.nan}, "scale must be positive"),
    ("flash_attention", lambda: but(qkv(), 1, shifted), {}, "k must begin on a multiple of 16 bytes"),
    ("flash_attention", lambda: qkv(dtype=H), {"is_causal": True}, "runs on CUDA tensors, and these are on the CPU"),
    ("naive_attention", lambda: qkv(dtype=H), {}, "q must be float32, not Half"),
    ("naive_attention", lambda: qkv(D=16), {}, "must be 32, 64 or 128, not 16"),
    ("naive_attention", qkv, {}, "runs on CUDA tensors"),
    ("tiled_attention", lambda: qkv(dtype=BF), {}, "q must be float32, not BFloat16"),
    ("tiled_attention", qkv, {}, "runs on CUDA tensors"),
    (BACKWARD, lambda: but(backward_arguments(), 0, lambda t: t[:, :1].clone()), {}, "grad is .* and q is"),
    (BACKWARD, lambda: but(backward_arguments(), 4, lambda t: t.half()), {}, "q is Float and out is Half"),
    (BACKWARD, lambda: but(backward_arguments(), 5, lambda t: t.double()), {}, "lse must be float32"),
    (BACKWARD, lambda: but(backward_arguments(), 5, lambda t: t[:, 1:].clone()), {}, r"\[2, 4, 5\]"),
    (BACKWARD, lambda: but(backward_arguments(), 0, shifted), {}, "grad must begin on a multiple of 16"),
    (BACKWARD, lambda: backward_arguments(H=3), {}, "3 query heads cannot share 2 key heads"),
    (BACKWARD, backward_arguments, {}, "runs on CUDA tensors"),
    ("gqa_decode", lambda: but(cached(), 0, lambda t: t[0]), {}, "q must have 3 dimensions.* but it has 2"),
    ("gqa_decode", lambda: cached(HQ=0), {}, "q is empty"),
    ("gqa_decode", lambda: cached(T=0), {}, "k_cache is empty"),
    ("gqa_decode", lambda: but(cached(), 0, lambda t: t.half()), {}, "q must be bfloat16, not Half"),
    ("gqa_decode", lambda: but(cached(), 2, lambda t: t.half()), {}, "v_cache must be bfloat16, not Half"),
    ("gqa_decode", lambda: cached(row=64), {}, "rows of k_cache have 64 numbers, and must have 128"),
    ("gqa_decode", lambda: but(cached(), 0, lambda t: t[..., :64].clone()), {}, "must have 128 numbers, not 64"),
    ("gqa_decode", lambda: but(cached(), 1, lambda t: t.repeat(1, 1, 2, 1)), {}, "k_cache has 2 heads"),
    ("gqa_decode", lambda: but(cached(), 2, lambda t: t[:2]), {}, "q has 3 sequences and v_cache has 2"),
    ("gqa_decode", lambda: but(cached(), 2, lambda t: t[:, 1:].clone()), {}, "k_cache has 9 tokens and v_cache has 8"),
    ("gqa_decode", lambda: but(cached(), 1, lambda t: t[:, ::2]), {}, "k_cache must be contiguous"),
    ("gqa_decode", lambda: but(cached(), 2, shifted), {}, "v_cache must begin on a multiple of 16"),
    ("gqa_decode", lambda: but(cached(), 3, lambda t: t.long()), {}, "lengths must be int32, not Long"),
    ("gqa_decode", lambda: but(cached(), 3, lambda t: t[:2]), {}, r"lengths is \[2\], and there are 3 sequences"),
    ("gqa_decode", lambda: but(cached(), 3, lambda t: t[:, None]), {}, "lengths is"),
    ("gqa_decode", cached, {}, "runs on CUDA tensors"),
    ("int4_gqa_decode", lambda: cached(dtype=U8, row=68), {"groups": 2}, "rows have 1 or 4 groups, not 2"),
    ("int4_gqa_decode", lambda: cached(dtype=U8, row=80), {}, "rows of k_cache have 80 bytes, and must have 68"),
    ("int4_gqa_decode", lambda: cached(dtype=U8, row=68), {"groups": 4}, "have 68 bytes, and must have 80"),
    ("int4_gqa_decode", lambda: cached(row=68), {}, "k_cache must be uint8, not BFloat16"),
    ("int4_gqa_decode", lambda: but(cached(dtype=U8, row=68), 1, shifted), {}, "k_cache must begin on a multiple"),
    ("int4_gqa_decode", lambda: cached(dtype=U8, row=68), {}, "runs on CUDA tensors"),
]


@pytest.mark.parametrize("name, arguments, options, says", REFUSED, ids=[f"{case[0]}-{case[3]}" for case in REFUSED])
def test_a_wrong_argument_is_refused_in_one_sentence(ops, name, arguments, options, says):
    with pytest.raises(RuntimeError, match=says) as caught:
        operator = getattr(ops, name, None) or getattr(torch.ops.labkit, name)
        operator(*arguments(), **options)
    sentence = str(caught.value).splitlines()[0]
    assert sentence.startswith(name) and sentence.endswith(".")


def test_every_operator_is_refused_something(ops):
    defined = {name.split("::")[1] for name in torch._C._dispatch_get_all_op_names() if name.startswith("labkit::")}
    assert {case[0] for case in REFUSED} == {name.split(".")[0] for name in defined}


@pytest.mark.parametrize("which, name", [(1, "k"), (2, "v")])
def test_tensors_of_two_devices_are_refused(ops, which, name):
    with pytest.raises(RuntimeError, match=f"flash_attention: q is on cpu and {name} is on meta"):
        torch.ops.labkit.flash_attention(*but(qkv(), which, lambda t: t.to("meta")))
    with pytest.raises(RuntimeError, match=f"gqa_decode: q is on cpu and {name}_cache is on meta"):
        ops.gqa_decode(*but(cached(), which, lambda t: t.to("meta")))


def test_too_many_rows_are_refused(ops):
    a = torch.empty(65535 * 128 + 1, 4, device="meta")
    with pytest.raises(RuntimeError, match="too many rows"):
        ops.gemm(a, torch.empty(4, 5, device="meta"))


def test_too_much_attention_is_refused(ops):
    def meta(*shape, dtype=F):
        return torch.empty(*shape, dtype=dtype, device="meta")

    q, k = meta(1, 1, 2**30 + 1, 32), meta(1, 1, 8, 32)
    with pytest.raises(RuntimeError, match="flash_attention: .* too many rows, 1073741825 queries and 8 keys"):
        ops.flash_attention(q, k, k)
    with pytest.raises(RuntimeError, match="too many rows, 8 queries and 1073741825 keys"):
        ops.flash_attention(k, q, q)
    with pytest.raises(RuntimeError, match="naive_attention: all scores of 524281 queries and 8 keys are too many"):
        ops.naive_attention(meta(1, 1, 524281, 32), k, k)
    for B, HQ, T in ((65536, 8, 4), (1, 524281, 4), (1, 8, 2**24 + 1), (2**15, 8, 2**16)):
        cache = meta(B, T, 1, 128, dtype=BF)
        with pytest.raises(RuntimeError, match="gqa_decode: .* are too many"):
            ops.gqa_decode(meta(B, HQ, 128, dtype=BF), cache, cache, meta(B, dtype=torch.int32))


def test_shapes_without_data(ops):
    def meta(*shape, dtype=F):
        return torch.empty(*shape, dtype=dtype, device="meta")

    out = ops.gemm(meta(4, 3), meta(5, 4), trans_a=True, trans_b=True)
    assert out.shape == (3, 5) and out.dtype == F and out.is_meta
    out = ops.tensor_core_gemm(meta(3, 4, dtype=H), meta(4, 5, dtype=H))
    assert out.shape == (3, 5) and out.dtype == F
    out = ops.tensor_core_gemm_int8(meta(3, 4, dtype=I8), meta(5, 4, dtype=I8).t())
    assert out.shape == (3, 5) and out.dtype == torch.int32
    for dtype in (F, H, BF):
        arguments = qkv(dtype=dtype, device="meta")
        out, lse = ops.flash_attention(*arguments, return_lse=True)
        assert out.shape == (2, 4, 5, 32) and out.dtype == dtype
        assert lse.shape == (2, 4, 5) and lse.dtype == F and not lse.requires_grad
        gradients = torch.ops.labkit.flash_attention_backward(out, *arguments, out, lse)
        assert [(t.shape, t.dtype) for t in gradients] == [(t.shape, dtype) for t in arguments]
    assert ops.tiled_attention(*qkv(device="meta"), 0.5).shape == ops.naive_attention(*qkv(device="meta")).shape
    assert ops.gqa_decode(*cached(device="meta")).shape == (3, 8, 128)
    for groups in (1, 4):
        out = ops.int4_gqa_decode(*cached(dtype=U8, row=64 + 4 * groups, device="meta"), groups)
        assert out.shape == (3, 8, 128) and out.dtype == BF


def test_gradients_without_data(ops):
    """Autograd reaches the backward operator, also with the gradient of a sum, whose strides are 0."""
    q, k, v = (t.requires_grad_() for t in qkv(device="meta"))
    ops.flash_attention(q, k, v, is_causal=True).sum().backward()
    assert (q.grad.shape, k.grad.shape, v.grad.shape) == (q.shape, k.shape, v.shape)
    out, lse = ops.flash_attention(q, k, v, return_lse=True)
    assert out.requires_grad and not lse.requires_grad


def test_gradients_come_to_kernels_contiguous_and_aligned(ops):
    from labkit_ops._attention import _whole

    inside = torch.arange(9.0)[1:].view(2, 4)
    assert inside.data_ptr() % 16 and _whole(inside).data_ptr() % 16 == 0 and torch.equal(_whole(inside), inside)
    assert _whole(torch.ones(1).expand(2, 4)).is_contiguous()
    whole = torch.ones(2, 4)
    assert _whole(whole) is whole


def test_compiled_programs_trace_attention_without_a_gpu(ops):
    """Lengths stay open, and the backward operator is traced, too."""

    @torch.compile(backend="aot_eager", fullgraph=True, dynamic=True)
    def program(q, k, v):
        return torch.relu(ops.flash_attention(q, k, v, is_causal=True))

    for N in (5, 7):
        leaves = [t.requires_grad_() for t in qkv(N=N, NK=N + 1, device="meta")]
        out = program(*leaves)
        out.sum().backward()
        assert out.shape == leaves[0].shape and leaves[1].grad.shape == leaves[1].shape


def test_what_has_no_gradient_says_so(ops):
    q, k, v = (t.requires_grad_() for t in qkv(device="meta"))
    with pytest.raises(RuntimeError, match="naive_attention has no gradient"):
        ops.naive_attention(q, k, v).sum().backward()
    (first,) = torch.autograd.grad(ops.flash_attention(q, k, v).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="flash_attention_backward has no gradient"):
        first.sum().backward()
    arguments = cached(device="meta")
    arguments[0].requires_grad_()
    with pytest.raises(RuntimeError, match="gqa_decode has no gradient"):
        ops.gqa_decode(*arguments).sum().backward()


def test_a_quantised_cache_fits_the_operator(ops):
    x = torch.randn(3, 9, 1, 128)
    for groups in (1, 4):
        cache = ops.quantize_kv_int4(x, groups)
        with pytest.raises(RuntimeError, match="runs on CUDA tensors"):  # all that is wrong with it
            ops.int4_gqa_decode(*but(but(cached(), 1, lambda t, c=cache: c), 2, lambda t, c=cache: c), groups)


def test_shapes_of_traced_programs_stay_symbolic(ops):
    """torch.compile without a GPU: dynamic sizes go through the operators' shapes."""
    from torch.fx.experimental.proxy_tensor import make_fx

    arguments = torch.empty(7, 9, device="meta"), torch.empty(9, 11, device="meta")
    traced = make_fx(torch.ops.labkit.gemm.default, tracing_mode="symbolic")(*arguments)
    (call,) = (node for node in traced.graph.nodes if node.target is torch.ops.labkit.gemm.default)
    assert all(isinstance(size, torch.SymInt) for size in call.meta["val"].shape)


def test_lengths_of_traced_attention_stay_symbolic(ops):
    from torch.fx.experimental.proxy_tensor import make_fx

    def program(q, k, v):
        return torch.ops.labkit.flash_attention(q, k, v, 0.0, True)[0]

    traced = make_fx(program, tracing_mode="symbolic")(*qkv(device="meta"))
    (call,) = (node for node in traced.graph.nodes if node.target is torch.ops.labkit.flash_attention.default)
    assert isinstance(call.meta["val"][0].shape[2], torch.SymInt)


def test_launches_are_the_files_own():
    sys.path.insert(0, str(EXTENSION))
    import generate

    for launch in generate.LAUNCHES:
        text, declaration = generate.source(launch)
        assert f"{launch.symbol}(" in declaration and "<<<grid, block, " in text
        assert f"{launch.suffix}\n" in text or not launch.suffix
        kernel = Path(text.split('#include "')[1].split('"')[0])
        assert kernel.exists() and "__global__" not in text, "the kernel is included, not copied"
        # In a namespace of its own, for files share names of device functions; and what it includes is not in there.
        before, inside = text.split(f"namespace of_{launch.symbol} {{\n")
        assert inside.split("}\n")[0] == f'#include "{kernel}"\n'
        assert all(f"{line}\n" in before for line in kernel.read_text().splitlines() if line.startswith("#include"))
    text, _ = generate.source(generate.Launch("attention_bf16", "flash_mma", "_bf16"))
    assert "D == 64 ? attention_flash_mma<64> : attention_flash_mma<128>;" in text


def test_operators_pass_what_launches_take():
    """The C++ that calls them compiles on a GPU's machine only."""
    sys.path.insert(0, str(EXTENSION))
    import generate

    sizes = "B, H, HK, N, NK, D, scale, causal"
    takes = {
        "gemm": "C, A, B, M, N, K",
        "attention": f"O, L, Q, K, V, {sizes}",
        "attention_backward": f"dQ, dK, dV, Q, K, V, O, L, dO, {sizes}",
        "gqa": "O, Q, K, V, lengths, B, T, HQ, split_k",
    }
    takes["int4"] = takes["gqa"]
    for launch in generate.LAUNCHES:
        _, declaration = generate.source(launch)
        got = ", ".join(part.split()[-1].lstrip("&") for part in declaration.split("(")[1].rstrip(")").split(","))
        family = max((name for name in takes if launch.problem.startswith(name)), key=len)
        options = ", alpha, beta, trans_a, trans_b" if launch.problem == "gemm" else ""
        assert got == takes[family] + options, launch


def test_symbols_of_one_library_are_distinct():
    sys.path.insert(0, str(EXTENSION))
    import generate

    from labkit import problems
    from labkit.kernels.cuda import parse_header
    from labkit.ladder import Ladder

    symbols = []
    for launch in generate.LAUNCHES:
        rung = Ladder(problems.get(launch.problem))[launch.rung, "cuda"].solution
        kernels = {line.kernel for line in parse_header(rung.source, str(rung.path)).launches}
        symbols += [kernel + launch.suffix for kernel in kernels]
    assert len(symbols) == len(set(symbols))


# --- on a GPU ------------------------------------------------------------------------------------------

SHAPES = [(1, 1, 1), (33, 65, 17), (128, 256, 64), (1023, 129, 511)]


def reference(a, b):
    return a.double() @ b.double()


@pytest.mark.gpu
@pytest.mark.parametrize("M, N, K", SHAPES)
def test_products_on_a_gpu(ops, M, N, K):
    torch.manual_seed(0)
    a, b, c = matrix(M, K, device="cuda"), matrix(K, N, device="cuda"), matrix(M, N, device="cuda")
    bound = 1e-5 * (a.abs().double() @ b.abs().double()).max()
    for ta in (False, True):
        for tb in (False, True):
            left, right = (a.t().contiguous() if ta else a), (b.t().contiguous() if tb else b)
            got = ops.gemm(left, right, 0.5, 2.0, ta, tb, c=c)
            assert (got - (0.5 * reference(a, b) + 2.0 * c.double())).abs().max() < bound + 1e-5
    for dtype in (torch.float16, torch.bfloat16):
        got = ops.tensor_core_gemm(a.to(dtype), b.to(dtype))
        assert got.dtype == F and (got - reference(a.to(dtype), b.to(dtype))).abs().max() < bound + 1e-5
    a, b = matrix(M, K, I8, "cuda"), matrix(N, K, I8, "cuda")
    assert torch.equal(ops.tensor_core_gemm_int8(a, b.t()).double(), reference(a, b.t()))


@pytest.mark.gpu
def test_operators_keep_pytorchs_rules(ops):
    a, b = matrix(33, 17, device="cuda"), matrix(17, 65, device="cuda")
    samples = [
        (torch.ops.labkit.gemm, (a.requires_grad_(), b.requires_grad_())),
        (torch.ops.labkit.gemm, (a.detach(), b.detach(), 0.5, 2.0, False, False, matrix(33, 65, device="cuda"))),
        (torch.ops.labkit.tensor_core_gemm, (a.detach().half().requires_grad_(), b.detach().half().requires_grad_())),
        (torch.ops.labkit.tensor_core_gemm_int8, (matrix(33, 17, I8, "cuda"), matrix(65, 17, I8, "cuda").t())),
    ]
    for op, arguments in samples:
        torch.library.opcheck(op, arguments)


@pytest.mark.gpu
@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_gradients_are_those_of_float64(ops, ta, tb):
    torch.manual_seed(1)
    a = matrix(*((17, 33) if ta else (33, 17)), device="cuda").requires_grad_()
    b = matrix(*((65, 17) if tb else (17, 65)), device="cuda").requires_grad_()
    c, grad = matrix(33, 65, device="cuda").requires_grad_(), matrix(33, 65, device="cuda")
    ops.gemm(a, b, 0.5, 2.0, ta, tb, c=c).backward(grad)
    exact = [t.detach().double().requires_grad_() for t in (a, b, c)]
    left, right = (exact[0].t() if ta else exact[0]), (exact[1].t() if tb else exact[1])
    (0.5 * left @ right + 2.0 * exact[2]).backward(grad.double())
    for mine, want in zip((a, b, c), exact, strict=True):
        assert (mine.grad - want.grad).abs().max() < 1e-4


@pytest.mark.gpu
def test_compiled_programs_use_the_operators(ops):
    @torch.compile(fullgraph=True, dynamic=True)
    def program(a, b):
        return torch.relu(ops.tensor_core_gemm(a, b)) + 1

    for M in (64, 65):
        a, b = matrix(M, 128, H, "cuda"), matrix(128, 72, H, "cuda")
        want = torch.relu(reference(a, b)) + 1
        assert (program(a, b) - want).abs().max() < 1e-2


@pytest.mark.gpu
def test_launches_go_to_the_current_stream(ops):
    a, b = matrix(512, 512, device="cuda"), matrix(512, 512, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        out = ops.gemm(a, b)
        done = torch.cuda.Event()
        done.record()
    assert not done.query(), "the product did not wait behind its stream"
    torch.cuda.current_stream().synchronize()
    stream.synchronize()
    assert (out - reference(a, b)).abs().max() < 1e-2


@pytest.mark.gpu
def test_a_graph_captures_them(ops):
    a, b = matrix(256, 256, H, "cuda"), matrix(256, 256, H, "cuda")
    ops.tensor_core_gemm(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ops.tensor_core_gemm(a, b)
    a.copy_(matrix(256, 256, H, "cuda"))
    graph.replay()
    torch.cuda.synchronize()
    assert (out - reference(a, b)).abs().max() < 1e-2


@pytest.mark.gpu
def test_the_device_of_the_tensors_is_used(ops):
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU here")
    a, b = matrix(300, 200, H, "cuda:1"), matrix(200, 100, H, "cuda:1")
    torch.cuda.set_device(0)
    for _ in range(2):
        out = ops.tensor_core_gemm(a, b)
        assert out.device == a.device and torch.cuda.current_device() == 0
    assert (out - reference(a, b)).abs().max() < 1e-2
    with pytest.raises(RuntimeError, match="a is on cuda:1 and b is on cuda:0"):
        ops.tensor_core_gemm(a, b.to("cuda:0"))


# --- attention on a GPU ----------------------------------------------------------------------------------

ATTENTION = [
    (dict(B=1, H=1, HK=1, N=1, NK=1, D=64), False, None),
    (dict(B=2, H=4, HK=2, N=77, NK=77, D=32), True, None),
    (dict(B=1, H=3, HK=1, N=129, NK=257, D=128), False, 0.2),
    (dict(B=2, H=2, HK=2, N=300, NK=123, D=64), True, None),
]
ROUNDOFF = {F: 2.0**-24, H: 2.0**-11, BF: 2.0**-8}


def exact_attention(q, k, v, is_causal=False, scale=None):
    """In float64, and with autograd's own formulas."""
    group = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(group, 1) for t in (k, v))
    s = q @ k.mT * (scale or q.shape[-1] ** -0.5)
    if is_causal:
        s = s.masked_fill(torch.ones_like(s[0, 0]).tril() == 0, -math.inf)
    return s.softmax(-1) @ v, s.logsumexp(-1)


def close(got, want, dtype, times=8):
    """Off by at most so many roundings of the largest numbers; float32 kernels sum differently, and get more.

    Inputs are about 1, so that 0, which is what terms of that size leave of each other with a single key, has theirs.
    """
    most = (256 if dtype == F else times) * ROUNDOFF[dtype] * max(1.0, float(want.abs().max()))
    return got.dtype == dtype and float((got.double() - want).abs().max()) <= most


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ROUNDOFF, ids=str)
@pytest.mark.parametrize("shape, is_causal, scale", ATTENTION, ids=str)
def test_attention_and_its_gradients_on_a_gpu(ops, shape, is_causal, scale, dtype):
    torch.manual_seed(0)
    leaves = [t.requires_grad_() for t in qkv(**shape, dtype=dtype, device="cuda")]
    exact = [t.detach().double().requires_grad_() for t in leaves]
    out, lse = ops.flash_attention(*leaves, scale, is_causal, return_lse=True)
    want, want_lse = exact_attention(*exact, is_causal, scale)
    assert close(out, want, dtype) and (lse - want_lse).abs().max() < 1e-3
    grad = torch.randn_like(out)
    out.backward(grad)
    want.backward(grad.double())
    for mine, theirs in zip(leaves, exact, strict=True):
        assert close(mine.grad, theirs.grad, dtype, times=24)
    if dtype == F and not is_causal:
        for other in (ops.naive_attention, ops.tiled_attention):
            assert close(other(*(t.detach() for t in leaves), scale), want.detach(), dtype)


@pytest.mark.gpu
def test_a_gradient_that_is_no_tensor_of_its_own(ops):
    """A sum's has strides of 0; that of a part begins anywhere."""
    for loss in (torch.sum, lambda out: torch.cat([out.new_zeros(1), out.flatten()]).square().sum()):
        leaves = [t.requires_grad_() for t in qkv(dtype=H, device="cuda")]
        exact = [t.detach().double().requires_grad_() for t in leaves]
        loss(ops.flash_attention(*leaves)).backward()
        loss(exact_attention(*exact)[0]).backward()
        for mine, theirs in zip(leaves[1:], exact[1:], strict=True):
            assert close(mine.grad, theirs.grad, H, times=24)


@pytest.mark.gpu
def test_attention_stores_no_scores(ops):
    """Forward and backward together take far less memory than one tensor of N x NK numbers would."""
    N = 16384
    leaves = [t.requires_grad_() for t in qkv(1, 4, 4, N, N, 64, H, "cuda")]
    ops.flash_attention(*qkv(1, 4, 4, 64, 64, 64, H, "cuda"))
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    ops.flash_attention(*leaves, is_causal=True).sum().backward()
    torch.cuda.synchronize()
    own = sum(t.numel() * t.element_size() for t in leaves)
    assert torch.cuda.max_memory_allocated() - before < 8 * own < 4 * N * N


@pytest.mark.gpu
@pytest.mark.parametrize("HQ, T", [(1, 1), (8, 33), (9, 300), (16, 4096)])
def test_decoding_on_a_gpu(ops, HQ, T):
    from labkit.problems import _kv_int4 as kv

    torch.manual_seed(0)
    q, k, v, lengths = cached(3, T, HQ, device="cuda")
    lengths = torch.tensor([T, 1, (T + 1) // 2], dtype=torch.int32, device="cuda")
    beyond = torch.arange(T, device="cuda") >= lengths[:, None]

    def check(got, k, v):
        k, v = (torch.where(beyond[..., None, None], 0.0, t.double()).transpose(1, 2) for t in (k, v))
        want = kv.attend(q.double(), k, v, lengths)
        assert got.dtype == BF and (got.double() - want).abs().max() < 0.02 * v.abs().max()

    caches = [t.masked_fill(beyond[..., None, None], math.nan) for t in (k, v)]
    check(ops.gqa_decode(q, *caches, lengths), k, v)
    for groups in (1, 4):
        packed = [ops.quantize_kv_int4(t, groups) for t in (k, v)]
        check(ops.int4_gqa_decode(q, *packed, lengths, groups), *(kv.dequantize(t) for t in packed))


@pytest.mark.gpu
def test_attention_keeps_pytorchs_rules(ops):
    samples = [
        (torch.ops.labkit.flash_attention, tuple(t.requires_grad_() for t in qkv(device="cuda"))),
        (torch.ops.labkit.flash_attention, (*(t.requires_grad_() for t in qkv(dtype=H, device="cuda")), 0.3, True)),
        (torch.ops.labkit.naive_attention, qkv(device="cuda")),
        (torch.ops.labkit.tiled_attention, qkv(device="cuda")),
        (torch.ops.labkit.gqa_decode, cached(device="cuda")),
    ]
    arguments = qkv(dtype=H, device="cuda")
    out, lse = ops.flash_attention(*arguments, return_lse=True)
    samples.append((torch.ops.labkit.flash_attention_backward, (torch.randn_like(out), *arguments, out, lse)))
    q, k, v, lengths = cached(device="cuda")
    packed = (ops.quantize_kv_int4(t, 4) for t in (k, v))
    samples.append((torch.ops.labkit.int4_gqa_decode, (q, *packed, lengths, 4)))
    for op, arguments in samples:
        torch.library.opcheck(op, arguments, atol=1e-3, rtol=1e-2)  # two runs of a gradient sum in two orders


@pytest.mark.gpu
def test_compiled_programs_train_through_attention(ops):
    @torch.compile(fullgraph=True, dynamic=True)
    def program(x, w):
        q, k, v = (x @ w).unflatten(-1, (3, 4, 32)).permute(2, 0, 3, 1, 4).contiguous()
        return torch.relu(ops.flash_attention(q, k, v, is_causal=True))

    def exact(x, w):
        q, k, v = (x @ w).unflatten(-1, (3, 4, 32)).permute(2, 0, 3, 1, 4)
        return torch.relu(exact_attention(q, k, v, True)[0])

    w = torch.randn(64, 384, device="cuda") / 8
    for N in (64, 65):
        x = torch.randn(2, N, 64, device="cuda")
        mine, theirs = w.clone().requires_grad_(), w.double().requires_grad_()
        program(x, mine).square().sum().backward()
        exact(x.double(), theirs).square().sum().backward()
        assert (mine.grad - theirs.grad).abs().max() < 1e-4 * theirs.grad.abs().max()


@pytest.mark.gpu
def test_deterministic_programs_refuse_atomics(ops):
    leaves = [t.requires_grad_() for t in qkv(dtype=H, device="cuda")]
    out = ops.flash_attention(*leaves).sum()
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="flash_attention_backward does not have a deterministic implementation"):
            out.backward()
        ops.flash_attention(*(t.requires_grad_() for t in qkv(device="cuda"))).sum().backward()  # in float32
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.gpu
def test_attention_goes_to_the_current_stream(ops):
    arguments = qkv(1, 8, 8, 1024, 1024, 64, H, "cuda")
    ops.flash_attention(*arguments)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        out = ops.flash_attention(*arguments)
        done = torch.cuda.Event()
        done.record()
    assert not done.query(), "attention did not wait behind its stream"
    stream.synchronize()
    assert close(out, exact_attention(*(t.double() for t in arguments))[0], H)


@pytest.mark.gpu
def test_a_graph_captures_decoding(ops):
    q, k, v, lengths = cached(4, 500, device="cuda")
    ops.gqa_decode(q, k, v, lengths)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ops.gqa_decode(q, k, v, lengths)
    lengths.fill_(123)  # the sequences have other lengths when the graph is replayed
    graph.replay()
    assert torch.equal(out, ops.gqa_decode(q, k, v, lengths))


@pytest.mark.gpu
def test_attention_uses_the_device_of_its_tensors(ops):
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU here")
    torch.cuda.set_device(0)
    leaves = [t.requires_grad_() for t in qkv(1, 2, 2, 300, 300, 128, H, "cuda:1")]
    out = ops.flash_attention(*leaves)
    out.sum().backward()
    assert out.device == leaves[0].grad.device == leaves[0].device and torch.cuda.current_device() == 0
    assert close(out, exact_attention(*(t.detach().double() for t in leaves))[0], H)
    arguments = cached(device="cuda:1")
    assert ops.gqa_decode(*arguments).device == arguments[0].device
    with pytest.raises(RuntimeError, match="q is on cuda:1 and lengths is on cuda:0"):
        ops.gqa_decode(*but(arguments, 3, lambda t: t.to("cuda:0")))
