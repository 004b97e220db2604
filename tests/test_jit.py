"""The compiled engine against the interpreter: outputs, every counter of every line, and every fault."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest
import torch
from engine_tools import add, nvrtc, ptx_kernel, run_cuda
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import labkit as lk
from labkit.emulator import Emulation, KernelFault, Launch, compiler
from labkit.emulator.compiler import Later, blocks
from labkit.emulator.counters import Counters
from labkit.emulator.engine import Machine
from labkit.emulator.jit import regions, usable
from labkit.emulator.ptx import parse
from labkit.emulator.trace import Trace
from labkit.errors import LabkitError
from labkit.kernels import emulating
from labkit.problems import get, names
from labkit.problems.problem import as_argument

pytestmark = pytest.mark.skipif(not usable(), reason="this machine has no fused multiply-add")


@pytest.fixture
def machines(monkeypatch):
    """The machines that run while a test does."""
    made: list[Machine] = []
    run = Machine.run

    def kept(self: Machine) -> None:
        made.append(self)
        run(self)

    monkeypatch.setattr(Machine, "run", kept)
    return made


def counts(counters: Counters, memory) -> dict:
    """All that counters say, arrays by name."""
    buffers = {memory.buffers[k].name: used for k, used in counters.buffers.items()}
    return {"metrics": counters.metrics, "lines": counters.lines, "fidelity": counters.fidelity, "buffers": buffers}


def launched(ptx: str, grid, block, arrays, engine: str, *, numbers=(), watch=True, **options) -> tuple:
    """Run the kernel `k` on copies of arrays; gives (arrays or the fault's text, what was counted, the trace)."""
    arrays = [a.copy() for a in arrays]
    counters, trace = Counters(sass=False), Trace(warp=1, occurrences=2)
    if watch:
        # The first chunk is looked at closely, by the interpreter.
        options = {"chunk_threads": block[0], "counters": counters, "trace": trace, **options}
    emulation = Emulation(engine=engine, **options)
    params = [add(emulation, a, "abcdefgh"[k]) for k, a in enumerate(arrays)]
    launch = Launch(ptx, "k", grid, block, (*params, *(struct.pack("<i", n) for n in numbers)))
    trace.begin(launch, parse(ptx).program("k"), emulation.memory)
    try:
        emulation.run(launch)
    except KernelFault as fault:
        return str(fault), None, None
    return [a.tobytes() for a in arrays], counts(counters, emulation.memory) if watch else None, trace.accesses


def agree(ptx: str, grid, block, arrays, **options) -> object:
    """Both engines give the same; returns it."""
    wanted = launched(ptx, grid, block, arrays, "interpreter", **options)
    got = launched(ptx, grid, block, arrays, "compiled", **options)
    for w, g in zip(wanted, got, strict=True):
        assert g == w
    return wanted


# ---------------------------------------------------------------------------- instructions

INTS32 = [0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 255, 256, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0xDEADBEEF]
INTS64 = [*INTS32, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, (1 << 64) - 1, 0x0123456789ABCDEF, 0xFFFFFFFF << 32]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 1e-40, -1e-45, 1.1754944e-38, 3.4e38, -3.4e38, 1e10, -1e20, 3e9,
          -3e9, 2147483648.0, 1.0000001, 16777217.0, np.inf, -np.inf, np.nan, 1e-20, 7e-39, 1 / 3]  # fmt: skip
HALVES = [0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x3C00, 0xBC00, 0x3C01, 0x3F80, 0xBF80, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00,
          0x7F80, 0xFF80, 0x7C01, 0xFFFF, 0x1400, 0x4248, 0x5BFF, 0x0080, 0x7F7F]  # bits of f16 or bf16
DOUBLES = [*FLOATS, 1e300, -1e300, 5e-324, 1e-310, 9.3e18, 1.8446744073709552e19, 1 + 2**-52, 2.0**53 + 2]


def special(kind: str, count: int, seed: int) -> np.ndarray:
    """Awkward values of a PTX type, as the bits of 64-bit words."""
    rng = np.random.default_rng(seed)
    if kind.endswith("16x2"):
        return special(kind[:-2], count, seed) | special(kind[:-2], count, seed + 500) << np.uint64(16)
    values = {"f32": FLOATS, "f64": DOUBLES, "f16": HALVES, "bf16": HALVES}.get(
        kind, INTS64 if kind[1:] == "64" else INTS32
    )
    if kind in ("f16", "bf16"):
        kind = "b16"
    chosen = np.array(values, np.float64 if kind[0] == "f" else np.uint64)[rng.integers(len(values), size=count)]
    if kind[0] == "f":
        some = rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)
        chosen = np.where(rng.random(count) < 0.3, some, chosen)
        with np.errstate(all="ignore"):
            single = chosen.astype(np.float32).view(np.uint32).astype(np.uint64)
        return single if kind == "f32" else chosen.view(np.uint64)
    some = rng.integers(0, 1 << 63, count, dtype=np.uint64)
    chosen = np.where(rng.random(count) < 0.3, some, chosen)
    bits = int(kind[1:])
    return chosen if bits == 64 else chosen & np.uint64((1 << bits) - 1)


def each(texts: str, *kinds: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """(instruction, type of the result, types of the sources)"""
    return [(t.format(k=k), k, (k,) * 3) for t in texts.split() for k in kinds]


INSTRUCTIONS = [
    *each("add.{k} sub.{k} mul.lo.{k} mul.hi.{k} mad.lo.{k} mad.hi.{k} div.{k} rem.{k} min.{k} max.{k}",
          "s32", "u32", "s64", "u64"),
    *each("add.{k} mul.lo.{k} min.{k}", "s16", "u16"),
    *each("and.{k} or.{k} xor.{k} not.{k}", "b16", "b32", "b64"),
    *each("neg.{k} abs.{k}", "s32", "s64", "f32", "f64"),
    *[(f"mul.wide.{k}", "b64", (k, k)) for k in ("s32", "u32")],
    *[(f"mad.wide.{k}", "b64", (k, k, "b64")) for k in ("s32", "u32")],
    *[(f"{op}.{k}", k, (k, "u32")) for op, k in itertools.product(("shl", "shr"), ("b32", "b64"))],
    *[(f"shr.{k}", k, (k, "u32")) for k in ("s32", "u32", "s64", "u64", "s16")],
    *[(f"{op}.{k}", "u32", (k,)) for op, k in itertools.product(("popc", "clz"), ("b32", "b64"))],
    *each("brev.{k}", "b32", "b64"),
    *[(f"shf.{d}.wrap.b32", "b32", ("b32", "b32", "u32")) for d in "lr"],
    *each("add.rn.{k} sub.rn.{k} mul.rn.{k} fma.rn.{k} div.rn.{k} sqrt.rn.{k} rcp.rn.{k} min.{k} max.{k}",
          "f32", "f64"),
    *each("add.ftz.{k} sub.ftz.{k} mul.ftz.{k} fma.rn.ftz.{k} div.rn.ftz.{k} min.ftz.{k} neg.ftz.{k} add.sat.{k}"
          " mul.ftz.sat.{k} fma.rn.sat.{k} div.full.{k}", "f32"),
    *[(f"cvt.{d}.{s}", d, (s,)) for d, s in itertools.permutations(("s32", "u32", "s64", "u64", "s16", "u16"), 2)],
    *[(f"cvt.rn.{d}.{s}", d, (s,)) for d in ("f32", "f64") for s in ("s32", "u32", "s64", "u64")],
    *[(f"cvt.{r}.{d}.{s}", d, (s,)) for r in ("rzi", "rni", "rmi", "rpi") for s in ("f32", "f64")
      for d in ("s32", "u32", "s64", "u64")],
    ("cvt.f64.f32", "f64", ("f32",)), ("cvt.rn.f32.f64", "f32", ("f64",)), ("cvt.rzi.f32.f32", "f32", ("f32",)),
    ("cvt.rni.ftz.f32.f32", "f32", ("f32",)), ("cvt.rpi.f64.f64", "f64", ("f64",)),
    *[(f"setp.{c}.{k}", "pred", (k, k)) for k in ("s32", "u32", "s64", "u64")
      for c in ("eq", "ne", "lt", "le", "gt", "ge")],
    *[(f"setp.{c}.{k}", "pred", (k, k)) for k in ("f32", "f64")
      for c in ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")],
    *[(f"setp.{c}.u32", "pred", ("u32", "u32")) for c in ("lo", "ls", "hi", "hs")],
    ("setp.lt.ftz.f32", "pred", ("f32", "f32")),
    *each("add.{k} sub.{k} mul.{k} fma.rn.{k} neg.{k} abs.{k} min.{k} max.{k} min.NaN.{k} max.NaN.{k}",
          "f16", "f16x2", "bf16", "bf16x2"),
    *each("fma.rn.sat.{k} fma.rn.relu.{k} add.sat.{k}", "f16", "f16x2"),
    *[(f"setp.{c}.{k}", "pred", (k, k)) for k in ("f16", "bf16") for c in ("eq", "ne", "lt", "geu", "num")],
    *[(f"cvt.f32.{k}", "f32", (k,)) for k in ("f16", "bf16")],
    *[(f"cvt.rn{m}.{k}.f32", k, ("f32",)) for k in ("f16", "bf16") for m in ("", ".relu")],
    *[(f"cvt.rn.{k}.f32", k, ("f32", "f32")) for k in ("f16x2", "bf16x2")],
    *each("min.NaN.{k} max.NaN.{k} rsqrt.approx.{k} rsqrt.approx.ftz.{k} ex2.approx.{k} ex2.approx.ftz.{k}", "f32"),
    *[(f"dp4a.{a}32.{b}32", "b32", ("b32", "b32", "b32")) for a in "us" for b in "us"],
    *[(f"dp2a.{h}.{a}32.{b}32", "b32", ("b32", "b32", "b32")) for h in ("lo", "hi") for a in "us" for b in "us"],
    ("prmt.b32", "b32", ("b32", "b32", "b32")),
    *[(f"bfe.{k}", k, (k, "u32", "u32")) for k in ("u32", "u64")],
    *[(f"bfi.{k}", k, (k, k, "u32", "u32")) for k in ("b32", "b64")],
]  # fmt: skip
OPERANDS = {"neg": 1, "abs": 1, "not": 1, "popc": 1, "clz": 1, "brev": 1, "sqrt": 1, "rcp": 1, "cvt": 1,
            "mad": 3, "fma": 3, "shf": 3, "rsqrt": 1, "ex2": 1, "dp4a": 3, "dp2a": 3, "prmt": 3, "bfe": 3, "bfi": 4}


def width(kind: str) -> int:
    """Bits of the register that holds a value of a PTX type."""
    return 32 if kind.endswith("x2") else max(int(kind.lstrip("bfus")), 16)


@pytest.mark.parametrize("start", range(0, len(INSTRUCTIONS), 24))
def test_instructions_give_the_same_bits(start: int, machines) -> None:
    """Vectors and numbers of all lanes alike, a third of them values that bite."""
    chosen = INSTRUCTIONS[start : start + 24]
    threads, body, stores, inputs = 256, [], [], []
    for n, (text, kind, sources) in enumerate(chosen):
        count = len(sources) if text.endswith("x2.f32") else OPERANDS.get(text.split(".")[0], 2)
        names = []
        for k, source in enumerate(sources[:count]):
            bits = width(source)
            inputs.append(special(source, threads, 1000 * (start + n) + k))
            name = f"%x{n}_{k}"
            # The last source of every other instruction is a number that all lanes share.
            base = "%rd0" if k == count - 1 and n % 2 and count > 1 else "%rd2"
            body.append(f".reg .b{bits} {name}; ld.global.b{bits} {name}, [{base}+{8 * threads * (len(inputs) - 1)}];")
            names.append(name)
        if kind == "pred":
            body.append(f".reg .pred %p{n}_; .reg .b64 %y{n}; {text} %p{n}_, {', '.join(names)};")
            body.append(f"selp.b64 %y{n}, 1, 0, %p{n}_;")
            bits = 64
        else:
            bits = width(kind)
            body.append(f".reg .b{bits} %y{n}; {text} %y{n}, {', '.join(names)};")
        stores.append(f"st.global.b{bits} [%rd4+{8 * threads * n}], %y{n};")
    text = "\n".join(
        ["ld.param.u64 %rd3, [b]; mul.wide.u32 %rd1, %r0, 8; add.s64 %rd2, %rd0, %rd1; add.s64 %rd4, %rd3, %rd1;",
         *body, *stores]
    )  # fmt: skip
    ptx = ptx_kernel(text, ".param .u64 a, .param .u64 b")
    out = np.zeros(threads * len(chosen), np.uint64)
    arrays = [np.concatenate(inputs), out]
    wanted, got = (
        launched(ptx, (1, 1, 1), (threads, 1, 1), arrays, engine, sanitize=False, watch=False)[0][1]
        for engine in ("interpreter", "compiled")
    )
    program = parse(ptx).program("k")
    found = [region for block in blocks(program.instructions).items() for region in regions.find(program, block)]
    assert machines[-1].jit.compiled == len(found)
    wanted, got = (np.frombuffer(x, np.uint64).reshape(-1, threads) for x in (wanted, got))
    for (name, kind, _), w, g in zip(chosen, wanted, got, strict=True):
        same = w == g
        if kind == "f64":  # which NaN is nobody's business
            same |= np.isnan(w.view(np.float64)) & np.isnan(g.view(np.float64))
        assert same.all(), (name, np.flatnonzero(~same)[:4], w[~same][:4], g[~same][:4])
    inside = {pc for region in found for pc in range(region.start, region.end)}
    assert not [i.text for i in program.instructions if i.index not in inside and i.op not in ("st", "ret")]


# ---------------------------------------------------------------------------- rungs

GEMM = get("gemm")


def both(problem, kernel, shape: dict[str, int]) -> None:
    """Run a solution on both engines: outputs bit for bit, all counters, all lines."""
    results = []
    options = problem.options_of(shape)
    for engine in ("interpreter", "compiled"):
        inputs, outputs = problem.make_inputs(shape, 0, device="cpu"), problem.make_outputs(shape)
        for tensor in outputs.values():
            tensor.zero_()
        counters = Counters()
        emulation = Emulation(engine=engine, counters=counters)
        with emulating(emulation, names={**outputs, **inputs}):
            kernel.launch(as_argument(outputs), *inputs.values(), **options)
        bits = {name: tensor.view(torch.uint8).numpy().tobytes() for name, tensor in outputs.items()}
        results.append((bits, counts(counters, emulation.memory)))
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("rung", "language"), [(step.name, lang) for step in GEMM.ladder for lang in step.languages], ids=str
)
def test_rungs_count_the_same(rung: str, language: str, machines) -> None:
    """On a size that fits nothing."""
    solution = lk.problem("gemm")[rung, language].solution
    both(GEMM, solution.load(solution.path).kernel, GEMM.dims_of({"M": 97, "N": 75, "K": 41}))
    assert machines[-1].jit.compiled


def solutions() -> list[tuple[str, str, str]]:
    found = [(name, step) for name in names() if name != "gemm" for step in get(name).ladder]
    return [(name, step.name, lang) for name, step in found for lang in step.languages]


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "rung", "language"), solutions(), ids=str)
def test_all_solutions_count_the_same(problem: str, rung: str, language: str) -> None:
    """At the shape that their profiles are shown for."""
    solution = lk.problem(problem)[rung, language].solution
    both(solution.problem, solution.kernel, solution.problem.dims_of(solution.problem.profile_shape))


# ---------------------------------------------------------------------------- what a launch does not reach

INSTANTIATIONS = """
template <int N> __device__ void sum(float* a, const float* b) {
    float x = 0.0f;
#pragma unroll
    for (int k = 0; k < N; k++) x = x * b[threadIdx.x * N + k] + (float)k;
    a[threadIdx.x] = x;
}
extern "C" __global__ void k(float* a, const float* b, int n) {
    if (n == 8) sum<8>(a, b);
    else if (n == 16) sum<16>(a, b);
    else if (n == 64) sum<64>(a, b);
}"""


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
def test_code_that_is_not_reached_is_not_compiled(engine: str, machines, monkeypatch) -> None:
    """Of three instantiations in one kernel a launch compiles the one that it runs, and the next launch adds its own;
    what is known of the whole kernel is found out once."""
    asked = []
    liveness = compiler.liveness
    monkeypatch.setattr(compiler, "liveness", lambda code: asked.append(len(code)) or liveness(code))
    parse.cache_clear()
    b = np.random.default_rng(0).random(32 * 64, np.float32)
    reached = set()
    for n in (8, 16):
        a, counters = np.zeros(32, np.float32), Counters()
        run_cuda(INSTANTIATIONS, 1, 32, a, b, n, engine=engine, counters=counters)
        want = np.zeros(32, np.float32)
        for k in range(n):
            want = want * b[: 32 * n].reshape(32, n)[:, k] + np.float32(k)
        np.testing.assert_allclose(a, want, rtol=1e-6)
        reached |= {pc for pc, warps in enumerate(counters._warps) if warps}
        code = machines[-1].code
        made = {pc for pc, step in enumerate(code.steps) if not isinstance(step, Later)}
        if engine == "interpreter":
            assert made == reached
        else:  # whose regions need no steps
            assert made <= reached and machines[-1].jit.compiled
            assert {start for start, _ in code.regions} == reached & code.blocks.keys()
    assert len(reached) < len(code.steps) / 2  # most of the kernel is sum<64>
    assert asked == [len(code.steps)]


# ---------------------------------------------------------------------------- random kernels

# Expressions of ints over the variables of the kernel below.
NAMES = st.sampled_from(["t", "u", "v", "n", "b", "i"])
NUMBERS = st.sampled_from(["1", "2", "3", "5", "7", "13", "31", "33", "255", "-1", "-9", "65536"])


def _ints(inner):
    return st.one_of(
        st.tuples(inner, st.sampled_from("+ - * & | ^".split()), inner).map(lambda x: f"({x[0]} {x[1]} {x[2]})"),
        st.tuples(inner, st.sampled_from(["/", "%"]), inner).map(lambda x: f"({x[0]} {x[1]} (({x[2]} & 15) + 1))"),
        st.tuples(inner, st.sampled_from(["<<", ">>"]), inner).map(lambda x: f"({x[0]} {x[1]} ({x[2]} & 31))"),
        st.tuples(inner, inner, inner).map(lambda x: f"({x[0]} < {x[1]} ? {x[2]} : {x[1]})"),
        inner.map(lambda x: f"a[({x}) & 255]"),
        inner.map(lambda x: f"(int)h[({x}) & 127]"),
        inner.map(lambda x: f"__float2int_rn(f[({x}) & 255] * 3.5f)"),
        inner.map(lambda x: f"__popc({x})"),
        st.tuples(inner, inner, inner).map(lambda x: f"__dp4a({x[0]}, {x[1]}, {x[2]})"),
        st.tuples(inner, inner, inner).map(lambda x: f"(int)__byte_perm({x[0]}, {x[1]}, {x[2]})"),
        st.tuples(inner, inner).map(lambda x: f"min({x[0]}, {x[1]})"),
    )


INT = st.recursive(NAMES | NUMBERS, _ints, max_leaves=5)
FLOAT = st.recursive(
    st.sampled_from(["x", "y", "1.5f"]) | INT.map(lambda e: f"f[({e}) & 255]") | INT.map(lambda e: f"(float)({e})"),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda x: f"({x[0]} {x[1]} {x[2]})"),
        st.tuples(inner, inner, inner).map(lambda x: f"fmaf({x[0]}, {x[1]}, {x[2]})"),
        st.tuples(inner, inner).map(lambda x: f"fminf({x[0]}, {x[1]})"),
        inner.map(lambda x: f"sqrtf(fabsf({x}))"),
        inner.map(lambda x: f"__expf({x})"),
        st.tuples(inner, inner).map(lambda x: f"__half2float(__hmul(__float2half({x[0]}), __float2half({x[1]})))"),
        st.tuples(inner, inner, inner).map(
            lambda x: f"__half2float(__hfma(__float2half({x[0]}), __float2half({x[1]}), __float2half({x[2]})))"
        ),
        st.tuples(inner, inner).map(
            lambda x: f"__low2float(__hadd2(__floats2half2_rn({x[0]}, 2.5f), __float2half2_rn({x[1]})))"
        ),
        inner.map(lambda x: f"__bfloat162float(__float2bfloat16({x}))"),
    ),
    max_leaves=4,
)
CONDITION = st.one_of(
    st.tuples(INT, st.sampled_from(["<", ">=", "=="]), INT).map(lambda x: f"{x[0]} {x[1]} {x[2]}"),
    st.tuples(NAMES, st.sampled_from("1 2 3 7 16 31".split())).map(lambda x: f"({x[0]} & {x[1]})"),
    st.tuples(FLOAT, FLOAT).map(lambda x: f"{x[0]} < {x[1]}"),
)
# Shared memory is written, met, read and met again; warps meet whole, except where only some lanes are asked.
SIMPLE = st.one_of(
    INT.map(lambda e: f"u = {e};"),
    INT.map(lambda e: f"v += {e};"),
    FLOAT.map(lambda e: f"x = {e};"),
    FLOAT.map(lambda e: f"y += {e};"),
    INT.map(lambda e: f"atomicAdd(&out[512 + (({e}) & 15)], v);"),
    INT.map(lambda e: f"atomicMax(&out[544 + (({e}) & 15)], u);"),
)
MEETING = st.one_of(
    st.tuples(INT, INT).map(lambda e: f"s[tid] = {e[0]}; __syncthreads(); u ^= s[({e[1]}) & 63]; __syncthreads();"),
    FLOAT.map(lambda e: f"z[tid] = {e}; __syncthreads(); x += z[63 - tid] + z[(tid * 2) & 63]; __syncthreads();"),
    st.sampled_from(["1", "3", "16"]).map(lambda k: f"v += __shfl_xor_sync(~0u, u, {k});"),
    INT.map(lambda e: f"v += __shfl_sync(~0u, u, {e});"),
    CONDITION.map(lambda c: f"v ^= __ballot_sync(~0u, {c});"),
    st.tuples(CONDITION, CONDITION).map(lambda c: f"v += __any_sync(~0u, {c[0]}) + 2 * __all_sync(~0u, {c[1]});"),
    st.tuples(st.sampled_from(["up", "down"]), INT).map(lambda x: f"u += __shfl_{x[0]}_sync(~0u, v, ({x[1]}) & 31);"),
    FLOAT.map(lambda e: f"for (int o = 16; o; o >>= 1) y += __shfl_xor_sync(~0u, {e}, o, 32);"),
    FLOAT.map(lambda e: f"x = fmaxf(x, __shfl_down_sync(~0u, {e}, 3, 8));"),
    INT.map(lambda e: f"v ^= __reduce_add_sync(~0u, {e}) + __reduce_max_sync(~0u, u);"),
    INT.map(lambda e: f"s[tid] = 0; __syncthreads(); atomicAdd(&s[({e}) & 7], u); __syncthreads(); v ^= s[tid & 7];"
                      " __syncthreads();"),
    INT.map(lambda e: f"u = atomicExch(&s[tid], {e}); __syncthreads(); v += atomicMin(&s[63 - tid], u);"
                      " __syncthreads();"),
)  # fmt: skip


def _blocks(inner):
    return st.one_of(
        st.tuples(CONDITION, inner).map(lambda x: f"if ({x[0]}) {{ {x[1]} }}"),
        st.tuples(CONDITION, inner, inner).map(lambda x: f"if ({x[0]}) {{ {x[1]} }} else {{ {x[2]} }}"),
        st.tuples(INT, inner).map(lambda x: f"for (int i = 0; i < (({x[0]}) & 7); i++) {{ {x[1]} }}"),
        st.tuples(CONDITION, inner).map(
            lambda x: f"for (int i = 0; i < 9; i++) {{ {x[1]} if ({x[0]}) break; u += i; }}"
        ),
        st.tuples(inner, inner).map(" ".join),
    )


BRANCHY = st.recursive(SIMPLE, _blocks, max_leaves=4)
UNIFORM = st.tuples(st.sampled_from("2 3 5".split()), MEETING, BRANCHY).map(
    lambda x: f"for (int i = 0; i < {x[0]}; i++) {{ {x[1]} {x[2]} }}"
)
BODY = st.lists(st.one_of(BRANCHY, BRANCHY, MEETING, UNIFORM), min_size=2, max_size=5).map("\n".join)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(body=BODY, early=st.sampled_from(["", "if (t >= 250) return;"]), sanitize=st.booleans())
def test_random_kernels_agree(body: str, early: str, sanitize: bool) -> None:
    """Branches, loops, shared memory, shuffles, votes and atomics; some threads may leave before the last stores."""
    source = f"""
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    extern "C" __global__ void k(const int* a, const float* f, const short* h, int* out, float* g, int n) {{
        __shared__ int s[64];
        __shared__ float z[64];
        int tid = threadIdx.x, b = blockIdx.x, t = tid + b * 64, u = a[t], v = t * 3, i = 0;
        float x = f[t], y = 0.25f;
        {body}
        {early}
        out[t] = u; out[256 + t] = v; g[t] = x; g[256 + t] = y;
    }}"""
    rng = np.random.default_rng(7)
    arrays = [
        rng.integers(-1000, 1000, 256, dtype=np.int32), rng.standard_normal(256).astype(np.float32),
        rng.integers(-99, 99, 128, dtype=np.int16), np.zeros(1024, np.int32), np.zeros(512, np.float32),
    ]  # fmt: skip
    agree(nvrtc(source), (4, 1, 1), (64, 1, 1), arrays, numbers=[11], sanitize=sanitize, max_steps=200_000)


# ---------------------------------------------------------------------------- accesses and faults


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from(["char", "short", "float", "double", "float2", "float4"]),
    stride=st.integers(0, 9),
    swizzle=st.sampled_from(["0", "lane * 5 & 31", "lane ^ 7", "31 - lane", "r[t] & 63"]),
    active=st.sampled_from(["true", "lane != 3", "lane > 20", "t % 3", "r[t] & 1"]),
    block=st.sampled_from([32, 48, 96]),
    shift=st.integers(0, 3),
)
def test_patterns_of_addresses_count_the_same(kind, stride, swizzle, active, block, shift) -> None:
    """Widths, strides, gathers, masks, short warps: sectors, wavefronts, conflicts and bytes."""
    first = {"char": "q", "short": "q", "float": "q", "double": "q"}.get(kind, "q.x")
    source = f"""
    extern "C" __global__ void k(const {kind}* a, const int* r, float* out) {{
        __shared__ {kind} s[512];
        int lane = threadIdx.x & 31, t = threadIdx.x + blockIdx.x * blockDim.x;
        for (int j = threadIdx.x; j < 512; j += blockDim.x) s[j] = a[j];
        __syncthreads();
        float sum = 0;
        for (int j = 0; j < 4; j++)
            if ({active}) {{
                int at = lane * {stride} + ({swizzle}) + j * {shift};
                {kind} q = a[at];
                sum += (float){first};
                q = s[at];
                sum += (float){first} + r[at & 127];
            }}
        out[t] = sum;
    }}"""
    size = {"char": 1, "short": 2, "float": 4, "double": 8, "float2": 8, "float4": 16}[kind]
    rng = np.random.default_rng(3)
    data = rng.integers(1, 60, 1024 * size // (size if size < 4 else 4)).astype({1: "i1", 2: "i2"}.get(size, "f4"))
    if kind == "double":
        data = data.view(np.float64)
    arrays = [data, rng.integers(0, 1 << 20, 4 * block, dtype=np.int32), np.zeros(4 * block, np.float32)]
    arrays[1] = np.resize(arrays[1], max(128, 4 * block))
    assert agree(nvrtc(source), (4, 1, 1), (block, 1, 1), arrays)[1]


# In block 1 or later: the interpreter alone looks at the first, since it is traced.
FAULTS = {
    "out_of_bounds": "x += f[t + (n == 3 && t == 177 ? 100000 : 0)];",
    "before the array": "x += f[t == 129 ? -1 : t];",
    "far away": "x += f[t == 129 ? 1ll << 58 : t];",
    "wraps around": "x += f[t == 140 ? 1ll << 61 : t == 139 ? -(1ll << 61) : t];",
    "misaligned": "x += *(const float*)((const char*)f + t * 4 + (t == 200));",
    "shared": "s[i] = u; __syncthreads(); u += s[t == 130 ? 64 : i];",
    "uninitialized": "if (b != 2 || i != 5) s[i] = u; __syncthreads(); u += s[63 - i];",
    "race": "s[i] = u; if (b != 2) __syncthreads(); u += s[63 - i] * 3; v = u + 1;",
    "race in the next turn": """
        for (int j = 0; j < n; j++) {
            s[i] = u; __syncthreads(); u += s[63 - i] * 5 ^ t; v += u;
            if (b != 2) __syncthreads();
        }""",
    "another array": "x += f[t + (b == 2 ? 1ll << 34 : 0)];",
}


@pytest.mark.parametrize("what", FAULTS)
def test_faults_read_the_same(what: str) -> None:
    """Where something is amiss, the interpreter says what, of the same thread and with the same words."""
    source = f"""
    extern "C" __global__ void k(const int* a, const float* f, int* out, float* g, int n) {{
        __shared__ int s[64];
        int i = threadIdx.x, b = blockIdx.x, t = i + b * 64, u = a[t] * 3 + t, v = u * u - t;
        float x = f[t] * 2 + v;
        {FAULTS[what]}
        out[t] = u + v; g[t] = x;
    }}"""
    arrays = [np.ones(256, kind) for kind in (np.int32, np.float32, np.int32, np.float32)]
    fault = agree(nvrtc(source), (4, 1, 1), (64, 1, 1), arrays, numbers=[3])[0]
    assert isinstance(fault, str), fault


# ---------------------------------------------------------------------------- choosing


def test_auto_compiles_what_runs_long_and_says_so(machines, monkeypatch) -> None:
    from labkit.emulator.jit import run

    source = """
    extern "C" __global__ void k(const float* a, float* c, int n) {
        float s = 0;
        for (int i = 0; i < n; i++) s += a[(i * 7 + threadIdx.x) & 1023] * 2;
        c[threadIdx.x + blockIdx.x * 128] = s;
    }"""
    a, c = np.ones(1024, np.float32), np.zeros(512, np.float32)
    monkeypatch.setattr(run, "KEPT", run.WORTH)
    run_cuda(source, 4, 128, a, c, 40, engine="auto")
    assert machines[-1].jit.compiled == 0
    run_cuda(source, 4, 128, a, c, 4000, engine="auto")
    assert machines[-1].jit.compiled > 0
    assert (c == 8000).all()
    run_cuda(source, 4, 128, a, c, 4000, engine="interpreter")
    assert machines[-1].jit is None
    with pytest.raises(LabkitError, match="no engine 'fast'"):
        Emulation(engine="fast")


def test_machine_code_is_kept(tmp_path, monkeypatch) -> None:
    from labkit.emulator.jit import build

    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    text = "define i32 @NAME(ptr %args) {\n  ret i32 42\n}\n"
    assert build.function(text, fresh=False) is None
    assert build.function(text)(0) == 42
    assert len(list(tmp_path.glob("*/*.o"))) == 1
    monkeypatch.setattr(build, "_compile", lambda text: pytest.fail("compiled again"))
    assert build.function(text, fresh=False)(0) == 42
