"""Kernels of one instruction each, for the emulator and for an H200: `python tests/tensor_cases.py OUT` records one.

A case is a PTX kernel `k(out, in0, in1, ...)` with its inputs, which come from a hash of their names and are not
kept. Its recorded result is the bytes of `out`.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import sys
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

SIZES = {"16": 2, "x2": 4, "32": 4, "64": 8}


@dataclass(frozen=True)
class Case:
    """One launch of one block; `out` is the number of bytes written, `counted` whether Nsight Compute reads it."""

    name: str
    ptx: str
    inputs: tuple[np.ndarray, ...]
    out: int
    threads: int = 32


# ---------------------------------------------------------------------------- inputs


def hashed(seed: str, count: int) -> np.ndarray:
    """uint64 numbers that depend on nothing but the seed (splitmix64)."""
    start = zlib.crc32(seed.encode())
    with np.errstate(over="ignore"):
        z = (np.arange(count, dtype=np.uint64) + np.uint64(start + 1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


EDGES = {
    "f16": [0, 0x8000, 0x3C00, 0xBE00, 1, 0x83FF, 0x7BFF, 0xFC00, 0x7C00, 0x7D01, 0x3C01],
    "bf16": [0, 0x8000, 0x3F80, 0xBFC0, 1, 0x807F, 0x7F7F, 0xFF80, 0x7F80, 0x7F91, 0x3F81],
    "f32": [0, 1 << 31, 0x3F800000, 0xBFC00000, 1, 0x807FFFFF, 0x7F7FFFFF, 0xFF800000, 0x7F800000, 0x7F800123,
            0x477FF000, 0x33000001, 0x3F808000, 0x3F7F8000, 0x38FFFFFF],
    "f64": [0, 1 << 63, 0x3FF << 52, 0xBFF8 << 48, 1, 0x800FFFFFFFFFFFFF, 0x7FEFFFFFFFFFFFFF, 0xFFF << 52, 0x7FF << 52,
            (0x7FF << 52) + 5],
    "int": [0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2049, 4097, 65519,
            65520],
}  # fmt: skip
FORMAT = {"f16": (16, 10, 15), "bf16": (16, 7, 127), "f32": (32, 23, 127), "f64": (64, 52, 1023)}  # fmt: skip


def values(kind: str, seed: str, count: int, which: int = 0) -> np.ndarray:
    """Bit patterns of a PTX type: edge values against each other, then any bits, then numbers near 1."""
    if kind.endswith("x2"):
        base = kind[:-2]
        parts = [values(base, seed + h, count, which).astype(np.uint32) for h in ("l", "h")]
        parts[1] = np.roll(parts[1], 5 + which)
        return parts[0] | parts[1] << np.uint32(16)
    bits = 8 * width(kind)
    dtype = np.dtype(f"u{bits // 8}")
    edges = EDGES.get(kind, EDGES["int"])
    raw = hashed(seed, count)
    n = min(len(edges) ** 2, count // 2)
    out = raw & np.uint64((1 << bits) - 1)
    if kind in FORMAT:
        bits, mantissa, bias = FORMAT[kind]
        exponent = bias - 6 + (raw >> np.uint64(50)) % np.uint64(13)
        near = raw & np.uint64(1 << (bits - 1) | (1 << mantissa) - 1) | exponent << np.uint64(mantissa)
        out[n::2] = near[n::2]
    k = np.arange(n)
    k = k // len(edges) if which == 1 else k if which == 0 else k * 7 // 3
    out[:n] = np.array([edges[i % len(edges)] for i in k], np.uint64) & np.uint64((1 << bits) - 1)
    return out.astype(dtype)


def width(kind: str) -> int:
    return next(n for end, n in SIZES.items() if kind.endswith(end))


# ---------------------------------------------------------------------------- arithmetic

THREADS = 256


def _register(kind: str) -> str:
    if kind in ("f32", "f64"):
        return {"f32": "%f", "f64": "%d"}[kind]
    return {2: "%h", 4: "%r", 8: "%l"}[width(kind)]


HEAD = """.version 9.0
.target sm_90
.address_size 64
.visible .entry k({params})
{{
    .reg .pred %p<4>;
    .reg .b16 %h<40>;
    .reg .b32 %r<80>;
    .reg .f32 %f<40>;
    .reg .b64 %l<40>;
    .reg .f64 %d<40>;
    .reg .b32 %t<40>;
    .reg .b64 %a<40>;
"""


def kernel(inputs: int, body: str) -> str:
    """A kernel whose %a0 is `out` and %a1... its inputs, %t0 the thread's number."""
    names = [f"p{n}" for n in range(inputs + 1)]
    text = HEAD.format(params=", ".join(f".param .u64 {n}" for n in names))
    text += "".join(f"    ld.param.u64 %a{n}, [{name}];\n" for n, name in enumerate(names))
    return text + f"    mov.u32 %t0, %tid.x;\n{body}    ret;\n}}\n"


def _at(to: str, base: str, size: int) -> str:
    return f"    mad.wide.u32 {to}, %t0, {size}, {base};\n"


def arithmetic(text: str, sources: tuple[str, ...], result: str) -> Case:
    """`text` on 256 threads; a result of type pred is stored as 0 or 1, two of them (pred2) as bits 0 and 1."""
    body, names = "", []
    for n, kind in enumerate(sources):
        register = f"{_register(kind)}{n + 1}"
        body += _at("%a10", f"%a{n + 1}", width(kind)) + f"    ld.global.b{8 * width(kind)} {register}, [%a10];\n"
        names.append(register)
    if result.startswith("pred"):
        pair = result == "pred2"
        body += f"    {text} {'%p1|%p2' if pair else '%p1'}, {', '.join(names)};\n    selp.b32 %r0, 1, 0, %p1;\n"
        if pair:
            body += "    selp.b32 %r9, 2, 0, %p2;\n    or.b32 %r0, %r0, %r9;\n"
        result = "u32"
        register = "%r0"
    else:
        register = f"{_register(result)}0"
        body += f"    {text} {register}, {', '.join(names)};\n"
    size = width(result)
    body += _at("%a10", "%a0", size) + f"    st.global.b{8 * size} [%a10], {register};\n"
    inputs = tuple(values(kind, f"{text}{n}", THREADS, n) for n, kind in enumerate(sources))
    return Case(text, kernel(len(sources), body), inputs, size * THREADS, THREADS)


def _arithmetic() -> list[Case]:
    cases = []

    def add(names: str, sources: str, result: str) -> None:
        cases.extend(arithmetic(name, tuple(sources.split()), result) for name in names.split())

    for kind in ("f16", "f16x2", "bf16", "bf16x2"):
        one = kind in ("f16", "f16x2")
        two, three = f"{kind} {kind}", f"{kind} {kind} {kind}"
        for name in ("add", "sub", "mul"):
            add(f"{name}.{kind} {name}.rn.{kind}", two, kind)
            if one:
                add(f"{name}.sat.{kind} {name}.ftz.{kind} {name}.rn.ftz.sat.{kind}", two, kind)
        add(f"fma.rn.{kind} fma.rn.relu.{kind}", three, kind)
        if one:
            add(f"fma.rn.sat.{kind} fma.rn.ftz.{kind} fma.rn.ftz.relu.{kind} fma.rn.ftz.sat.{kind}", three, kind)
            add(f"neg.ftz.{kind} abs.ftz.{kind}", kind, kind)
            add(f"min.ftz.{kind} max.ftz.NaN.{kind}", two, kind)
            add(f"ex2.approx.{kind}", kind, kind)
        else:
            add(f"ex2.approx.ftz.{kind}", kind, kind)
        add(f"neg.{kind} abs.{kind} tanh.approx.{kind}", kind, kind)
        for name in ("min", "max"):
            add(f"{name}.{kind} {name}.NaN.{kind} {name}.xorsign.abs.{kind}", two, kind)
        for test in ("eq", "ne", "lt", "gtu", "neu", "nan", "num"):
            add(f"setp.{test}.{kind}", two, "pred2" if kind.endswith("x2") else "pred")
            add(f"set.{test}.{kind}.{kind}", two, kind)
        if one:
            add(f"setp.eq.ftz.{kind}", two, "pred2" if kind.endswith("x2") else "pred")
    for kind in ("f16", "bf16"):
        add(f"set.lt.u32.{kind}x2" if kind == "f16" else f"set.lt.u32.{kind}x2", f"{kind}x2 {kind}x2", "u32")
        add(f"cvt.f32.{kind}", kind, "f32")
        for mode in ("rn", "rz", "rm", "rp"):
            if kind == "f16" or mode in ("rn", "rz"):
                add(f"cvt.{mode}.{kind}.f32", "f32", kind)
            for source in ("u16", "s16", "u32", "s32", "u64", "s64"):
                add(f"cvt.{mode}.{kind}.{source}", source, kind)
        add(f"cvt.rn.{kind}.f64", "f64", kind)
        add(f"cvt.f64.{kind}", kind, "f64")
        for mode in ("rni", "rzi", "rmi", "rpi"):
            add(f"cvt.{mode}.{kind}.{kind}", kind, kind)
            for result in ("u16", "s16", "u32", "s32", "u64", "s64"):
                add(f"cvt.{mode}.{result}.{kind}", kind, result)
        for mode in ("rn", "rz"):
            add(f"cvt.{mode}.relu.{kind}.f32", "f32", kind)
            add(f"cvt.{mode}.{kind}x2.f32 cvt.{mode}.relu.{kind}x2.f32", "f32 f32", f"{kind}x2")
    add("cvt.rn.bf16.f16", "f16", "bf16")
    add("cvt.rn.f16.bf16", "bf16", "f16")
    add("cvt.rn.sat.f16.f32", "f32", "f16")
    add("cvt.rna.tf32.f32 cvt.rn.tf32.f32 cvt.rz.tf32.f32 cvt.rn.relu.tf32.f32", "f32", "u32")
    for kind in ("f32", "f64"):
        for mode in ("rn", "rz", "rm", "rp"):
            add(f"div.{mode}.{kind}", f"{kind} {kind}", kind)
            add(f"sqrt.{mode}.{kind} rcp.{mode}.{kind}", kind, kind)
    add("div.rz.ftz.f32", "f32 f32", "f32")
    add("sqrt.rp.ftz.f32 rcp.rm.ftz.f32", "f32", "f32")
    add("sqrt.approx.f32 rsqrt.approx.f32 rcp.approx.ftz.f32 tanh.approx.f32 ex2.approx.ftz.f32", "f32", "f32")
    add("rcp.approx.ftz.f64 rsqrt.approx.f64 rsqrt.approx.ftz.f64", "f64", "f64")
    add("min.xorsign.abs.f32 max.NaN.xorsign.abs.f32", "f32 f32", "f32")
    for signs in ("u32.u32", "s32.s32", "u32.s32", "s32.u32"):
        add(f"dp4a.{signs} dp2a.lo.{signs} dp2a.hi.{signs}", "u32 u32 u32", "u32")
    add("min.s16x2 max.u16x2 add.u16x2 add.s16x2 min.relu.s16x2 max.relu.s16x2", "u32 u32", "u32")
    add("min.relu.s32 max.relu.s32", "u32 u32", "u32")
    return cases


# ---------------------------------------------------------------------------- atomics


def _atomics() -> list[Case]:
    """Reductions, one element per thread, and their vectors."""
    cases = []
    for kind in ("f16", "bf16", "f16x2", "bf16x2"):
        size = width(kind)
        for how, lanes in (("add.noftz", 1), ("add.noftz", 2), ("add.noftz", 4), ("min.noftz", 2), ("max.noftz", 2)):
            vector = f".v{lanes}" if lanes > 1 else ""
            name = f"red.global.{how}{vector}.{kind}"
            registers = [f"{_register(kind)}{n}" for n in range(lanes)]
            body = ""
            for base in ("%a1", "%a2"):
                body += _at("%a10", base, size * lanes)
                for n, r in enumerate(registers):
                    body += f"    ld.global.b{8 * size} {r}, [%a10+{n * size}];\n"
                if base == "%a1":
                    body += _at("%a11", "%a0", size * lanes)
                    for n, r in enumerate(registers):
                        body += f"    st.global.b{8 * size} [%a11+{n * size}], {r};\n"
            operand = f"{{{', '.join(registers)}}}" if lanes > 1 else registers[0]
            body += f"    {name} [%a11], {operand};\n"
            inputs = tuple(values(kind, f"{name}{n}", 128 * lanes, n) for n in (0, 1))
            cases.append(Case(name, kernel(2, body), inputs, 128 * lanes * size, 128))
    return cases


# ---------------------------------------------------------------------------- tensor cores

WARPS = 4
MMA = [  # shape, types of d a b c, registers of a b c
    *(("m16n8k16", f"{d}.{t}.{t}.{d}", (4, 2, 2 if d == "f16" else 4))
      for d, t in (("f32", "f16"), ("f16", "f16"), ("f32", "bf16"))),
    *(("m16n8k8", f"{d}.{t}.{t}.{d}", (2, 1, 2 if d == "f16" else 4))
      for d, t in (("f32", "f16"), ("f16", "f16"), ("f32", "bf16"))),
    ("m16n8k4", "f32.tf32.tf32.f32", (2, 1, 4)),
    ("m16n8k8", "f32.tf32.tf32.f32", (4, 2, 4)),
    *((shape, f"s32.{a}.{b}.s32", n)
      for shape, n in (("m8n8k16", (1, 1, 2)), ("m16n8k16", (2, 1, 4)), ("m16n8k32", (4, 2, 4)))
      for a, b in (("s8", "s8"), ("u8", "u8"), ("s8", "u8"), ("u8", "s8"))),
    ("m16n8k32", "satfinite.s32.s8.s8.s32", (4, 2, 4)),
    ("m8n8k4", "f64.f64.f64.f64", (1, 1, 2)),
    ("m16n8k4", "f64.f64.f64.f64", (2, 1, 4)),
    ("m16n8k8", "f64.f64.f64.f64", (4, 2, 4)),
    ("m16n8k16", "f64.f64.f64.f64", (8, 4, 4)),
]  # fmt: skip


def numbers(kind: str, mode: str, seed: str, count: int) -> np.ndarray:
    """uint32 or uint64 registers full of numbers: "small" integers, "normal" ones, or of "wide" exponents."""
    per = {"f16": 2, "bf16": 2, "s8": 4, "u8": 4}.get(kind, 1)
    raw = hashed(seed, count * per)
    if kind in ("s8", "u8", "s32"):
        if kind == "s32":
            return (raw.astype(np.uint32).view(np.int32) >> 4).view(np.uint32) if mode != "wide" else raw.astype("u4")
        return raw.astype(np.uint8).view(np.uint32)
    small = (raw % np.uint64(9)).astype(np.float64) - 4
    if mode == "small":
        x = small
    else:
        spread = 7 if mode == "normal" else 21
        x = 1 + (raw & np.uint64(0xFFFFFFF)).astype(np.float64) / 2**28
        x *= 2.0 ** ((raw >> np.uint64(30)) % np.uint64(spread)).astype(np.float64) * 2.0 ** (-spread // 2)
        x *= 1 - 2.0 * (raw >> np.uint64(63)).astype(np.float64)
    if kind == "f64":
        return x.view(np.uint64)
    if kind == "f16":
        return x.astype(np.float16).view(np.uint32)
    x = x.astype(np.float32).view(np.uint32)
    if kind == "bf16":
        x = x >> np.uint32(16)
        return x[::2] | x[1::2] << np.uint32(16)
    return x


def _fragment(name: str, count: int, kind: str, base: str) -> tuple[str, str]:
    """Loads `count` registers per thread; their list and the code."""
    r = {"f64": "%d", "f32": "%f"}.get(kind, "%r")
    first = {"a": 1, "b": 12, "c": 22}[name]
    size = 8 if kind == "f64" else 4
    registers = [f"{r}{first + n}" for n in range(count)]
    body = _at("%a10", base, size * count)
    body += "".join(f"    ld.global.b{8 * size} {x}, [%a10+{size * n}];\n" for n, x in enumerate(registers))
    return f"{{{', '.join(registers)}}}", body


def _keep(registers: str, size: int) -> str:
    names = registers.strip("{}").split(", ")
    body = _at("%a10", "%a0", size * len(names))
    return body + "".join(f"    st.global.b{8 * size} [%a10+{size * n}], {x};\n" for n, x in enumerate(names))


def _mma() -> list[Case]:
    cases = []
    for shape, types, (na, nb, nc) in MMA:
        *_, d, a, b, c = types.split(".")
        modes = ("small", "wide") if a in ("s8", "u8") else ("small", "normal", "wide")
        (ra, one), (rb, two), (rc, three) = (
            _fragment(n, k, t, f"%a{i}") for n, k, t, i in (("a", na, a, 1), ("b", nb, b, 2), ("c", nc, c, 3))
        )
        name = f"mma.sync.aligned.{shape}.row.col.{types}"
        body = one + two + three + f"    {name} {rc}, {ra}, {rb}, {rc};\n" + _keep(rc, 8 if d == "f64" else 4)
        for mode in modes:
            inputs = tuple(
                numbers(t, mode, f"{name}{mode}{n}", 32 * WARPS * k)
                for n, k, t in (("a", na, a), ("b", nb, b), ("c", nc, c))
            )
            out = 32 * WARPS * nc * (8 if d == "f64" else 4)
            cases.append(Case(f"{name} {mode}", kernel(3, body), inputs, out, 32 * WARPS))
    return cases


SHAPES = ((16, 16, 16), (8, 32, 16), (32, 8, 16))
WMMA = [  # type of a and b, shape, registers of a and b
    *(("f16", shape, (8, 8)) for shape in SHAPES),
    *(("bf16", shape, n) for shape, n in zip(SHAPES, ((4, 4), (2, 8), (8, 2)), strict=True)),
    *((kind, shape, n) for kind in ("s8", "u8") for shape, n in zip(SHAPES, ((2, 2), (1, 4), (4, 1)), strict=True)),
    ("tf32", (16, 16, 8), (4, 4)),
    ("f64", (8, 8, 4), (1, 1)),
]
ELEMENT = {"f16": 2, "bf16": 2, "s8": 1, "u8": 1, "tf32": 4, "f64": 8, "f32": 4, "s32": 4}


def accumulators(kind: str) -> tuple[str, ...]:
    return {"f16": ("f32", "f16"), "s8": ("s32",), "u8": ("s32",), "f64": ("f64",)}.get(kind, ("f32",))


def matrices() -> list[tuple[str, tuple[int, int, int], str, tuple[int, int], int]]:
    """Fragments: (matrix, shape, type, (rows, columns), registers), each once."""
    found = []
    for kind, (m, n, k), (na, nb) in WMMA:
        found += [("a", (m, n, k), kind, (m, k), na), ("b", (m, n, k), kind, (k, n), nb)]
        for c in accumulators(kind):
            found.append(("c", (m, n, k), c, (m, n), 4 if c == "f16" else 2 if c == "f64" else 8))
    return list(dict.fromkeys(found))


def _wmma_moves() -> list[Case]:
    """Loads of matrices that hold their elements' numbers, and stores of registers that hold theirs."""
    cases = []
    for matrix, (m, n, k), kind, (rows, columns), count in matrices():
        size = ELEMENT[kind]
        for layout in ("row", "col"):
            ld = columns if layout == "row" else rows
            shape = f"m{m}n{n}k{k}"
            r = {"f64": "%d", "f32": "%f"}.get(kind, "%r")
            registers = "{" + ", ".join(f"{r}{i + 1}" for i in range(count)) + "}"
            wide = 8 if kind == "f64" else 4
            name = f"wmma.load.{matrix}.sync.aligned.{layout}.{shape}.global.{kind}"
            body = f"    {name} {registers}, [%a1], {ld};\n" + _keep(registers, wide)
            number = np.arange(rows * columns)
            for byte in (0, 1) if size == 1 else (0,):
                memory = ((number >> 8 * byte).astype(f"u{size}"),)
                suffix = " high" if byte else ""
                cases.append(Case(name + suffix, kernel(1, body), memory, 32 * count * wide))
            if matrix == "c":
                name = name.replace("load.c", "store.d")
                _, load = _fragment("a", count, kind, "%a1")
                body = load + f"    {name} [%a0], {registers}, {ld};\n"
                memory = (np.arange(32 * count * wide // size).astype(f"u{size}"),)
                cases.append(Case(name, kernel(1, body), memory, rows * columns * size))
    return cases


def _wmma_products() -> list[Case]:
    cases = []
    for kind, (m, n, k), (na, nb) in WMMA:
        shape = f"m{m}n{n}k{k}"
        for c in accumulators(kind):
            nc = 4 if c == "f16" else 2 if c == "f64" else 8
            types = f"{c}.{c}" if kind == "f16" else f"{c}.{kind}.{kind}.{c}"
            r = {"f64": "%d", "f32": "%f"}
            ra, rb, rc = (
                "{" + ", ".join(f"{r.get(t, '%r')}{first + i}" for i in range(count)) + "}"
                for t, first, count in ((kind, 1, na), (kind, 12, nb), (c, 22, nc))
            )
            lines = [
                f"wmma.load.a.sync.aligned.row.{shape}.global.{kind} {ra}, [%a1], {k};",
                f"wmma.load.b.sync.aligned.col.{shape}.global.{kind} {rb}, [%a2], {k};",
                f"wmma.load.c.sync.aligned.row.{shape}.global.{c} {rc}, [%a3], {n};",
                f"wmma.mma.sync.aligned.row.col.{shape}.{types} {rc}, {ra}, {rb}, {rc};",
                f"wmma.store.d.sync.aligned.row.{shape}.global.{c} [%a0], {rc}, {n};",
            ]
            body = "".join(f"    {line}\n" for line in lines)
            for mode in ("small", "normal"):
                name = f"wmma.mma.sync.aligned.row.col.{shape}.{types} {mode}"
                inputs = tuple(
                    numbers(t, mode, name + x, count * ELEMENT[t] // (8 if t == "f64" else 4))
                    for x, t, count in (("a", kind, m * k), ("b", kind, k * n), ("c", c, m * n))
                )
                cases.append(Case(name, kernel(3, body), inputs, m * n * ELEMENT[c]))
    return cases


def _matrix_moves() -> list[Case]:
    """ldmatrix and stmatrix at any rows of 4 KB, and movmatrix."""
    cases = []
    fill = "    .shared .align 128 .b8 tile[4096];\n"
    fill += "".join(
        f"    ld.global.b64 %l{n}, [%a10+{8 * n}];\n" for n in range(16)
    )  # 32 threads bring 128 bytes each
    put = "    mov.u32 %t1, tile;\n    mad.lo.u32 %t2, %t0, 128, %t1;\n"
    put += "".join(f"    st.shared.b64 [%t2+{8 * n}], %l{n};\n" for n in range(16)) + "    bar.warp.sync -1;\n"
    get = "    bar.warp.sync -1;\n"
    get += "".join(
        f"    ld.shared.b64 %l{n}, [%t2+{8 * n}];\n    st.global.b64 [%a12+{8 * n}], %l{n};\n" for n in range(16)
    )
    address = _at("%a11", "%a2", 4) + "    ld.global.b32 %t3, [%a11];\n    add.u32 %t3, %t3, %t1;\n"
    memory = (np.arange(2048) * 3 + 1).astype(np.uint16)
    rows = {"": (hashed("rows", 32) % np.uint64(256) * np.uint64(16)).astype(np.uint32)}
    rows["16"], rows["32"], rows["128"], rows["80"] = (np.arange(32, dtype=np.uint32) * s for s in (16, 32, 128, 80))
    for count in (1, 2, 4):
        registers = "{" + ", ".join(f"%r{n}" for n in range(count)) + "}"
        for how in ("", ".trans"):
            for stride, row in rows.items():
                label = f" stride {stride}" if stride else ""
                name = f"ldmatrix.sync.aligned.m8n8.x{count}{how}.shared.b16"
                body = _at("%a10", "%a1", 128) + fill + put + address
                body += f"    {name} {registers}, [%t3];\n" + _keep(registers, 4)
                cases.append(Case(name + label, kernel(2, body), (memory, row), 128 * count))
                name = f"stmatrix.sync.aligned.m8n8.x{count}{how}.shared.b16"
                _, load = _fragment("b", count, "u32", "%a3")
                given = load.replace("%a10", "%a13").replace("%r12", "%r0").replace("%r13", "%r1")
                given = given.replace("%r14", "%r2").replace("%r15", "%r3")
                distinct = hashed("st", 32) % np.uint64(2)
                row = row if stride else (np.arange(32) * 128 + 16 * distinct.astype(int)).astype(np.uint32)
                body = _at("%a10", "%a1", 128) + fill + put + address + given
                body += f"    {name} [%t3], {registers};\n" + _at("%a12", "%a0", 128) + get
                values_ = hashed("given", 32 * count).astype(np.uint32)
                cases.append(Case(name + label, kernel(3, body), (memory, row, values_), 4096))
    body = _fragment("a", 1, "u32", "%a1")[1] + "    movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;\n"
    body += _keep("{%r0}", 4)
    cases.append(Case("movmatrix.sync.aligned.m8n8.trans.b16", kernel(1, body), (memory[:64],), 128))
    return cases


@cache
def cases() -> dict[str, dict[str, Case]]:
    """Cases by name, in the groups of their files."""
    groups = {
        "arithmetic": _arithmetic() + _atomics(),
        "tensor": _mma() + _wmma_products() + _matrix_moves(),
        "wmma": _wmma_moves(),
    }
    return {group: {c.name: c for c in made} for group, made in groups.items()}


def pack(data: np.ndarray) -> str:
    return base64.b85encode(zlib.compress(data.tobytes(), 9)).decode()


def unpack(text: str) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b85decode(text)), np.uint8)


# ---------------------------------------------------------------------------- on a GPU

# What Nsight Compute reads of the cases whose names match.
COUNTED = r"^(ldmatrix|stmatrix).*stride|small$|^wmma.(load|store).*aligned.row[^ ]*$"
METRICS = (
    *(f"l1tex__data_{what}_mem_shared_op_{kind}.sum" for kind in ("ld", "st")
      for what in ("pipe_lsu_wavefronts", "bank_conflicts_pipe_lsu")),
    *(f"l1tex__t_{what}_pipe_lsu_mem_global_op_{kind}.sum" for kind in ("ld", "st")
      for what in ("requests", "sectors")),
    *(f"sm__ops_path_tensor_src_{kind}.sum" for kind in ("bf16_dst_fp32", "fp16", "tf32_dst_fp32", "int8", "fp64")),
)  # fmt: skip


def on_gpu(case: Case) -> np.ndarray:
    """The bytes that the case writes on this machine's GPU."""
    from labkit.kernels import gpu

    gpu.current_context()
    out = np.full(case.out, 0xEE, np.uint8)
    bases = []
    for data in (out, *case.inputs):
        base = int(gpu.call("cuMemAlloc", max(data.nbytes, 16)))
        gpu.call("cuMemcpyHtoD", base, np.ascontiguousarray(data).ctypes.data, data.nbytes)
        bases.append(base)
    params = [struct.pack("<Q", b) for b in bases]
    gpu.launch_code(case.ptx.encode(), "k", (1, 1, 1), (case.threads, 1, 1), params)
    gpu.call("cuCtxSynchronize")
    gpu.call("cuMemcpyDtoH", out.ctypes.data, bases[0], out.nbytes)
    for base in bases:
        gpu.call("cuMemFree", base)
    return out


def provenance() -> dict:
    import datetime
    import subprocess

    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu, driver = subprocess.run(query, capture_output=True, text=True).stdout.strip().split(", ")
    return {
        "gpu": gpu,
        "driver": driver,
        "date": datetime.date.today().isoformat(),
        "command": "python tests/tensor_cases.py OUT",
    }


def layouts(results: dict[str, str]) -> dict[str, list[list[int]]]:
    """For each fragment, by lane and in the order of its registers, the elements (row * columns + column) they hold.

    `results` are the bytes that the "wmma" cases wrote. Loads from row- and column-major matrices, and stores, must
    agree.
    """
    found = {}
    for matrix, (m, n, k), kind, (rows, columns), count in matrices():
        size, shape = ELEMENT[kind], f"m{m}n{n}k{k}"
        per = max(4, size) * count // size
        held = []
        for layout in ("row", "col"):
            name = f"wmma.load.{matrix}.sync.aligned.{layout}.{shape}.global.{kind}"
            number = unpack(results[name]).view(f"u{size}").astype(int).reshape(32, per)
            if size == 1:
                number += 256 * unpack(results[name + " high"]).astype(int).reshape(32, per)
            held.append(number if layout == "row" else number % rows * columns + number // rows)
            if matrix == "c":
                name = name.replace("load.c", "store.d")
                number = unpack(results[name]).view(f"u{size}").astype(int)  # by element, who stored it
                element = np.arange(rows * columns)
                if layout == "col":
                    element = element % rows * columns + element // rows
                stored = np.empty(32 * per, int)
                stored[number] = element
                held.append(stored.reshape(32, per))
        assert all((h == held[0]).all() for h in held), name
        found[f"{matrix} {shape} {kind}"] = held[0].tolist()
    return found


def main(folder: str, only: str = "") -> None:
    """Record every case, or launch those whose names match `only` and record nothing (for Nsight Compute)."""
    if only:
        for made in cases().values():
            for name, case in made.items():
                if re.search(only, name):
                    print(name, flush=True)
                    on_gpu(case)
        return
    where = provenance()
    for group, made in cases().items():
        results = {}
        for name, case in made.items():
            try:
                results[name] = pack(on_gpu(case))
            except Exception as error:
                print(name, "failed:", error)
        print(group, len(results), "of", len(made))
        if group == "wmma":
            keep(Path(folder) / "wmma_layouts.json", where, "layouts", layouts(results))
        else:
            keep(Path(folder) / f"{group}_h200.json", where, "results", results)


def keep(path: Path, where: dict, title: str, table: dict) -> None:
    """Write a table as JSON, an entry per line."""
    lines = ",\n".join(f"  {json.dumps(n)}: {json.dumps(r, separators=(',', ':'))}" for n, r in table.items())
    path.write_text(f'{{"provenance": {json.dumps(where)},\n "{title}": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main(*sys.argv[1:])
