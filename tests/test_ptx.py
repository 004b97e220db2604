"""Reading PTX: what NVVM and NVRTC write, source lines, inlining, symbols, liveness."""

from __future__ import annotations

import numpy as np
import pytest
from engine_tools import numba_ptx, nvrtc, ptx_kernel
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda

from labkit.emulator import KernelFault
from labkit.emulator.compiler import Compiler, defs_and_uses, liveness, successors
from labkit.emulator.ptx import Addr, Imm, Label, Reg, Special, Sym, Vec, parse, short_name


def program(body: str, **options: str):
    return parse(ptx_kernel(body, **options)).program("k")


def first(body: str, **options: str):
    """The first instruction of a body (after the kernel's two standing ones)."""
    return program(body, **options).instructions[2]


def test_operands() -> None:
    i = first("@!%p1 ld.global.nc.L2::128B.v2.f32 {%f1, _}, [%rd1+-8];")
    assert (i.op, i.mods, i.types, i.type) == ("ld", ("global", "nc", "L2::128B", "v2"), ("f32",), "f32")
    target, address = i.operands
    assert isinstance(target, Vec) and [type(t).__name__ for t in target.items] == ["Reg", "Sink"]
    assert isinstance(address, Addr) and address.base.name == "%rd1" and address.offset == -8
    assert i.guard[0].name == "%p1" and i.guard[1] is False
    assert i.index == 2 and i.text.startswith("@!%p1 ld.global.nc")


@pytest.mark.parametrize(
    "text, value, bits",
    [
        ("17", 17, None),
        ("-17", -17, None),
        ("0x1F", 31, None),
        ("0b101", 5, None),
        ("017", 15, None),
        ("4294967295U", 4294967295, None),
        ("0f3F800000", 1.0, 0x3F800000),
        ("0dBFF0000000000000", -1.0, 0xBFF0000000000000),
        ("2.5", 2.5, 0x4004000000000000),
        ("WARP_SZ", 32, None),
    ],
)
def test_literals(text: str, value: float, bits: int | None) -> None:
    operand = first(f"mov.b64 %rd1, {text};").operands[1]
    assert isinstance(operand, Imm) and operand.value == value and operand.bits == bits


def test_special_registers_and_symbols() -> None:
    assert first("mov.u32 %r1, %ctaid.y;").operands[1] == Special("%ctaid.y")
    declarations = ".const .align 4 .b8 table[8] = {1, 0, 0, 0, 2};\n.shared .align 16 .f32 tile[64];"
    i = first("ld.const.u32 %r1, [table+4];", declarations=declarations)
    base = i.operands[1].base
    assert isinstance(base, Sym) and base.variable.name == "table" and i.operands[1].offset == 4
    assert base.variable.data == bytes([1, 0, 0, 0, 2, 0, 0, 0])


def test_initial_values() -> None:
    text = ptx_kernel(
        "",
        declarations="""
.global .align 4 .u32 n = 7;
.global .align 8 .f64 d[2] = {0d3FF0000000000000, 2.5};
.global .align 4 .f32 f[3] = {0f40400000, 1.5};
.global .align 8 .u64 p[2] = {generic(n), d+8};
.global .align 1 .b8 $str[4] = {104, 105, 0};
.global .align 2 .u16 grid[2][3] = {{1, 2, 3}, {4, 5, 6}};
""",
    )
    found = parse(text).variables
    assert found["n"].data == (7).to_bytes(4, "little")
    assert np.frombuffer(found["d"].data, np.float64).tolist() == [1, 2.5]
    assert np.frombuffer(found["f"].data, np.float32).tolist() == [3, 1.5, 0]
    assert found["p"].relocations == ((0, "n", 0), (8, "d", 8))
    assert found["$str"].size == 4
    assert np.frombuffer(found["grid"].data, np.uint16).tolist() == [1, 2, 3, 4, 5, 6]


def test_shared_memory_is_laid_out_by_alignment() -> None:
    p = program(
        """
    .shared .align 1 .b8 one[3];
    .shared .align 16 .b8 two[32];
    mov.u32 %r1, one;
    mov.u64 %rd1, two;
    mov.u64 %rd2, rest;
    """,
        declarations=".extern .shared .align 16 .b8 rest[];\n.shared .align 4 .b8 unused[400];",
    )
    offsets = {name: at for name, (_, at) in p.shared.items()}
    assert offsets == {"one": 0, "two": 16, "rest": 48} and p.shared_size == 48


def test_params_are_aligned() -> None:
    text = ptx_kernel("", params=".param .u64 a, .param .u8 b, .param .align 16 .b8 c[20], .param .f64 d")
    p = parse(text).program("k")
    assert [(q.name, q.offset, q.size) for q in p.params] == [("a", 0, 8), ("b", 8, 1), ("c", 16, 20), ("d", 40, 8)]
    assert p.param_size == 48


def test_nested_scopes_hide_names() -> None:
    p = program("""
    { .reg .b32 t; mov.u32 t, 1; { .reg .b32 t; mov.u32 t, 2; } add.u32 %r1, t, 5; }
    { .reg .b32 t; mov.u32 t, 3; }
    """)
    outer, inner, add, other = p.instructions[2:6]
    assert outer.operands[0] == add.operands[1]
    assert len({i.operands[0].slot for i in (outer, inner, other)}) == 3


def test_comments_strings_and_pragmas() -> None:
    p = program("""
    /* mov.u32 %r1, 1; */ mov.u32 %r2, 2; // mov.u32 %r3, 3;
    .pragma "nounroll // not a comment";
    mov.u32 %r4, 4;
    """)
    assert [i.text for i in p.instructions[2:4]] == ["mov.u32 %r2, 2", "mov.u32 %r4, 4"]


def test_labels_become_program_counters() -> None:
    p = program("""
TOP:
    setp.eq.u32 %p1, %r0, 3;
    @%p1 bra OUT;
    bra.uni TOP;
OUT:
    """)
    branch, back = p.instructions[3], p.instructions[4]
    assert branch.operands[0] == Label("OUT", (5,)) and back.operands[0].pc == (2,)
    assert successors(branch) == [5, 4] and successors(back) == [2]


def test_lines_of_numba() -> None:
    def kernel(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] = x[i] + 1  # this line

    text = numba_ptx(kernel, np.zeros(3, np.float32))
    p = parse(text).program(parse(text).entries[0])
    assert p.kernel == "kernel" and p.file == __file__
    lines = {i.line for i in p.instructions if i.op in ("ld", "st") and "global" in i.mods}
    start = kernel.__code__.co_firstlineno
    assert lines == {start + 3}
    assert None not in {i.line for i in p.instructions} and 0 not in {i.line for i in p.instructions}


def test_lines_of_inlined_and_called_functions() -> None:
    source = """__device__ __forceinline__ float one(float x) {
    return x * 3.0f;
}
__device__ __forceinline__ float two(float x) {
    return one(x) + 1.5f;
}
__device__ __noinline__ float far(float x) {
    return x / 7.0f;
}
extern "C" __global__ void k(float* a) {
    float v = a[threadIdx.x];
    v = two(v);
    v = far(v);
    a[threadIdx.x] = v;
}"""
    p = parse(nvrtc(source)).program("k")
    fma = next(i for i in p.instructions if i.op == "fma")
    assert fma.line == 12 and fma.inner[1] == 5
    div = next(i for i in p.instructions if i.op == "div")
    assert div.line == 13 and div.inner[1] == 8
    store = next(i for i in p.instructions if i.op == "st")
    assert store.line == 14 and store.inner[1] == 14
    assert not any(i.op == "call" for i in p.instructions)


def test_two_calls_have_registers_and_locals_of_their_own() -> None:
    source = """
__device__ __noinline__ int pick(int x, int k) { int q[4] = {x, x + 1, x + 2, x + 3}; return q[k & 3]; }
extern "C" __global__ void k(int* a) { a[0] = pick(a[1], a[2]) + pick(a[3], a[4]); }"""
    p = parse(nvrtc(source)).program("k")
    assert len(p.local) == 2 and p.local_size == 32
    stores = [i for i in p.instructions if i.op == "st" and "local" in i.mods]
    assert len({i.operands[0].base.slot for i in stores}) == 2


def test_recursion_is_refused_with_the_line() -> None:
    source = """
__device__ __noinline__ int f(int n) { return n < 2 ? 1 : f(n - 1) + f(n - 2); }
extern "C" __global__ void k(int* a) {
    a[0] = f(a[1]);
}"""
    with pytest.raises(KernelFault, match="f calls itself") as info:
        parse(nvrtc(source)).program("k")
    assert info.value.kind == "unsupported" and info.value.line == 4


def test_short_names() -> None:
    assert short_name("k") == "k"
    assert short_name("_Z4tilePfS_i") == "tile"
    assert short_name("_ZN3abc4tileEPf") == "tile"
    assert short_name("_ZN8__main__5naiveB2v1B106cw51cXTLSUwv1sDUaE5ArrayIfLi2E1CE") == "naive"


def test_what_is_no_ptx_is_a_fault() -> None:
    bodies = (".reg .what %x;", ".local .align 3 .b8 q[4];", "bra NOWHERE;", "@%q1 bra NOWHERE;")
    for text in ("hello", ".version 9.0\n.visible .entry k(\n", *map(ptx_kernel, bodies)):
        with pytest.raises(KernelFault) as info:
            parse(text).program("k")
        assert info.value.kind == "unsupported" and "cannot read this PTX" in str(info.value)


def test_registers_read_and_written() -> None:
    def names(body: str) -> tuple[set, set]:
        defs, uses = defs_and_uses(first(body))
        return {r.name for r in defs}, {r.name for r in uses}

    assert names("@%p2 add.u32 %r1, %r2, 5;") == ({"%r1"}, {"%r2", "%p2"})
    assert names("st.global.v2.u32 [%rd1], {%r1, %r2};") == (set(), {"%rd1", "%r1", "%r2"})
    assert names("ld.global.v2.u32 {%r1, %r2}, [%rd1];") == ({"%r1", "%r2"}, {"%rd1"})
    assert names("shfl.sync.up.b32 %r1|%p1, %r2, 1, 0, -1;") == ({"%r1", "%p1"}, {"%r2"})
    assert names("setp.lt.and.u32 %p1|%p2, %r1, %r2, !%p3;") == ({"%p1", "%p2"}, {"%r1", "%r2", "%p3"})
    assert names("bar.sync %r1, %r2;") == (set(), {"%r1", "%r2"})
    assert names("bar.red.popc.u32 %r1, 0, %p1;") == ({"%r1"}, {"%p1"})
    assert names("atom.global.add.u32 %r1, [%rd1], %r2;") == ({"%r1"}, {"%rd1", "%r2"})
    assert names("red.global.add.u32 [%rd1], %r2;") == (set(), {"%rd1", "%r2"})
    assert names("add.cc.u32 %r1, %r2, %r3;") == ({"%r1", "%cc"}, {"%r2", "%r3"})
    assert names("addc.u32 %r1, %r2, %r3;") == ({"%r1"}, {"%r2", "%r3", "%cc"})


def test_liveness_over_a_loop() -> None:
    p = program("""
    mov.u32 %r1, 0;
    mov.u32 %r2, 5;
    mov.u32 %r3, 9;
TOP:
    add.u32 %r1, %r1, %r2;
    mov.u32 %r4, %r1;
    setp.lt.u32 %p1, %r1, 100;
    @%p1 bra TOP;
    st.global.u32 [%rd0], %r3;
    """)
    live = liveness(p.instructions)
    slot = {r.name: r.slot for r in p.registers}

    def at(pc: int) -> set[str]:
        return {n for n, s in slot.items() if live[pc] >> s & 1}

    assert at(5) == {"%r1", "%r2", "%r3", "%rd0"}
    assert at(9) == {"%r3", "%rd0"}
    assert at(10) == set()


def test_a_guarded_write_keeps_the_register_alive() -> None:
    p = program("""
    mov.u32 %r1, 0;
    @%p1 mov.u32 %r1, 5;
    st.global.u32 [%rd0], %r1;
    """)
    live = liveness(p.instructions)
    register = next(r for r in p.registers if r.name == "%r1")
    assert isinstance(register, Reg) and live[3] >> register.slot & 1


BROKEN = """
extern "C" __global__ void k(float4* a, int n) {
    __shared__ float s[32];
    s[threadIdx.x] = a[threadIdx.x].x + n;
    __syncthreads();
    if (n > 3) atomicAdd(&a[0].y, s[31 - threadIdx.x]);
    a[threadIdx.x].z = __shfl_xor_sync(-1, s[threadIdx.x], 1);
}"""


@given(st.data())
@settings(max_examples=300)
def test_mangled_ptx_is_read_or_refused(data: st.DataObject) -> None:
    """PTX is untrusted where it comes from a submission: never anything but a KernelFault."""
    text = nvrtc(BROKEN)
    start = data.draw(st.integers(text.index(".version"), len(text) - 2))
    end = min(len(text), start + data.draw(st.integers(0, 30)))
    text = text[:start] + data.draw(st.text("{}[]();,.%@!|_ab012x:+-\n\t", max_size=6)) + text[end:]
    try:
        module = parse(text)
        for entry in module.entries:
            for step in Compiler(module.program(entry)).run().steps:
                step.compiler.made(step.pc)
    except KernelFault as fault:
        assert fault.kind in ("unsupported", "launch")
