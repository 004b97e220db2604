"""The PyTorch operators: their checks and shapes on the CPU, and on a GPU the operators themselves."""

from __future__ import annotations

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


@pytest.mark.parametrize("name, arguments, options, says", REFUSED, ids=[f"{case[0]}-{case[3]}" for case in REFUSED])
def test_a_wrong_argument_is_refused_in_one_sentence(ops, name, arguments, options, says):
    with pytest.raises(RuntimeError, match=says) as caught:
        getattr(ops, name)(*arguments(), **options)
    sentence = str(caught.value).splitlines()[0]
    assert sentence.startswith(name) and sentence.endswith(".")


def test_too_many_rows_are_refused(ops):
    a = torch.empty(65535 * 128 + 1, 4, device="meta")
    with pytest.raises(RuntimeError, match="too many rows"):
        ops.gemm(a, torch.empty(4, 5, device="meta"))


def test_shapes_without_data(ops):
    def meta(*shape, dtype=F):
        return torch.empty(*shape, dtype=dtype, device="meta")

    out = ops.gemm(meta(4, 3), meta(5, 4), trans_a=True, trans_b=True)
    assert out.shape == (3, 5) and out.dtype == F and out.is_meta
    out = ops.tensor_core_gemm(meta(3, 4, dtype=H), meta(4, 5, dtype=H))
    assert out.shape == (3, 5) and out.dtype == F
    out = ops.tensor_core_gemm_int8(meta(3, 4, dtype=I8), meta(5, 4, dtype=I8).t())
    assert out.shape == (3, 5) and out.dtype == torch.int32


def test_shapes_of_traced_programs_stay_symbolic(ops):
    """torch.compile without a GPU: dynamic sizes go through the operators' shapes."""
    from torch.fx.experimental.proxy_tensor import make_fx

    arguments = torch.empty(7, 9, device="meta"), torch.empty(9, 11, device="meta")
    traced = make_fx(torch.ops.labkit.gemm.default, tracing_mode="symbolic")(*arguments)
    (call,) = (node for node in traced.graph.nodes if node.target is torch.ops.labkit.gemm.default)
    assert all(isinstance(size, torch.SymInt) for size in call.meta["val"].shape)


def test_launches_are_the_files_own():
    sys.path.insert(0, str(EXTENSION))
    import generate

    for launch in generate.LAUNCHES:
        text, declaration = generate.source(launch)
        assert f"{launch.symbol}(" in declaration and "<<<grid, block, shared, stream>>>" in text
        assert "_bf16\n" in text or not launch.suffix
        kernel = Path(text.split('#include "')[1].split('"')[0])
        assert kernel.exists() and "__global__" not in text, "the kernel is included, not copied"


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
