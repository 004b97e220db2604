"""Loading, compiling and launching kernels in both languages, and what is said about bad ones."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.emulator.engine import Emulation
from labkit.emulator.faults import KernelFault
from labkit.kernels import KernelError, Signature, compile_ptx, cuda_kernel, emulating, gpu, load, recording
from labkit.kernels.cuda import parse_header

AXPY = Signature(outputs=("Y",), inputs=("X",), dims={"N": ("X", 0)}, options={"alpha": 1.0})

AXPY_CU = """\
// Y = alpha * X
// launch axpy<<<((N + 63) / 64), (64)>>>(Y, X, alpha, N)

extern "C" __global__ void axpy(float *Y, const float *X, float alpha, int N)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N)
        Y[i] = alpha * X[i];
}
"""
AXPY_PY = """\
from numba import cuda

@cuda.jit
def axpy(Y, X, alpha):
    i = cuda.grid(1)
    if i < Y.size:
        Y[i] = alpha * X[i]


def launch(Y, X, alpha=1.0):
    axpy[(Y.numel() + 63) // 64, 64](Y, X, alpha)
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "cache"))


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return path


def run(kernel, out, *inputs, **options):
    with emulating(Emulation()):
        kernel.launch(out, *inputs, **options)
    return out


@pytest.mark.parametrize(("name", "text"), [("axpy.cu", AXPY_CU), ("axpy.py", AXPY_PY)])
def test_load_and_launch(tmp_path, name, text):
    kernel = load(written(tmp_path, name, text), names=AXPY)
    assert kernel.language == {"cu": "cuda", "py": "numba"}[name[-2:]]
    assert kernel.path == tmp_path / name
    x = torch.randn(150)
    assert torch.equal(run(kernel, torch.empty(150), x), x)
    assert torch.equal(run(kernel, torch.empty(150), x, alpha=-2.0), -2 * x)


def test_a_file_is_loaded_afresh(tmp_path):
    path = written(tmp_path, "axpy.py", AXPY_PY)
    first = load(path)
    path.write_text(AXPY_PY.replace("alpha * X[i]", "alpha * X[i] + 1"))
    second = load(path)
    x = torch.ones(3)
    assert run(first, torch.empty(3), x)[0] == 1
    assert run(second, torch.empty(3), x)[0] == 2


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("gone.py", None, "gone.py does not exist; write it"),
        ("gone.cu", None, "gone.cu does not exist; write it"),
        ("k.txt", "", "neither .py .numba. nor .cu"),
        ("k.py", "def launch(Y, X:\n    pass", "k.py:1: '\\(' was never closed"),
        ("k.py", "x = 1\n\n1 / 0\n", "k.py:3: ZeroDivisionError: division by zero"),
        ("k.py", "import nothing_of_this_name", "k.py:1: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("k.py", "raise SystemExit(3)", "k.py:1: SystemExit: 3"),
        ("k.py", "x = 1", r"k.py has no function launch; end it with one, `def launch\(Y, X, alpha=1.0\):`"),
        ("k.py", "def launch(Y): pass", r"k.py:1: launch\(Y\) must take \(Y, X, alpha=1.0\)"),
        ("k.py", "def launch(Y, X): pass", r"launch\(Y, X\) must take \(Y, X, alpha=1.0\)"),
        ("k.py", "x = '\0'", "k.py: source code string cannot contain null bytes"),
        ("k.cu", 'extern "C" __global__ void axpy() {}', "k.cu has no launch line"),
        ("k.cu", "// launch k<<<1>>>(Y)\n", r"k.cu:1: write `k<<<grid, block, shared bytes>>>"),
        ("k.cu", "// launch k<<<1, 2>>>(Y\n", "k.cu:1: cannot read `// launch"),
        ("k.cu", "//\n// launch k<<<Q, 2>>>(Y)\n", "k.cu:2: nothing is called Q; there is N, X, Y, alpha"),
        ("k.cu", "// launch k<<<1, 2>>>(Y, Z)\n", "k.cu:1: nothing is called Z"),
        ("k.cu", "// workspace T float (N)\n// launch k<<<1, 2>>>(Y)\n", "k.cu:1: float is no dtype; there"),
        ("k.cu", "// tensormap A (N)\n// launch k<<<1, 2>>>(Y)\n", "k.cu:1: `// tensormap` lines are not sup"),
        ("k.cu", AXPY_CU.replace("launch axpy", "launch axpi"), "no extern .* kernel is called axpi; there is axpy"),
        ("k.cu", AXPY_CU.replace("= alpha *", "= alhpa *"), 'k.cu:8: identifier "alhpa" is undefined'),
        ("k.cu", AXPY_CU.replace("if (i", "if i") + "oops", r"k.cu:7: expected a .*\. \(\d+ more errors? after it\)"),
        ("k.cu", '#include "gone.h"\n' + AXPY_CU, r'k.cu:1: cannot open source file "gone.h"\.$'),
        ("k.cu", "#include <stdio.h>\n" + AXPY_CU, '"stdio.h". NVRTC, which compiles kernels, has none of the host'),
        ("k.cu", "#include <vector>\n" + AXPY_CU, '"vector". NVRTC, which compiles kernels, has none of the host'),
    ],
)
def test_what_cannot_be_loaded(tmp_path, name, text, says):
    if text is not None:
        written(tmp_path, name, text)
    with pytest.raises(KernelError, match=says) as caught:
        load(tmp_path / name, names=AXPY)
    assert "\n" not in str(caught.value)


def test_errors_inside_launch(tmp_path):
    path = written(tmp_path, "k.py", "def launch(Y, X, alpha=1.0):\n    Y = Y.reshape(3, 3)\n")
    with pytest.raises(KernelError, match="k.py:2: RuntimeError: shape '\\[3, 3\\]' is invalid"):
        run(load(path), torch.empty(4), torch.empty(4))
    path = written(tmp_path, "k.py", AXPY_PY.replace("alpha * X[i]", "alpha * X[i] + undefined"))
    with pytest.raises(KernelError, match="k.py:7: axpy does not compile: NameError: name 'undefined'") as caught:
        run(load(path), torch.empty(4), torch.empty(4))
    assert str(caught.value).endswith("\n    Y[i] = alpha * X[i] + undefined")
    assert type(caught.value.__cause__).__name__ in ("NameError", "TypingError")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("alpha * X[i]", "alhpa * X[i]", r"k.py:7: .*'alhpa' is not defined. Did you mean alpha\?"),
        ("cuda.grid(1)", "cuda.gird(1)", r"k.py:5: .* has no attribute 'gird'. Did you mean grid\?"),
        ("@cuda.jit\n", "", r"k.py:\d+: TypeError: .* Put @cuda.jit above a function that is to be launched."),
        ("//", "/", r"k.py:\d+: TypeError: .* Divide with //, which gives an integer."),
        ("64](Y, X, alpha)", "64](Y, X)", r"k.py:11: axpy takes 3 arguments \(Y, X, alpha\), not 2."),
    ],
)
@pytest.mark.skipif(gpu.available(), reason="numba says it on a GPU")
def test_what_students_get_wrong_is_said_with_its_mend(tmp_path, old, new, says):
    assert AXPY_PY.count(old) == 1
    path = written(tmp_path, "k.py", AXPY_PY.replace(old, new))
    with pytest.raises(KernelError, match=says):
        run(load(path), torch.empty(4), torch.empty(4))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("A[0] = 'text'", "numba has no setitem"),
        ("A[0, 1] = 2", r"cannot index array\(float32, 1d, C\) with 2 indices"),
        ("A[0] = cuda.nothing()", "module 'numba.cuda' has no attribute 'nothing'"),
        ("b = [1, 2]; A[0] = b[cuda.threadIdx.x]", "memory for a list, a dict or a new array"),
        ("t = cuda.shared.array(A.size, 'f4'); A[0] = t[0]", "cuda.shared.array takes a shape and a dtype that are"),
        ("return A[0]", "k.py:6: .* a kernel returns nothing; write the result to an element of an array"),
    ],
)
def test_what_numba_cannot_compile(tmp_path, line, says):
    text = f"""
        from numba import cuda

        @cuda.jit
        def k(A):
            {line}

        def launch(Y):
            k[1, 1](Y)
        """
    path = written(tmp_path, "k.py", textwrap.dedent(text))
    with pytest.raises(KernelError, match=says) as caught:
        run(load(path), torch.empty(4))
    first, *rest = str(caught.value).splitlines()
    assert first.startswith(f"{path}:") and len(rest) <= 1
    if "void" not in says:
        assert first.startswith(f"{path}:6: ") and rest == [f"    {line}"]


def test_faults_point_into_the_file(tmp_path):
    for name, text, line in (("k.cu", AXPY_CU, 8), ("k.py", AXPY_PY, 7)):
        stray = text.replace("i < N", "i <= N").replace("i < Y.size", "i <= Y.size")
        with pytest.raises(KernelFault) as caught:
            run(load(written(tmp_path, name, stray), names=AXPY), torch.empty(100), torch.empty(100))
        fault = caught.value
        assert (fault.kind, fault.line, fault.file) == ("out_of_bounds", line, str(tmp_path / name))
        assert fault.kernel == "axpy"


def test_launch_lines_in_full(tmp_path):
    text = """
        // workspace partial float32 (BLOCKS, 2)
        // launch fill<<<(BLOCKS), (WIDTH)>>>(partial, N % 7)
        // The second one spans lines.
        // launch gather<<<((M + 3) / 4,
        //     1), (4), WIDTH * 4>>>(Y, partial, M,
        //     causal, alpha / 2)
        #define BLOCKS (2 * WIDTH / 4)  // 4
        constexpr int M = 8;

        extern "C" __global__ void fill(float *p, int start) {
            if (threadIdx.x < 2) p[blockIdx.x * 2 + threadIdx.x] = start + blockIdx.x * 2 + threadIdx.x;
        }
        extern "C" __global__ void gather(float *Y, const float *p, long long m, bool causal, double scale) {
            extern __shared__ float tile[];
            int i = blockIdx.x * 4 + threadIdx.x;
            tile[threadIdx.x] = p[i];
            __syncthreads();
            if (i < m) Y[i] = causal ? tile[threadIdx.x] * scale : -1.0f;
        }
        """
    names = Signature(("Y",), ("X",), {"N": ("X", 0)}, {"causal": False, "alpha": 1.0})
    kernel = load(written(tmp_path, "k.cu", textwrap.dedent(text)), names=names, defines=["WIDTH=8"])
    out = run(kernel, torch.zeros(8), torch.zeros(10), causal=True, alpha=4.0)
    assert out.tolist() == [2.0 * (3 + i) for i in range(8)]
    assert run(kernel, torch.zeros(8), torch.zeros(10)).tolist() == [-1.0] * 8
    with pytest.raises(KernelError, match="no option beta; call launch"):
        run(kernel, torch.zeros(8), torch.zeros(10), beta=1)
    with pytest.raises(KernelError, match=r"Y has the strides \(2,\).*call .contiguous\(\)"):
        run(kernel, torch.zeros(16)[::2], torch.zeros(10))
    floor = load(written(tmp_path, "f.cu", AXPY_CU.replace("(N + 63) / 64", "N // 64")), names=AXPY)
    with pytest.raises(KernelError, match="f.cu:2: in `N // 64`: write `/`, which truncates in C"):
        run(floor, torch.zeros(8), torch.zeros(8))
    empty = load(written(tmp_path, "e.cu", AXPY_CU), names=AXPY)
    with pytest.raises(KernelError, match=r"e.cu:2: the grid is \(0,\): a GPU refuses"):
        run(empty, torch.zeros(0), torch.zeros(0))


TEMPLATES = """
// launch scale<WIDTH: 2, 4><<<1, 32>>>(Y, X, N)
// launch shift<WIDTH: 2, 4><<<1, 32>>>(Y, N)
// launch again<<<1, 32>>>(Y, N)

__device__ int calls;

template <int W>
__global__ void scale(float *Y, const float *X, int N)
{
    if (threadIdx.x < N)
        Y[threadIdx.x] = W * X[threadIdx.x];
    if (threadIdx.x == 0)
        calls = W;
}

template <int W>
__global__ void shift(float *Y, int N)
{
    if (threadIdx.x < N)
        Y[threadIdx.x] += 100 * W;
}

extern "C" __global__ void again(float *Y, int N)
{
    if (threadIdx.x < N)
        Y[threadIdx.x] += 1000 * calls;
}
"""


def test_templates(tmp_path):
    """A launch makes the instances that its numbers choose, and kernels of the file still share variables."""
    names = Signature(("Y",), ("X",), {"N": ("X", 0)}, {"WIDTH": 2})
    kernel = load(written(tmp_path, "k.cu", TEMPLATES), names=names)
    for width in (2, 4, 2):
        assert run(kernel, torch.zeros(3), torch.ones(3), WIDTH=width).tolist() == [1101 * width] * 3
    with recording() as record:
        kernel.launch(torch.zeros(3), torch.ones(3), WIDTH=4)
    code = record.launches[0].ptx
    assert len({launch.ptx for launch in record.launches}) == 1 and "Li4E" in code and "Li2E" not in code
    with pytest.raises(KernelError, match="k.cu:2: scale is made for WIDTH = 2 or 4, not 8"):
        run(kernel, torch.zeros(3), torch.ones(3), WIDTH=8)
    halves = Signature(("Y",), ("X",), {"N": ("X", 0)}, {"WIDTH": 2.0})
    with pytest.raises(KernelError, match="k.cu:2: `WIDTH` is 2.0, not an integer"):
        run(load(written(tmp_path, "k.cu", TEMPLATES), names=halves), torch.zeros(3), torch.ones(3))
    three = cuda_kernel(TEMPLATES, "scale<3>")
    y, x = np.zeros(3, np.float32), np.ones(3, np.float32)
    with emulating(Emulation()):
        three[1, 32](y, x, 3)
        with pytest.raises(KernelError, match=r"scale<3> takes 3 arguments \(Y, X, N\), not 2"):
            three[1, 32](y, x)
    assert y.tolist() == [3] * 3
    for text, says in (
        (TEMPLATES.replace("scale<WIDTH: 2, 4>", "scale<2>"), "k.cu:2: write a template's launch as `scale<D: 32, 64>"),
        (TEMPLATES.replace("scale<WIDTH:", "scale<W:"), "k.cu:2: nothing is called W; there is"),
        (TEMPLATES.replace("launch scale", "launch scald"),
         r'k.cu: there is no kernel scald<2> or shift<2>: identifier "scald" is undefined\.$'),
        (TEMPLATES.replace("scale<WIDTH: 2, 4>", "scale"), "k.cu: scale is a template; name an instance"),
        (TEMPLATES.replace("= W *", "= V *"), 'identifier "V" is undefined'),
    ):
        with pytest.raises(KernelError, match=says):
            load(written(tmp_path, "k.cu", text), names=names)


def test_prose_is_no_launch_line():
    header = parse_header("// launch the kernel so:\n// cluster of stars\n// launch k<<<1, 2, 0>>>()\n", "f.cu")
    assert [(line.kernel, line.line, line.args) for line in header.launches] == [("k", 3, ())]


def test_clusters(tmp_path):
    text = AXPY_CU.replace("// launch", "// cluster (N / 75, 1, 1)\n// launch")
    kernel = load(written(tmp_path, "k.cu", text), names=AXPY)
    with recording() as record:
        kernel.launch(torch.zeros(150), torch.zeros(150))
    assert record.clusters == [(2, 1, 1)]
    with pytest.raises(KernelError, match="does not run thread block clusters"):
        run(kernel, torch.zeros(150), torch.zeros(150))


def test_several_outputs_are_a_tuple(tmp_path):
    text = """
        // launch split<<<1, 32>>>(S, D, X, N)
        extern "C" __global__ void split(float *S, float *D, const float *X, unsigned N) {
            unsigned i = threadIdx.x;
            if (i < N) { S[i] = X[i] + 1; D[i] = X[i] - 1; }
        }
        """
    names = Signature(("S", "D"), ("X",), {"N": ("X", 0)})
    kernel = load(written(tmp_path, "k.cu", textwrap.dedent(text)), names=names)
    s, d = run(kernel, (torch.zeros(5), torch.zeros(5)), torch.ones(5))
    assert (s.tolist(), d.tolist()) == ([2] * 5, [0] * 5)
    with pytest.raises(KernelError, match="call launch"):
        run(kernel, torch.zeros(5), torch.ones(5))


KINDS = """
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    struct Pair { float a, b; };
    extern "C" __global__ void kinds(float *out, signed char c, unsigned char u, short s, unsigned q, long long l,
                                     size_t z, bool b, double d, __half h, __nv_bfloat16 w, const Pair p) {
        out[0] = c; out[1] = u; out[2] = s; out[3] = q; out[4] = l; out[5] = z; out[6] = b;
        out[7] = d; out[8] = __half2float(h); out[9] = __bfloat162float(w); out[10] = p.a - p.b;
    }
    """
GOOD = [-5, 200, -300, 2**31, -(2**40), 2**33, True, 0.1, 1.5, 2.25, np.float32([3, 1]).tobytes()]


def test_parameters_of_all_kinds():
    kernel = cuda_kernel(KINDS, "kinds")
    out = np.zeros(11, np.float32)
    with emulating(Emulation()):
        kernel[1, 1](out, *GOOD)
    expected = [-5, 200, -300, 2**31, -(2**40), 2**33, 1, np.float32(0.1), 1.5, 2.25, 2]
    np.testing.assert_array_equal(out, np.float32(expected))


@pytest.mark.parametrize(
    ("position", "value", "says"),
    [
        (0, 3, "parameter out is a pointer to float; pass a tensor or an array, not 3"),
        (0, torch.zeros(11, dtype=torch.float64), "out is a pointer to float, but the tensor holds float64"),
        (0, torch.zeros(11).to_sparse(), "call .to_dense"),
        (1, 200, "parameter c takes signed char, -128 to 127, not 200"),
        (2, -1, "parameter u takes unsigned char, 0 to 255, not -1"),
        (4, -1, "parameter q takes unsigned, 0 to 4294967295, not -1"),
        (5, 2**63, "parameter l takes long long"),
        (6, 1.5, "parameter z takes an integer, not 1.5"),
        (7, 2, "parameter b takes bool, 0 to 1, not 2"),
        (8, "x", "parameter d takes a floating-point number, not 'x'"),
        (8, torch.zeros(1), "parameter d takes a double, not a tensor"),
        (11, 1, "parameter p takes a structure of 8 bytes; pass it as bytes"),
        (11, b"123", "parameter p takes 8 bytes, not 3"),
    ],
)
def test_parameters_that_do_not_fit(position, value, says):
    args = [np.zeros(11, np.float32), *GOOD]
    args[position] = value
    with emulating(Emulation()), pytest.raises(KernelError, match=says):
        cuda_kernel(KINDS, "kinds")[1, 1](*args)


def test_cuda_kernel_and_its_configuration():
    kernel = cuda_kernel(AXPY_CU, "axpy")
    x, y = np.arange(70, dtype=np.float32), torch.zeros(70)
    kernel[2, 64](y, x, 2, 70)
    if not gpu.available():
        np.testing.assert_array_equal(y, x * 2)
    with emulating(Emulation()):
        kernel[(2, 1), (32, 2), 0, 16](y, x, 3.0, 64)
        with pytest.raises(KernelError, match=r"axpy takes 4 arguments \(Y, X, alpha, N\), not 3"):
            kernel[2, 64](y, x, 2)
        for config in (3, (1,), (1, 2, 3, 4, 5)):
            with pytest.raises(KernelError, match="grid and block are needed"):
                kernel[config]
        with pytest.raises(KernelError, match="The block must be one to three integers, not 1.5"):
            kernel[1, 1.5]
        with pytest.raises(KernelError, match="a kernel needs a grid and a block"):
            kernel(y)
    with pytest.raises(KernelError, match="is called nothing; there is axpy"):
        cuda_kernel(AXPY_CU, "nothing")
    plain = "__global__ void plain(int *x) { *x = 7; }"
    seven = np.zeros(1, np.int32)
    with emulating(Emulation()):
        cuda_kernel(plain, "plain")[1, 1](seven)
    assert seven[0] == 7


def test_defines_and_arch():
    source = """
        extern "C" __global__ void k(int *x) {
            x[0] = VALUE; x[1] = __CUDA_ARCH__;
        #ifdef __CUDA_ARCH_FEAT_SM90_ALL
            x[2] = 1;
        #endif
        }"""
    x = np.zeros(3, np.int32)
    with emulating(Emulation()):
        cuda_kernel(source, "k", defines=["VALUE=42"], arch="sm_90a")[1, 1](x)
    assert x.tolist() == [42, 900, 1]
    with pytest.raises(KernelError, match='identifier "VALUE" is undefined'):
        cuda_kernel(source, "k")


def test_headers_of_the_wheels_are_found():
    compile_ptx("#include <mma.h>\n#include <cooperative_groups.h>\n#include <cuda/std/array>\n#include <cuda_fp8.h>")


def test_line_information_names_the_file():
    assert '.file\t1 "/somewhere/x y.cu"' in compile_ptx(AXPY_CU, path="/somewhere/x y.cu")


COUNTING = """
import labkit.kernels.cuda as c
made = []
real = c._nvrtc
c._nvrtc = lambda *a: made.append(a) or real(*a)
c.compile_ptx("__global__ void f() {{}}", defines=[{define!r}])
print(len(made))
"""


def test_the_cache_on_disk(tmp_path):
    def compiled(define, folder):
        env = {**os.environ, "LABKIT_CACHE": str(folder)}
        code = COUNTING.format(define=define)
        return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True).stdout

    folder = tmp_path / "c"
    assert [compiled("A", folder), compiled("A", folder), compiled("B", folder)] == ["1\n", "0\n", "1\n"]
    files = [p for p in folder.rglob("*") if p.is_file()]
    assert len(files) == 2 and all(p.suffix == ".ptx" for p in files)
    blocked = written(tmp_path, "blocked", "a file, where a folder is wanted")
    assert [compiled("A", blocked), compiled("A", blocked)] == ["1\n", "1\n"]


ADD_CU = """
extern "C" __global__ void scatter(float *y, long long sy0, long long sy1, const float *x, long long sx0,
                                   long long sx1, int M, int N) {
    int i = threadIdx.y, j = threadIdx.x;
    if (i < M && j < N) y[i * sy0 + j * sy1] = 2 * x[i * sx0 + j * sx1];
}"""


@st.composite
def strided(draw):
    """A view of two dimensions into a larger tensor: any offset and steps, overlapping rows too."""
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    strides = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    reach = (rows - 1) * strides[0] + (columns - 1) * strides[1]
    base = torch.arange(draw(st.integers(reach + 1, reach + 40)), dtype=torch.float32)
    return base.as_strided((rows, columns), strides, draw(st.integers(0, len(base) - 1 - reach)))


@functools.cache
def numba_double():
    from numba import cuda

    @cuda.jit
    def double(y, x):
        i, j = cuda.grid(2)
        if i < x.shape[0] and j < x.shape[1]:
            y[i, j] = 2 * x[i, j]

    return double


@settings(max_examples=25)
@given(strided())
def test_strided_tensors(view):
    rows, columns = view.shape
    expected = 2 * view.clone()
    out = torch.zeros(rows, columns)
    with emulating(Emulation()):
        cuda_kernel(ADD_CU, "scatter")[1, (8, 8)](out, *out.stride(), view, *view.stride(), rows, columns)
    assert torch.equal(out, expected)

    for y in (torch.zeros(rows, columns), torch.zeros(columns, rows).t(), torch.zeros(rows, 3 * columns)[:, ::3]):
        with emulating(Emulation()):
            numba_double()[1, (8, 8)](y, view)
        assert torch.equal(y, expected)


def test_gpu_available_obeys_the_environment(tmp_path):
    code = "from labkit.kernels import gpu; print(gpu.available())"
    env = {**os.environ, "LABKIT_DEVICE": "emulator"}
    assert subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True).stdout == "False\n"


@pytest.mark.gpu
def test_fixed_and_dynamic_shared_memory_together_may_pass_48_kib():
    source = """
        extern "C" __global__ void k(float *x) {
            __shared__ float fixed[10 * 1024];
            extern __shared__ float more[];
            fixed[threadIdx.x + 10208] = more[threadIdx.x + 5088] = threadIdx.x;
            __syncthreads();
            x[threadIdx.x] = fixed[10239 - threadIdx.x] + more[5119 - threadIdx.x];
        }"""
    x = torch.zeros(32, device="cuda")
    cuda_kernel(source, "k")[1, 32, 0, 20 * 1024](x)
    assert x.tolist() == [2.0 * (31 - i) for i in range(32)]


@pytest.mark.gpu
def test_cuda_kernels_on_the_gpu():
    kernel = cuda_kernel(AXPY_CU, "axpy")
    x = torch.randn(1000, device="cuda")
    y = torch.empty_like(x)
    kernel[16, 64](y, x, 3.0, 1000)
    assert torch.equal(y, 3 * x)
    with pytest.raises(KernelError, match="a tensor is on the CPU"):
        kernel[16, 64](y.cpu(), x, 3.0, 1000)
    big = """extern "C" __global__ void big(float *y) {
        extern __shared__ float s[]; s[threadIdx.x * 512] = threadIdx.x; __syncthreads();
        y[threadIdx.x] = s[(31 - threadIdx.x) * 512]; }"""
    cuda_kernel(big, "big")[1, 32, torch.cuda.current_stream(), 64 * 1024](y)
    assert y[:32].tolist() == list(range(31, -1, -1))


SHARED = """
__device__ int counter[32];
extern "C" __global__ void count(int *C) { counter[threadIdx.x] += C[threadIdx.x]; }
extern "C" __global__ void copy(int *C) { C[threadIdx.x] = counter[threadIdx.x] + 1; }
"""


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_kernels_of_a_file_share_its_variables(device):
    """And keep them from launch to launch, each of which is on its own."""
    if (device == "cuda") != gpu.available():
        pytest.skip("such launches go to the GPU where there is one, and else to the emulator")
    count, copy = (cuda_kernel(SHARED, name, path="counter.cu") for name in ("count", "copy"))
    C = torch.arange(32, dtype=torch.int32, device=device)
    for _ in range(2):
        count[1, 32](C)
        copy[1, 32](C)
    assert C.tolist() == [2 * n + 2 for n in range(32)]
