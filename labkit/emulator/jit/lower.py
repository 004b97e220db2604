"""PTX arithmetic as LLVM instructions, on numbers that a warp's lanes share and on vectors of 32 lanes.

Bit for bit what `ops.py` computes; whatever is not written here, the interpreter does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
    if "sat" in i.mods:
        one = 0x3F800000 if kind == "f32" else 0x3FF0000000000000
        zero, one = e.constant(0, r.bits), e.constant(one, r.bits)
        r = e.select(e.compare("ogt", r, zero), r, zero)
        r = e.select(e.compare("ogt", r, one), one, r)
    return r


def _arithmetic(e: Emitter, i: Instruction, kind: str, xs: list[Value]) -> Value:
    if kind in FLOATS:
        if {"rz", "rm", "rp"} & set(i.mods):
            raise Unknown(i.text)
        how = {"sqrt": "@sqrt", "fma": "@fma", "mad": "@fma"}.get(i.op, "f" + i.op)
        return _finish(e, i, kind, xs, lambda *a: e.float_op(how, *a))
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
    if kind not in FLOATS:
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
    if kind not in ops.INTS:
        raise Unknown(i.text)
    minus = e.apply("sub", e.constant(0, x.bits), x)
    if i.op == "neg":
        return minus
    return e.select(e.apply("icmp slt", x, e.constant(0, x.bits), bits=1), minus, x) if kind[0] == "s" else x


def _minmax(e: Emitter, i: Instruction, kind: str, xs: list[Value]) -> Value:
    if kind in ops.INTS:
        return e.call(("s" if kind[0] == "s" else "u") + i.op, *xs)
    if kind not in FLOATS or "NaN" in i.mods:
        raise Unknown(i.text)
    low = i.op == "min"

    def make(a: Value, b: Value) -> Value:
        r = e.select(e.compare("olt" if low else "ogt", a, b), a, b)
        r = e.select(e.compare("uno", a, a), b, r)
        r = e.select(e.compare("uno", b, b), a, r)
        # -0 counts as less than +0; equal operands differ in nothing but the sign of zero.
        return e.select(e.compare("oeq", a, b), e.apply("or" if low else "and", a, b), r)

    return _finish(e, i, kind, xs, make)


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


__all__ = ["LANES", "Emitter", "Not", "Sink", "Unknown", "Value", "bits_of", "immediate", "lower", "read", "write"]
