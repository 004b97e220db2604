"""PTX arithmetic as LLVM instructions, on numbers that a warp's lanes share and on vectors of 32 lanes.

Bit for bit what `ops.py` computes; whatever is not written here, the interpreter does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

from labkit.emulator import ops
from labkit.emulator.ops import DTYPES
from labkit.emulator.ptx import SIZES, Imm, Instruction, Not, Pair, Reg, Sink, Special, Sym, Vec

LANES = 32
FLOATS = {"f32": ("float", 32), "f64": ("double", 64)}
WINDOWS = {"shared": 1 << 60, "local": 1 << 61, "param": 1 << 62, "global": 0, "const": 0}


class Unknown(Exception):
    """An instruction that is left to the interpreter."""


@dataclass(frozen=True)
class Value:
    """An LLVM value: an integer of `bits` (1: a predicate), one for all lanes or a vector of 32."""

    name: str
    bits: int
    vector: bool = False
    constant: bool = False


@cache
def halves() -> bool:
    """Whether this machine converts half-precision numbers by itself."""
    return bool(llvm.get_host_cpu_features().get("f16c")) or not llvm.get_default_triple().startswith("x86")


def bits_of(kind: str) -> int:
    """Bits of a PTX type; a predicate has one."""
    return 1 if kind == "pred" else SIZES[kind] * 8


class Emitter:
    """Lines of LLVM: `head` runs once, for values that all lanes share, `body` once per warp."""

    def __init__(self) -> None:
        self.head: list[str] = []
        self.body: list[str] = []
        self.count = 0
        self.splats: dict[str, str] = {}
        self.declared: set[str] = set()
        self.functions: dict[str, str] = {}

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def line(self, text: str, vector: bool) -> None:
        (self.body if vector else self.head).append(text)

    def op(self, text: str, vector: bool) -> str:
        name = self.name()
        self.line(f"{name} = {text}", vector)
        return name

    # ---- values

    def constant(self, value: int, bits: int) -> Value:
        value %= 1 << bits
        return Value(str(value) if bits > 1 else ("true" if value else "false"), bits, False, True)

    def text(self, x: Value, vector: bool) -> str:
        """The name of a value, made a vector where one is wanted."""
        if not vector or x.vector:
            return x.name
        if x.constant:
            return f"splat (i{x.bits} {x.name})"
        if x.name not in self.splats:
            kind = f"<{LANES} x i{x.bits}>"
            one = self.op(f"insertelement {kind} poison, i{x.bits} {x.name}, i64 0", False)
            self.splats[x.name] = self.op(
                f"shufflevector {kind} {one}, {kind} poison, <{LANES} x i32> zeroinitializer", False
            )
        return self.splats[x.name]

    def outlined(self, name: str, make: Callable, *xs: Value) -> Value:
        """`make(emitter, *xs)`, 32 bits, as a function of its own: compiled once however often it is used."""
        if not any(x.vector for x in xs):
            return make(self, *xs)
        if name not in self.functions:
            inner = Emitter()
            inner.functions, inner.declared = self.functions, self.declared
            r = make(inner, *(Value(f"%x{k}", x.bits, True) for k, x in enumerate(xs)))
            given = ", ".join(f"{self.type(x.bits, True)} %x{k}" for k, x in enumerate(xs))
            lines = "\n  ".join([*inner.head, *inner.body])
            kind = self.type(32, True)
            head = f"define internal {kind} @{name}({given}) noinline {{"
            self.functions[name] = f"{head}\n  {lines}\n  ret {kind} {r.name}\n}}\n"
        names = ", ".join(f"{self.type(x.bits, True)} {self.text(x, True)}" for x in xs)
        return Value(self.op(f"call {self.type(32, True)} @{name}({names})", True), 32, True)

    def splat(self, x: Value) -> Value:
        """A number of a warp for all of its lanes."""
        if x.constant:
            return Value(self.text(x, True), x.bits, True)
        kind = f"<{LANES} x i{x.bits}>"
        one = self.op(f"insertelement {kind} poison, i{x.bits} {x.name}, i64 0", True)
        made = self.op(f"shufflevector {kind} {one}, {kind} poison, <{LANES} x i32> zeroinitializer", True)
        return Value(made, x.bits, True)

    @staticmethod
    def type(bits: int, vector: bool, scalar: str = "") -> str:
        kind = scalar or f"i{bits}"
        return f"<{LANES} x {kind}>" if vector else kind

    def apply(self, operation: str, *xs: Value, bits: int = 0) -> Value:
        """An instruction of equal operands, such as `add` or `icmp eq`."""
        vector = any(x.vector for x in xs)
        names = ", ".join(self.text(x, vector) for x in xs)
        made = self.op(f"{operation} {self.type(xs[0].bits, vector)} {names}", vector)
        return Value(made, bits or xs[0].bits, vector)

    def call(self, function: str, *xs: Value, extra: str = "") -> Value:
        """An LLVM intrinsic on integers."""
        vector = any(x.vector for x in xs)
        kind = self.type(xs[0].bits, vector)
        suffix = f"v{LANES}i{xs[0].bits}" if vector else f"i{xs[0].bits}"
        names = ", ".join(f"{kind} {self.text(x, vector)}" for x in xs)
        kinds = ", ".join([kind] * len(xs)) + (", i1" if extra else "")
        self.declared.add(f"declare {kind} @llvm.{function}.{suffix}({kinds})")
        return Value(self.op(f"call {kind} @llvm.{function}.{suffix}({names}{extra})", vector), xs[0].bits, vector)

    def select(self, p: Value, yes: Value, no: Value) -> Value:
        vector = p.vector or yes.vector or no.vector
        kind = self.type(yes.bits, vector)
        return Value(
            self.op(
                f"select {self.type(1, vector)} {self.text(p, vector)}, {kind} {self.text(yes, vector)},"
                f" {kind} {self.text(no, vector)}",
                vector,
            ),
            yes.bits,
            vector,
        )

    def resize(self, x: Value, bits: int, signed: bool = False) -> Value:
        if x.bits == bits:
            return x
        if x.constant:
            value = int(x.name)
            if signed and value >> (x.bits - 1):
                value -= 1 << x.bits
            return self.constant(value, bits)
        how = "trunc" if bits < x.bits else "sext" if signed else "zext"
        have, want = self.type(x.bits, x.vector), self.type(bits, x.vector)
        return Value(self.op(f"{how} {have} {x.name} to {want}", x.vector), bits, x.vector)

    # ---- floats: integers outside, floats inside

    def float(self, x: Value, vector: bool) -> str:
        scalar = "float" if x.bits == 32 else "double"
        have, want = self.type(x.bits, vector), self.type(0, vector, scalar)
        return self.op(f"bitcast {have} {self.text(x, vector)} to {want}", vector)

    def from_float(self, name: str, bits: int, vector: bool) -> Value:
        scalar = "float" if bits == 32 else "double"
        have, want = self.type(0, vector, scalar), self.type(bits, vector)
        return Value(self.op(f"bitcast {have} {name} to {want}", vector), bits, vector)

    def float_op(self, operation: str, *xs: Value) -> Value:
        """`fadd`, or an intrinsic such as `@fma`, on floats of one size."""
        vector = any(x.vector for x in xs)
        bits = xs[0].bits
        kind = self.type(0, vector, "float" if bits == 32 else "double")
        names = [self.float(x, vector) for x in xs]
        if operation[0] == "@":
            suffix = f"v{LANES}f{bits}" if vector else f"f{bits}"
            what = f"llvm.{operation[1:]}.{suffix}"
            self.declared.add(f"declare {kind} @{what}({', '.join([kind] * len(xs))})")
            made = self.op(f"call {kind} @{what}({', '.join(f'{kind} {n}' for n in names)})", vector)
        else:
            made = self.op(f"{operation} {kind} {', '.join(names)}", vector)
        return self.from_float(made, bits, vector)

    def compare(self, how: str, a: Value, b: Value) -> Value:
        vector = a.vector or b.vector
        kind = self.type(0, vector, "float" if a.bits == 32 else "double")
        names = self.float(a, vector), self.float(b, vector)
        return Value(self.op(f"fcmp {how} {kind} {names[0]}, {names[1]}", vector), 1, vector)

    def flush(self, x: Value) -> Value:
        """Subnormal float32 to zero of its sign."""
        size = self.apply("and", x, self.constant(0x7FFFFFFF, 32))
        tiny = self.apply("icmp ult", size, self.constant(0x00800000, 32), bits=1)
        return self.select(tiny, self.apply("and", x, self.constant(0x80000000, 32)), x)

    def cast(self, how: str, x: str, have: str, want: str, vector: bool) -> str:
        """A conversion such as `fpext` of a value named `x`."""
        return self.op(f"{how} {self.type(0, vector, have)} {x} to {self.type(0, vector, want)}", vector)

    def from_half(self, x: Value, kind: str) -> Value:
        """f16 or bf16 bits to those of the same float32."""
        if kind == "bf16":
            return self.apply("shl", self.resize(x, 32), self.constant(16, 32))
        if not halves():
            raise Unknown(kind)
        half = self.cast("bitcast", self.text(x, x.vector), "i16", "half", x.vector)
        return self.from_float(self.cast("fpext", half, "half", "float", x.vector), 32, x.vector)

    def to_half(self, x: Value, kind: str) -> Value:
        """float32 bits to those of the nearest f16 or bf16, with the one NaN of the hardware."""
        if kind == "bf16":
            odd = self.apply("and", self.apply("lshr", x, self.constant(16, 32)), self.constant(1, 32))
            up = self.apply("add", self.apply("add", x, self.constant(0x7FFF, 32)), odd)
            near = self.resize(self.apply("lshr", up, self.constant(16, 32)), 16)
        else:
            if not halves():
                raise Unknown(kind)
            half = self.cast("fptrunc", self.float(x, x.vector), "float", "half", x.vector)
            near = Value(self.cast("bitcast", half, "half", "i16", x.vector), 16, x.vector)
        return self.select(self.compare("uno", x, x), self.constant(0x7FFF, 16), near)

    def double(self, x: Value) -> Value:
        """float32 bits to those of the same float64."""
        return self.from_float(self.cast("fpext", self.float(x, x.vector), "float", "double", x.vector), 64, x.vector)

    def single(self, x: Value) -> Value:
        """float64 bits to those of the nearest float32."""
        return self.from_float(self.cast("fptrunc", self.float(x, x.vector), "double", "float", x.vector), 32, x.vector)

    def number(self, value: float) -> Value:
        """A float64 constant."""
        return self.constant(struct.unpack("<Q", struct.pack("<d", value))[0], 64)

    def one_nan(self, x: Value) -> Value:
        return self.select(self.compare("uno", x, x), self.constant(0x7FFFFFFF, 32), x)


# ---------------------------------------------------------------------------- one instruction

Get = Callable[[object, str], Value]
_ROUND = {"rni": "@rint", "rzi": "@trunc", "rmi": "@floor", "rpi": "@ceil"}
_SPECIALS_OUT = {"%clock", "%clock64", "%globaltimer", "%globaltimer_lo"}


def lower(e: Emitter, i: Instruction, get: Get) -> list[tuple[object, str, Value]]:
    """What an instruction gives: (destination, PTX type, value) each. Raises Unknown."""
    if i.guard is not None or any(isinstance(o, Special) and o.name in _SPECIALS_OUT for o in i.operands):
        raise Unknown(i.text)
    if i.op == "mov":
        return _mov(e, i, get)
    if i.op == "cvta":
        space = next((s.split("::")[0] for s in i.mods if s.split("::")[0] in WINDOWS), None)
        if space is None:
            raise Unknown(i.text)
        x = get(i.operands[1], "u64")
        if WINDOWS[space]:
            x = e.apply("sub" if "to" in i.mods else "add", x, e.constant(WINDOWS[space], 64))
        return [(i.operands[0], "u64", x)]
    make = _MAKERS.get(i.op)
    if make is None or not i.operands:
        raise Unknown(i.text)
    try:
        op = ops.lookup(i.op, i.mods, i.types)
    except ops.Unsupported as error:
        raise Unknown(i.text) from error
    target, sources = i.operands[0], i.operands[1:]
    if isinstance(target, Pair) or len(sources) != len(op.src) or len(op.dst) != 1:
        raise Unknown(i.text)
    xs = [get(o, k) for o, k in zip(sources, op.src, strict=True)]
    return [(target, op.dst[0], make(e, i, op.src[0], xs))]


WARP = {"shfl", "vote", "activemask", "redux"}
_EVERYBODY = 0xFFFFFFFF
_LANES = Value(f"<{', '.join(f'i32 {k}' for k in range(LANES))}>", 32, True)


def lower_warp(e: Emitter, i: Instruction, get: Get) -> tuple[list[tuple[object, str, Value]], object | None]:
    """What a warp operation gives in a warp whose 32 lanes are all there, and the operand that has to name them all."""
    if i.guard is not None or "sync" not in i.mods and i.op != "activemask":
        raise Unknown(i.text)
    if i.op == "activemask":
        return [(i.operands[0], "b32", e.splat(e.constant(_EVERYBODY, 32)))], None
    members = i.operands[-1]
    if i.op == "shfl":
        target = i.operands[0]
        targets = (target.first, target.second) if isinstance(target, Pair) else (target,)
        made = _shuffle(e, i, *(get(o, "b32") for o in i.operands[1:4]))
        return list(zip(targets, ("b32", "pred"), made, strict=False)), members
    if i.op == "vote":
        how = next(k for k in ("all", "any", "uni", "ballot") if k in i.mods)
        p = get(i.operands[1], "pred")
        kind = f"<{LANES} x i1>"
        yes = Value(e.op(f"bitcast {kind} {e.text(p, True)} to i32", True), 32)
        if how == "ballot":
            return [(i.operands[0], "b32", e.splat(yes))], members
        all_, none = (e.op(f"icmp eq i32 {yes.name}, {x}", True) for x in (-1, 0))
        found = {"all": f"or i1 {all_}, false", "any": f"xor i1 {none}, true", "uni": f"or i1 {all_}, {none}"}[how]
        return [(i.operands[0], "pred", e.splat(Value(e.op(found, True), 1)))], members
    how = next(k for k in ("add", "min", "max", "and", "or", "xor") if k in i.mods)
    if how in ("min", "max"):
        how = ("s" if i.type[0] == "s" else "u") + how
    what = f"@llvm.vector.reduce.{how}.v{LANES}i32"
    e.declared.add(f"declare i32 {what}(<{LANES} x i32>)")
    made = e.op(f"call i32 {what}(<{LANES} x i32> {e.text(get(i.operands[1], i.type), True)})", True)
    return [(i.operands[0], i.type, e.splat(Value(made, 32)))], members


def _shuffle(e: Emitter, i: Instruction, a: Value, by: Value, c: Value) -> tuple[Value, Value]:
    """The value of another lane, and whether that one is inside of the segment."""
    low = e.constant(31, 32)
    by, clamp = e.apply("and", by, low), e.apply("and", c, low)
    segment = e.apply("and", e.apply("lshr", c, e.constant(8, 32)), low)
    beyond = e.apply("xor", segment, low)
    mine = e.apply("and", _LANES, segment)
    last = e.apply("or", mine, e.apply("and", clamp, beyond))
    if "up" in i.mods:
        j = e.apply("sub", _LANES, by)
        inside = e.apply("icmp sge", j, last, bits=1)
    else:
        if "idx" in i.mods:
            j = e.apply("or", mine, e.apply("and", by, beyond))
        else:
            j = e.apply("add" if "down" in i.mods else "xor", _LANES, by)
        inside = e.apply("icmp sle", j, last, bits=1)
    j = e.apply("and", e.select(inside, j, _LANES), low)
    kind = f"<{LANES} x i32>"
    e.body.append(f"store {kind} {e.text(a, True)}, ptr %spot, align 64")
    places = e.op(f"getelementptr i32, ptr %spot, {kind} {j.name}", True)
    what = f"llvm.masked.gather.v{LANES}i32.v{LANES}p0"
    e.declared.add(f"declare {kind} @{what}(<{LANES} x ptr>, <{LANES} x i1>, {kind})")
    got = e.op(
        f"call {kind} @{what}(<{LANES} x ptr> align 4 {places}, <{LANES} x i1> splat (i1 true), {kind} poison)", True
    )
    return Value(got, 32, True), inside


def _mov(e: Emitter, i: Instruction, get: Get) -> list:
    target, value = i.operands
    kind = i.type
    if isinstance(value, Vec):
        each = bits_of(kind) // len(value.items)
        whole = None
        for k, item in enumerate(value.items):
            part = e.resize(get(item, f"b{each}"), bits_of(kind))
            part = e.apply("shl", part, e.constant(each * k, part.bits)) if k else part
            whole = part if whole is None else e.apply("or", whole, part)
        return [(target, f"b{bits_of(kind)}", whole)]
    if isinstance(target, Vec):
        each = bits_of(kind) // len(target.items)
        x = get(value, f"b{bits_of(kind)}")
        return [
            (t, f"b{each}", e.resize(e.apply("lshr", x, e.constant(each * k, x.bits)) if k else x, each))
            for k, t in enumerate(target.items)
        ]
    if not isinstance(value, Reg | Imm | Sym | Special):
        raise Unknown(i.text)
    return [(target, kind, get(value, kind))]


def _finish(e: Emitter, i: Instruction, kind: str, xs: list[Value], make: Callable) -> Value:
    """A float operation with .ftz and .sat around it, and float32's one NaN."""
    if "ftz" in i.mods:
        xs = [e.flush(x) for x in xs]
    r = make(*xs)
    if kind == "f32":
        r = e.one_nan(r)
    if "ftz" in i.mods:
        r = e.flush(r)
    return _saturate(e, r) if "sat" in i.mods else r


def _saturate(e: Emitter, r: Value) -> Value:
    zero, one = e.constant(0, r.bits), e.constant(0x3F800000 if r.bits == 32 else 0x3FF0000000000000, r.bits)
    r = e.select(e.compare("ogt", r, zero), r, zero)
    return e.select(e.compare("ogt", r, one), one, r)


def _halves(e: Emitter, i: Instruction, kind: str, xs: list[Value], make: Callable) -> Value:
    """A half-precision operation in float32, one after the other for a pair of numbers."""
    if "ftz" in i.mods:
        raise Unknown(i.text)
    base = kind.removesuffix("x2")

    def one(*parts: Value) -> Value:
        r = make(*(e.from_half(x, base) for x in parts))
        if "sat" in i.mods:
            r = _saturate(e, r)
        if "relu" in i.mods:
            zero = e.constant(0, 32)
            r = e.select(e.compare("ole", r, zero), zero, r)
        return e.to_half(r, base)

    if kind == base:
        return one(*xs)
    sixteen = e.constant(16, 32)
    low = one(*(e.resize(x, 16) for x in xs))
    high = one(*(e.resize(e.apply("lshr", x, sixteen), 16) for x in xs))
    return e.apply("or", e.resize(low, 32), e.apply("shl", e.resize(high, 32), sixteen))


def _half_fma(e: Emitter, a: Value, b: Value, c: Value) -> Value:
    """a * b + c of half-precision numbers as float32, rounded to odd; the product is exact in float64."""
    a, b, c = (e.double(x) for x in (a, b, c))
    p = e.float_op("fmul", a, b)
    s = e.float_op("fadd", p, c)
    t = e.float_op("fsub", s, p)
    rest = e.float_op("fadd", e.float_op("fsub", p, e.float_op("fsub", s, t)), e.float_op("fsub", c, t))
    s = _odd(e, s, s, rest, (s, rest))
    r = e.single(s)
    return _odd(e, r, s, e.float_op("fsub", s, e.double(r)), (r,))


def _odd(e: Emitter, r: Value, whole: Value, rest: Value, finite: tuple[Value, ...]) -> Value:
    """r, the nearest float of a sum with the sign of `whole` that leaves `rest`, made odd where those are finite."""
    zero = e.number(0.0)
    up = e.apply("icmp eq", e.compare("ogt", rest, zero), e.compare("ogt", whole, zero), bits=1)
    step = e.select(up, e.constant(1, r.bits), e.constant(-1, r.bits))
    even = e.apply("icmp eq", e.apply("and", r, e.constant(1, r.bits)), e.constant(0, r.bits), bits=1)
    fix = e.apply("and", e.compare("one", rest, zero), even)
    for x in finite:
        infinite = e.float_op("fsub", x, x)  # not 0: NaN
        fix = e.apply("and", fix, e.compare("ord", infinite, infinite))
    return e.select(fix, e.apply("add", r, step), r)


def _arithmetic(e: Emitter, i: Instruction, kind: str, xs: list[Value]) -> Value:
    if {"-ab", "-c"} & set(i.mods):  # of contracted operations, see contraction.py
        top = e.constant(0x80008000 if kind.endswith("x2") else 1 << (xs[0].bits - 1), xs[0].bits)
        turned = ("-ab" in i.mods, False, "-c" in i.mods)
        xs = [e.apply("xor", x, top) if turn else x for x, turn in zip(xs, turned, strict=True)]
    if kind in FLOATS:
        if {"rz", "rm", "rp"} & set(i.mods):
            raise Unknown(i.text)
        how = {"sqrt": "@sqrt", "fma": "@fma", "mad": "@fma"}.get(i.op, "f" + i.op)
        return _finish(e, i, kind, xs, lambda *a: e.float_op(how, *a))
    if kind in ops.HALVES:
        if i.op == "fma":
            return _halves(e, i, kind, xs, lambda *a: e.outlined("half_fma", _half_fma, *a))
        if i.op in ("add", "sub", "mul"):
            return _halves(e, i, kind, xs, lambda *a: e.float_op("f" + i.op, *a))
    if kind not in ops.INTS or {"cc", "sat"} & set(i.mods):
        raise Unknown(i.text)
    if i.op in ("add", "sub"):
        return e.apply(i.op, *xs)
    if i.op in ("mul", "mad"):
        signed = kind[0] == "s"
        if "wide" in i.mods:
            bits = 2 * bits_of(kind)
            r = e.apply("mul", *(e.resize(x, bits, signed) for x in xs[:2]))
        elif "hi" in i.mods:
            bits = bits_of(kind)
            r = e.apply("mul", *(e.resize(x, 2 * bits, signed) for x in xs[:2]))
            r = e.resize(e.apply("lshr", r, e.constant(bits, 2 * bits)), bits)
        else:
            r = e.apply("mul", *xs[:2])
        return e.apply("add", r, xs[2]) if i.op == "mad" else r
    raise Unknown(i.text)


def _rcp(e: Emitter, i: Instruction, kind: str, xs: list[Value]) -> Value:
    if kind not in FLOATS or {"rz", "rm", "rp"} & set(i.mods) or kind == "f64" and "ftz" in i.mods:
        raise Unknown(i.text)
    one = e.constant(0x3F800000 if kind == "f32" else 0x3FF0000000000000, xs[0].bits)
    return _finish(e, i, kind, xs, lambda a: e.float_op("fdiv", one, a))


def _divide(e: Emitter, i: Instruction, kind: str, xs: list[Value]) -> Value:
    """Quotient or remainder, truncating; x / 0 has all bits set and x % 0 is x."""
    if kind in FLOATS:
        return _arithmetic(e, i, kind, xs)
    if kind not in ops.INTS:
        raise Unknown(i.text)
    a, b = xs
    bits = a.bits
    zero, ones = e.constant(0, bits), e.constant(-1, bits)
    nothing = e.apply("icmp eq", b, zero, bits=1)
    signed = kind[0] == "s"
    ua, ub = a, b
    if signed:
        negative = e.apply("icmp slt", a, zero, bits=1), e.apply("icmp slt", b, zero, bits=1)
        ua = e.select(negative[0], e.apply("sub", zero, a), a)
        ub = e.select(negative[1], e.apply("sub", zero, b), b)
    safe = e.select(nothing, e.constant(1, bits), ub)
    r = e.apply("udiv" if i.op == "div" else "urem", ua, safe)
    if signed:
        turn = e.apply("xor", *negative) if i.op == "div" else negative[0]
        r = e.select(turn, e.apply("sub", zero, r), r)
    return e.select(nothing, ones if i.op == "div" else a, r)


def _sign(e: Emitter, i: Instruction, kind: str, xs: list[Value]) -> Value:
    x = xs[0]
    if kind in FLOATS:
        if "ftz" in i.mods:
            x = e.flush(x)
        top = 1 << (x.bits - 1)
        how, bits = ("xor", top) if i.op == "neg" else ("and", ~top)
        return e.apply(how, x, e.constant(bits, x.bits))
    if kind in ops.HALVES:
        how, bits = ("xor", 1 << 31) if i.op == "neg" else ("and", (1 << 31) - 1)
        return _halves(e, i, kind, xs, lambda x: e.apply(how, x, e.constant(bits, 32)))
    if kind not in ops.INTS:
        raise Unknown(i.text)
    minus = e.apply("sub", e.constant(0, x.bits), x)
    if i.op == "neg":
        return minus
    return e.select(e.apply("icmp slt", x, e.constant(0, x.bits), bits=1), minus, x) if kind[0] == "s" else x


def _minmax(e: Emitter, i: Instruction, kind: str, xs: list[Value]) -> Value:
    if kind in ops.INTS:
        return e.call(("s" if kind[0] == "s" else "u") + i.op, *xs)
    if kind not in (*FLOATS, *ops.HALVES) or {"xorsign", "abs"} & set(i.mods) or kind == "f64" and "NaN" in i.mods:
        raise Unknown(i.text)
    low = i.op == "min"

    def make(a: Value, b: Value) -> Value:
        r = e.select(e.compare("olt" if low else "ogt", a, b), a, b)
        if "NaN" in i.mods:
            r = e.select(e.compare("uno", a, b), e.constant(0x7FFFFFFF, 32), r)
        else:
            r = e.select(e.compare("uno", a, a), b, r)
            r = e.select(e.compare("uno", b, b), a, r)
        # -0 counts as less than +0; equal operands differ in nothing but the sign of zero.
        return e.select(e.compare("oeq", a, b), e.apply("or" if low else "and", a, b), r)

    return (_halves if kind in ops.HALVES else _finish)(e, i, kind, xs, make)


def _logic(e: Emitter, i: Instruction, kind: str, xs: list[Value]) -> Value:
    return e.apply("xor", xs[0], e.constant(-1, xs[0].bits)) if i.op == "not" else e.apply(i.op, *xs)


def _shift(e: Emitter, i: Instruction, kind: str, xs: list[Value]) -> Value:
    a, n = xs
    width = a.bits
    within = e.apply("icmp ult", n, e.constant(width, 32), bits=1)
    by = e.resize(e.apply("and", n, e.constant(width - 1, 32)), width)
    if i.op == "shr" and kind[0] == "s":
        return e.apply("ashr", a, e.select(within, by, e.constant(width - 1, width)))
    return e.select(within, e.apply("shl" if i.op == "shl" else "lshr", a, by), e.constant(0, width))


_ORDERED = {"eq", "ne", "lt", "le", "gt", "ge"}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def _setp(e: Emitter, i: Instruction, kind: str, xs: list[Value]) -> Value:
    mods = set(i.mods)
    combine = next((c for c in ("and", "or", "xor") if c in mods), None)
    name = next(iter(mods - {"and", "or", "xor", "ftz"}))
    a, b = xs[:2]
    if kind in ("f16", "bf16") and "ftz" not in mods:
        a, b, kind = e.from_half(a, kind), e.from_half(b, kind), "f32"
    if kind in FLOATS:
        if "ftz" in mods:
            a, b = e.flush(a), e.flush(b)
        if name in _ORDERED:
            how = {"ne": "one"}.get(name, "o" + name)
        elif name[-1] == "u" and name[:-1] in _ORDERED:
            how = "u" + name[:-1]
        else:
            how = {"num": "ord", "nan": "uno"}[name]
        p = e.compare(how, a, b)
    elif kind in ops.INTS:
        name = _UNSIGNED.get(name, name)
        how = name if name in ("eq", "ne") else ("s" if kind[0] == "s" else "u") + name
        p = e.apply(f"icmp {how}", a, b, bits=1)
    else:
        raise Unknown(i.text)
    return e.apply(combine, p, xs[2]) if combine else p


def _selp(e: Emitter, i: Instruction, kind: str, xs: list[Value]) -> Value:
    return e.select(xs[2], xs[0], xs[1])


def _cvt(e: Emitter, i: Instruction, kind: str, xs: list[Value]) -> Value:
    dst, src = i.types
    mods, x = set(i.mods), xs[0]
    if dst.removesuffix("x2") in ("f16", "bf16") and src == "f32" and not mods - {"rn", "ftz", "relu"}:
        r = [e.flush(x) if "ftz" in mods else x for x in xs]
        if "relu" in mods:
            zero = e.constant(0, 32)
            r = [e.select(e.compare("ole", x, zero), zero, x) for x in r]
        r = [e.to_half(x, dst.removesuffix("x2")) for x in r]
        if len(r) == 1:
            return r[0]
        high = e.apply("shl", e.resize(r[0], 32), e.constant(16, 32))
        return e.apply("or", high, e.resize(r[1], 32))
    if (dst, src) == ("f32", "f16") and not mods:
        return e.one_nan(e.from_half(x, src))
    if (dst, src) == ("f32", "bf16") and not mods:
        return e.from_half(x, src)
    whole = next((m for m in mods if m in _ROUND), None)
    inexact = {"rz", "rm", "rp"} & mods
    integers = {*ops.INTS, "u8", "s8", "b8"}
    if src in integers and dst in integers:
        if "sat" in mods:
            raise Unknown(i.text)
        return e.resize(x, bits_of(dst), src[0] == "s")
    if src in integers and dst in FLOATS:
        if inexact or "sat" in mods:
            raise Unknown(i.text)
        scalar, bits = FLOATS[dst]
        have, want = e.type(x.bits, x.vector), e.type(0, x.vector, scalar)
        made = e.op(f"{'s' if src[0] == 's' else 'u'}itofp {have} {e.text(x, x.vector)} to {want}", x.vector)
        return e.from_float(made, bits, x.vector)
    if src in FLOATS and dst in FLOATS:
        if inexact or "sat" in mods or "relu" in mods:
            raise Unknown(i.text)
        flush = "ftz" in mods
        if flush and src == "f32":
            x = e.flush(x)
        if whole:
            x = e.float_op(_ROUND[whole], x)
        if src != dst:
            (have, _), (want, bits) = FLOATS[src], FLOATS[dst]
            how = "fpext" if bits == 64 else "fptrunc"
            name = e.float(x, x.vector)
            made = e.op(f"{how} {e.type(0, x.vector, have)} {name} to {e.type(0, x.vector, want)}", x.vector)
            x = e.from_float(made, bits, x.vector)
        return e.flush(x) if flush and dst == "f32" else x
    if src in FLOATS and dst in ("s32", "u32", "s64", "u64") and whole:
        if "ftz" in mods and src == "f32":
            x = e.flush(x)
        r = e.float_op(_ROUND[whole], x)
        bits = bits_of(dst)
        have, want = e.type(0, x.vector, FLOATS[src][0]), e.type(bits, x.vector)
        suffix = (f"v{LANES}i{bits}.v{LANES}" if x.vector else f"i{bits}.") + f"f{x.bits}"
        what = f"llvm.fpto{'s' if dst[0] == 's' else 'u'}i.sat.{suffix}"
        e.declared.add(f"declare {want} @{what}({have})")
        made = Value(e.op(f"call {want} @{what}({have} {e.float(r, x.vector)})", x.vector), bits, x.vector)
        if src == "f64" or bits == 64:
            # NaN becomes 0, or only the top bit set where a 64-bit type takes part.
            made = e.select(e.compare("uno", x, x), e.constant(1 << (bits - 1), bits), made)
        return made
    raise Unknown(i.text)


def _count(e: Emitter, i: Instruction, kind: str, xs: list[Value]) -> Value:
    x = xs[0]
    if i.op == "popc":
        return e.resize(e.call("ctpop", x), 32)
    if i.op == "brev":
        return e.call("bitreverse", x)
    return e.resize(e.call("ctlz", x, extra=", i1 false"), 32)


def _lop3(e: Emitter, i: Instruction, kind: str, xs: list[Value]) -> Value:
    if not isinstance(i.operands[4], Imm):
        raise Unknown(i.text)
    table, out = int(i.operands[4].value), e.constant(0, 32)
    ones = e.constant(-1, 32)
    for k in range(8):
        if table >> k & 1:
            a, b, c = (x if k >> s & 1 else e.apply("xor", x, ones) for x, s in zip(xs[:3], (2, 1, 0), strict=True))
            out = e.apply("or", out, e.apply("and", e.apply("and", a, b), c))
    return out


def _shf(e: Emitter, i: Instruction, kind: str, xs: list[Value]) -> Value:
    low, high, n = xs
    if "wrap" not in i.mods:
        raise Unknown(i.text)
    n = e.apply("and", n, e.constant(31, 32))
    return e.call("fshl" if "l" in i.mods else "fshr", high, low, n)


def _approximate(e: Emitter, i: Instruction, kind: str, xs: list[Value]) -> Value:
    """ex2 and rsqrt, in float64 as in `ops.py`."""
    if kind != "f32":
        raise Unknown(i.text)
    make = _exp2 if i.op == "ex2" else _rsqrt
    return _finish(e, i, kind, xs, lambda x: e.outlined(i.op, make, x))


def _rsqrt(e: Emitter, x: Value) -> Value:
    return e.single(e.float_op("fdiv", e.number(1.0), e.float_op("@sqrt", e.double(x))))


def _exp2(e: Emitter, x: Value) -> Value:
    x = e.double(x)
    for how, limit in (("ogt", e.number(200.0)), ("olt", e.number(-200.0))):
        x = e.select(e.compare(how, x, limit), limit, x)
    n = e.float_op("@rint", x)
    f = e.float_op("fsub", x, n)
    r = e.number(ops.EXP2[0])
    for c in ops.EXP2[1:]:
        r = e.float_op("fadd", e.float_op("fmul", r, f), e.number(c))
    n = e.select(e.compare("uno", n, n), e.number(0.0), n)
    whole = Value(e.cast("fptosi", e.float(n, n.vector), "double", "i64", n.vector), 64, n.vector)
    power = e.apply("shl", e.apply("add", whole, e.constant(1023, 64)), e.constant(52, 64))
    return e.single(e.float_op("fmul", r, power))


def _dot(e: Emitter, i: Instruction, kind: str, xs: list[Value]) -> Value:
    """Dot products of 4 bytes with 4 bytes, or of 2 halves with 2 bytes, onto an integer."""
    count = 4 if i.op == "dp4a" else 2
    first = count if "hi" in i.mods else 0
    ka, kb = i.types
    total = xs[2]

    def field(x: Value, signed: bool, bits: int, k: int) -> Value:
        return e.resize(e.resize(e.apply("lshr", x, e.constant(bits * k, 32)), bits), 32, signed)

    for k in range(count):
        a, b = field(xs[0], ka[0] == "s", 32 // count, k), field(xs[1], kb[0] == "s", 8, first + k)
        total = e.apply("add", total, e.apply("mul", a, b))
    return total


def _prmt(e: Emitter, i: Instruction, kind: str, xs: list[Value]) -> Value:
    a, b, selector = xs
    both = e.apply("or", e.resize(a, 64), e.apply("shl", e.resize(b, 64), e.constant(32, 64)))
    out = e.constant(0, 32)
    for k in range(4):
        choice = e.apply("lshr", selector, e.constant(4 * k, 32))
        by = e.apply("shl", e.apply("and", choice, e.constant(7, 32)), e.constant(3, 32))
        byte = e.resize(e.apply("lshr", both, e.resize(by, 64)), 8)
        sign = e.apply("ashr", byte, e.constant(7, 8))
        copies = e.apply("icmp ne", e.apply("and", choice, e.constant(8, 32)), e.constant(0, 32), bits=1)
        byte = e.resize(e.select(copies, sign, byte), 32)
        out = e.apply("or", out, e.apply("shl", byte, e.constant(8 * k, 32)))
    return out


def _shifted(e: Emitter, how: str, a: Value, n: Value) -> Value:
    """a << n or a >> n, with 0 for the width or more; n has 32 bits."""
    within = e.apply("icmp ult", n, e.constant(a.bits, 32), bits=1)
    by = e.resize(e.apply("and", n, e.constant(a.bits - 1, 32)), a.bits)
    return e.select(within, e.apply(how, a, by), e.constant(0, a.bits))


def _field(e: Emitter, i: Instruction, kind: str, xs: list[Value]) -> Value:
    """bfe of unsigned numbers, and bfi."""
    if i.op == "bfe" and kind[0] != "u":
        raise Unknown(i.text)
    position, length = (e.apply("and", x, e.constant(255, 32)) for x in xs[-2:])
    bits = xs[0].bits
    ones = e.constant(-1, bits)
    mask = e.apply("xor", _shifted(e, "shl", ones, length), ones)
    if i.op == "bfe":
        return e.apply("and", _shifted(e, "lshr", xs[0], position), mask)
    mask = _shifted(e, "shl", mask, position)
    kept = e.apply("and", xs[1], e.apply("xor", mask, ones))
    return e.apply("or", kept, e.apply("and", _shifted(e, "shl", xs[0], position), mask))


_MAKERS: dict[str, Callable] = {
    **dict.fromkeys(("add", "sub", "mul", "mad", "fma", "sqrt"), _arithmetic),
    **dict.fromkeys(("div", "rem"), _divide),
    "rcp": _rcp,
    **dict.fromkeys(("neg", "abs"), _sign),
    **dict.fromkeys(("min", "max"), _minmax),
    **dict.fromkeys(("and", "or", "xor", "not"), _logic),
    **dict.fromkeys(("shl", "shr"), _shift),
    "setp": _setp,
    "selp": _selp,
    "cvt": _cvt,
    **dict.fromkeys(("popc", "clz", "brev"), _count),
    "lop3": _lop3,
    "shf": _shf,
    **dict.fromkeys(("ex2", "rsqrt"), _approximate),
    **dict.fromkeys(("dp4a", "dp2a"), _dot),
    "prmt": _prmt,
    **dict.fromkeys(("bfe", "bfi"), _field),
}


def immediate(e: Emitter, operand: Imm, kind: str) -> Value:
    """A literal as a value of a PTX type."""
    from labkit.emulator.compiler import _immediate

    value = _immediate(operand, DTYPES[kind])
    return e.constant(int.from_bytes(value.tobytes(), "little"), bits_of(kind))


def read(e: Emitter, x: Value, have: str, want: str) -> Value:
    """A register of PTX type `have` as an operand of type `want`."""
    if (have == "pred") != (want == "pred"):
        raise Unknown("predicate")
    return e.resize(x, bits_of(want))


def write(e: Emitter, x: Value, have: str, want: str) -> Value:
    """A result of type `have` in a register of type `want`, extended by the result's own sign."""
    if (have == "pred") != (want == "pred"):
        raise Unknown("predicate")
    if "f" in (DTYPES[have].kind, DTYPES[want].kind) and bits_of(have) > bits_of(want):
        raise Unknown("destination")
    return e.resize(x, bits_of(want), DTYPES[have].kind == "i")


__all__ = [
    "LANES", "WARP", "Emitter", "Not", "Sink", "Unknown", "Value", "bits_of", "immediate", "lower", "lower_warp",
    "read", "write",
]  # fmt: skip
