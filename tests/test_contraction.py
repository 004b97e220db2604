"""Products and sums that ptxas fuses: the same expressions in the emulator's program and in the machine code."""

from __future__ import annotations

import random
import re
from functools import cache

import numpy as np
import pytest

from labkit.emulator import sass
from labkit.emulator.counters import Counters
from labkit.emulator.engine import Emulation
from labkit.emulator.launch import Launch, Pointer
from labkit.emulator.ptx import parse

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
INPUTS, WIDTH = 6, {"f32": 4, "f64": 8}
SIZES = {**WIDTH, "f16": 2, "bf16": 2, "f16x2": 4}
OPS = ("mul", "mul", "mul", "add", "add", "sub", "neg", "fma.rn", "mul.rn", "add.rn")

CASES = {  # a body, and the machine code's operations in it
    "sum": ("mul.f32 %t0,%a0,%a1; add.f32 %t1,%t0,%a2;", "FFMA"),
    "difference": ("mul.f32 %t0,%a0,%a1; sub.f32 %t1,%t0,%a2;", "FFMA"),
    "taken from": ("mul.f32 %t0,%a0,%a1; sub.f32 %t1,%a2,%t0;", "FFMA"),
    "turned": ("mul.f32 %t0,%a0,%a1; neg.f32 %t2,%t0; sub.f32 %t1,%a2,%t2;", "FFMA"),
    "first of two": ("mul.f32 %t0,%a0,%a1; mul.f32 %t2,%a2,%a3; sub.f32 %t1,%t2,%t0;", "FFMA FMUL"),
    "the one added once": (
        "mul.f32 %t0,%a0,%a1; mul.f32 %t2,%a2,%a3; add.f32 %t3,%t2,%t0; add.f32 %t4,%t2,%a4; mul.rn.f32 %t1,%t3,%t4;",
        "FADD FFMA FMUL FMUL",
    ),
    "added twice": ("mul.f32 %t0,%a0,%a1; add.f32 %t2,%t0,%a2; add.f32 %t3,%t0,%a3; max.f32 %t1,%t2,%t3;", "FFMA FFMA"),
    "wanted itself": ("mul.f32 %t0,%a0,%a1; add.f32 %t2,%t0,%a2; max.f32 %t1,%t0,%t2;", "FADD FMUL"),
    "twice in one": ("mul.f32 %t0,%a0,%a1; add.f32 %t1,%t0,%t0;", "FADD FMUL"),
    "product rounded": ("mul.rn.f32 %t0,%a0,%a1; add.f32 %t1,%t0,%a2;", "FADD FMUL"),
    "sum rounded": ("mul.f32 %t0,%a0,%a1; add.rn.f32 %t1,%t0,%a2;", "FADD FMUL"),
    "flushed and not": ("mul.ftz.f32 %t0,%a0,%a1; add.f32 %t1,%t0,%a2;", "FADD FMUL"),
    "kept in bounds": ("mul.f32 %t0,%a0,%a1; add.sat.f32 %t1,%t0,%a2;", "FFMA"),
    "across a barrier": ("mul.f32 %t0,%a0,%a1; bar.sync 0; add.f32 %t1,%t0,%a2;", "FFMA"),
    "in another block": (
        "mul.f32 %t0,%a0,%a1; mov.f32 %t1,%a3; setp.gt.f32 %p0,%a2,0f00000000; @%p0 bra L1; add.f32 %t1,%t0,%a2; L1:",
        "FADD FMUL",
    ),
}  # fmt: skip


def kernel(name, body, outputs=("%t1",), kind="f32"):
    size = SIZES[kind]
    bits = {"f16": "b16", "bf16": "b16", "f16x2": "b32"}.get(kind, kind)
    loads = "".join(f"ld.global.{bits} %a{i},[%rd2+{i * size}];\n" for i in range(INPUTS))
    stores = "".join(f"st.global.{bits} [%rd1+{i * size}],{o};\n" for i, o in enumerate(outputs))
    return (
        f".visible .entry {name}(.param .u64 {name}_0,.param .u64 {name}_1){{\n.reg .{bits} %a<8>; .reg .{bits} %t<30>;"
        f"\n.reg .b64 %rd<4>; .reg .pred %p<2>;\nld.param.u64 %rd1,[{name}_0]; ld.param.u64 %rd2,[{name}_1];\n"
        "cvta.to.global.u64 %rd1,%rd1; cvta.to.global.u64 %rd2,%rd2;\n"
        f"{loads}{body}\n{stores}ret;}}\n"
    )


@pytest.mark.parametrize("case", CASES)
def test_the_programs_operations_are_the_machine_codes(case):
    text = HEAD + kernel("k", CASES[case][0])
    found = sorted(s.op.split(".")[0] for s in sass.machine_code(text, "k").code)
    assert " ".join(op for op in found if op in ("FADD", "FMUL", "FFMA")) == CASES[case][1]
    program = parse(text).program("k")
    mine = sorted("F" + {"sub": "add"}.get(i.op, i.op).upper() for i in program.instructions if i.type == "f32")
    assert " ".join(op for op in mine if op in ("FADD", "FMUL", "FFMA")) == CASES[case][1]
    assert [i.index for i in program.instructions] == list(range(len(program.instructions)))
    plan = sass.memory_plan(Launch(text, "k", (1, 1, 1), (1, 1, 1), ()), program)
    assert case == "in another block" or not [name for name in plan.bounds if "ffma" in name or "fmul" in name]


# a * b is a little less than 1, and 1 where it is rounded: what is left of a difference tells the two apart.
ROUNDED_ONCE = {
    "f32": (2.0**-13, np.float32), "f64": (2.0**-27, np.float64),
    "f16": (2.0**-6, np.float16), "f16x2": (2.0**-6, np.float16), "bf16": (2.0**-5, "bf16"),
}  # fmt: skip
BODIES = {
    "mul.K %t0,%a0,%a1; sub.K %t1,%t0,%a2;": -1,
    "mul.K %t0,%a0,%a1; sub.K %t1,%a2,%t0;": 1,
    "mul.K %t0,%a0,%a1; add.K %t1,%a3,%t0;": -1,
    "mul.K %t0,%a0,%a1; neg.K %t2,%t0; add.K %t1,%t2,%a2;": 1,
    "mul.K %t0,%a0,%a1; neg.K %t2,%t0; sub.K %t1,%t2,%a3;": 1,
    "mul.K %t0,%a0,%a1; mul.K %t2,%a1,%a0; sub.K %t1,%t0,%t2;": -1,
    "mul.K %t0,%a0,%a1; mul.K %t2,%a1,%a0; sub.K %t1,%t2,%t0;": -1,
    "mul.rn.K %t0,%a0,%a1; sub.K %t1,%t0,%a2;": 0,
}


def run(text, values, engine):
    emulation = Emulation(counters=Counters(sass=False), engine=engine)
    out = np.zeros_like(values)
    pointers = [Pointer(emulation.memory.add(x.view(np.uint8))) for x in (out, values)]
    emulation.run(Launch(text, "k", (1, 1, 1), (1, 1, 1), tuple(pointers)))
    return out


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
@pytest.mark.parametrize("kind", ROUNDED_ONCE)
def test_what_is_fused_is_rounded_once(kind, engine):
    small, dtype = ROUNDED_ONCE[kind]
    bodies = [re.sub(r"%t(\d)", lambda m, n=n: f"%t{3 * n + int(m[1])}", body) for n, body in enumerate(BODIES)]
    outputs = [f"%t{3 * n + 1}" for n in range(len(BODIES))]
    text = HEAD.replace("8.0", "8.6") + kernel("k", "\n".join(bodies).replace("K", kind), outputs, kind)
    values = np.array([1 + small, 1 - small, 1, -1, 0, 0, 0, 0])
    if dtype == "bf16":
        halves = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        out = (run(text, halves, engine).astype(np.uint32) << 16).view(np.float32)
    elif kind == "f16x2":
        out = run(text, np.repeat(values, 2).astype(dtype), engine).reshape(-1, 2)
        assert (out[:, 0] == out[:, 1]).all()
        out = out[:, 0]
    else:
        out = run(text, values.astype(dtype), engine)
    assert dict(zip(BODIES, out / small**2, strict=True)) == BODIES


# ---------------------------------------------------------------------------- random expressions


def expression(rng, kind):
    """A body of random operations, all of them needed, and what it leaves."""
    values, made, lines = [f"%a{i}" for i in range(INPUTS)], [], []
    for k in range(rng.randint(3, 14)):
        op = rng.choice(OPS)
        count = {"neg": 1, "fma.rn": 3}.get(op, 2)
        sources = (rng.choice(made[-4:] if made and rng.random() < 0.5 else values) for _ in range(count))
        lines.append(f"{op}.{kind} %t{k},{','.join(sources)};")
        made.append(f"%t{k}")
        values.append(f"%t{k}")
    outputs = list(dict.fromkeys([made[-1], *rng.sample(made, min(len(made), rng.randint(0, 3)))]))
    needed, kept = set(outputs), []
    for line in reversed(lines):
        registers = re.findall(r"%[at]\d+", line)
        if registers[0] in needed:
            kept.append(line)
            needed.update(registers[1:])
    return "\n".join(reversed(kept)), outputs


def minus(x):
    return x[1] if x[0] == "-" else ("-", x)


def product(a, b, c=None):
    """a * b, or a * b + c rounded once, in a form that is the same for either order and place of signs."""
    odd = (a[0] == "-") ^ (b[0] == "-")
    factors = tuple(sorted((x[1] if x[0] == "-" else x for x in (a, b)), key=repr))
    if c is None or c == ("0",):  # a negated product is made so, too
        return ("-", ("*", *factors)) if odd else ("*", *factors)
    return ("-", ("fma", *factors, minus(c))) if odd else ("fma", *factors, c)


def total(a, b):
    if ("0",) in (a, b):
        return a if b == ("0",) else b
    a, b = sorted((a, b), key=lambda x: repr(x[1] if x[0] == "-" else x))
    return ("-", ("+", a[1], minus(b))) if a[0] == "-" else ("+", a, b)


MEANING = {"mul": product, "add": total, "sub": lambda a, b: total(a, minus(b)), "fma": product, "neg": minus}


def of_program(text, entry):
    """What the emulator's program stores, by offset."""
    registers, stored = {}, {}
    for i in parse(text).program(entry).instructions:
        if i.op == "ld" and "global" in i.mods:
            registers[i.operands[0].slot] = ("load", i.operands[1].offset)
        elif i.op == "st":
            stored[i.operands[0].offset] = registers[i.operands[1].slot]
        elif i.op in MEANING and i.type in WIDTH:
            xs = [registers[o.slot] for o in i.operands[1:]]
            xs = [minus(x) if n == 0 and "-ab" in i.mods or n == 2 and "-c" in i.mods else x for n, x in enumerate(xs)]
            registers[i.operands[0].slot] = MEANING[i.op](*xs)
    return stored


@cache
def disassembled(text):
    """The machine code of all kernels of a text."""
    tool = sass.find("ptxas")
    return sass._disassemble(sass._ptxas(tool, text, ["-arch=sm_90"])[0])


def of_machine_code(text, entry):
    """What the machine code stores, by offset."""
    registers, stored = {}, {}

    def value(operand):
        x = registers.get(operand.lstrip("-").replace(".reuse", ""), ("0",))
        return minus(x) if operand[0] == "-" and x != ("0",) else x

    for s in sass._read(disassembled(text), "", entry).code:
        op, operands = s.op.split(".")[0], s.operands.split(", ")
        place = int((re.search(r"\+0x([0-9a-f]+)\]", s.operands) or (0, "0"))[1], 16)
        if op == "LDG":
            registers[operands[0]] = ("load", place)
        elif op == "STG":
            stored[place] = value(operands[1])
        elif op in ("MOV", "IMAD") and "MOV" in s.op:
            registers[operands[0]] = value(operands[-1])
        elif op[1:].lower() in MEANING and op[0] in "FD":
            registers[operands[0]] = MEANING[op[1:].lower()](*map(value, operands[1:]))
    return stored


@pytest.mark.parametrize("kind", WIDTH)
def test_random_expressions_are_fused_as_ptxas_fuses_them(kind):
    rng, names = random.Random(kind), [f"k{n}" for n in range(250)]
    text = HEAD + "".join(kernel(name, *expression(rng, kind), kind=kind) for name in names)
    different = [name for name in names if of_program(text, name) != of_machine_code(text, name)]
    assert not different
    programs = [parse(text).program(name).instructions for name in names]
    assert sum(any(i.op == "fma" and i.text.startswith(("add", "sub")) for i in p) for p in programs) > 35
