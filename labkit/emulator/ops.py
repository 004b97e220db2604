"""What each PTX arithmetic instruction computes, on numpy arrays or numpy scalars.

`lookup(op, mods, types)` gives the function, the types it wants its sources in, and the types of
its results. f16 and bf16 travel as their bits (uint16), predicates as bool. Approximate
instructions (`ex2.approx`, `div.full`, ...) are computed in float64 and rounded once, so they agree
with the hardware only within its documented error. Run under `np.errstate(all="ignore")`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64
s8, s16, s32, s64 = np.int8, np.int16, np.int32, np.int64
f16, f32, f64 = np.float16, np.float32, np.float64

DTYPES = {
    "pred": np.dtype(bool),
    "b8": np.dtype(u8), "u8": np.dtype(u8), "s8": np.dtype(s8),
    "b16": np.dtype(u16), "u16": np.dtype(u16), "s16": np.dtype(s16),
    "f16": np.dtype(u16), "bf16": np.dtype(u16),
    "b32": np.dtype(u32), "u32": np.dtype(u32), "s32": np.dtype(s32), "f32": np.dtype(f32),
    "f16x2": np.dtype(u32), "bf16x2": np.dtype(u32), "u16x2": np.dtype(u32), "s16x2": np.dtype(u32),
    "tf32": np.dtype(u32),
    "b64": np.dtype(u64), "u64": np.dtype(u64), "s64": np.dtype(s64), "f64": np.dtype(f64),
}  # fmt: skip

HALVES = ("f16", "f16x2", "bf16", "bf16x2")
PAIRS = ("u16x2", "s16x2")
INTS = {"u16", "s16", "u32", "s32", "u64", "s64", "b16", "b32", "b64"}
DIRECTED = ("rz", "rm", "rp")
ROUNDINGS = ("rn", *DIRECTED)


class Unsupported(Exception):
    """No such instruction here."""


@dataclass(frozen=True)
class Op:
    """`fn` takes values of the PTX types `src` and returns one of `dst[0]`, or a tuple."""

    fn: Callable
    src: tuple[str, ...]
    dst: tuple[str, ...]


_BUILDERS: dict[str, Callable] = {}


def _op(*names: str) -> Callable:
    def register(builder: Callable) -> Callable:
        for name in names:
            _BUILDERS[name] = builder
        return builder

    return register


@cache
def lookup(op: str, mods: tuple[str, ...], types: tuple[str, ...]) -> Op:
    """The operation; raises Unsupported for an opcode, type or modifier not known here."""
    builder = _BUILDERS.get(op)
    if builder is None:
        raise Unsupported(op)
    left = set(mods)
    try:
        made = builder(op, left, types)
    except (KeyError, IndexError, ValueError) as error:
        # A type that is missing, too many, or of another kind than the operation's.
        raise Unsupported(op) from error
    if made is None or left:
        raise Unsupported(op)
    return made


def _one_of(mods: set[str], names: tuple[str, ...] | list[str], default: str | None = None):
    for name in names:
        if name in mods:
            mods.discard(name)
            return name
    return default


def _flag(mods: set[str], name: str) -> bool:
    return _one_of(mods, (name,)) is not None


def pick(condition, yes, no):
    """np.where that gives a scalar for scalars."""
    return np.where(condition, yes, no)[()]


def _bits(kind: str) -> int:
    return DTYPES[kind].itemsize * 8


def _signed(kind: str) -> bool:
    return kind[0] == "s"


def _unsigned(x):
    return x.view(f"u{x.dtype.itemsize}")


# ---------------------------------------------------------------------------- integers


def _clamp(x, kind: str):
    """Saturate int64 values to a narrower integer type."""
    info = np.iinfo(DTYPES[kind])
    return np.clip(x, info.min, info.max).astype(DTYPES[kind])


def _high(a, b):
    """High half of the product, for every integer type."""
    size = a.dtype.itemsize
    if size < 8:
        wide = np.dtype(f"{a.dtype.kind}{size * 2}")
        return (a.astype(wide) * b.astype(wide) >> wide.type(size * 8)).astype(a.dtype)
    ua, ub = a.view(u64), b.view(u64)
    mask, half = u64(0xFFFFFFFF), u64(32)
    al, ah, bl, bh = ua & mask, ua >> half, ub & mask, ub >> half
    mid = ah * bl + (al * bl >> half)
    mid2 = al * bh + (mid & mask)
    high = ah * bh + (mid >> half) + (mid2 >> half)
    if a.dtype == s64:
        high = high - pick(a < 0, ub, u64(0)) - pick(b < 0, ua, u64(0))
        return high.view(s64)
    return high


def _divide(a, b):
    """Quotient and remainder, truncating; x / 0 has all bits set and x % 0 is x, as on GPUs."""
    if a.dtype.kind == "i":
        kind = a.dtype
        ua = _unsigned(pick(a < 0, -a, a).astype(kind))
        ub = _unsigned(pick(b < 0, -b, b).astype(kind))
        q, r = _divide(ua, ub)
        q, r = q.view(kind), r.view(kind)
        q = pick((a < 0) != (b < 0), -q, q)
        q = pick(b == 0, kind.type(-1), q).astype(kind)
        return q, pick(a < 0, -r, r).astype(kind)
    one = a.dtype.type(1)
    zero = b == 0
    safe = pick(zero, one, b)
    q = a // safe
    return pick(zero, ~a.dtype.type(0), q), pick(zero, a, a - q * safe)


@_op("add", "sub")
def _add(op, mods, types):
    kind = types[0]
    if kind in ("f32", "f64"):
        return _float_add(op, mods, kind)
    if kind in HALVES:
        return _half(np.add if op == "add" else np.subtract, kind, mods, 2)
    if kind in PAIRS and op == "add":
        return _pairs(np.add, kind)
    if kind not in INTS:
        return None
    if _flag(mods, "cc"):
        if op == "add":
            def fn(a, b):
                r = a + b
                return r, _unsigned(r) < _unsigned(a)
        else:
            def fn(a, b):
                return a - b, _unsigned(a) < _unsigned(b)
        return Op(fn, (kind, kind), (kind, "pred"))
    if _flag(mods, "sat"):
        sign = 1 if op == "add" else -1
        return Op(
            lambda a, b: _clamp(a.astype(s64) + sign * b.astype(s64), kind), (kind,) * 2, (kind,)
        )
    fn = np.add if op == "add" else np.subtract
    return Op(fn, (kind, kind), (kind,))


@_op("addc", "subc")
def _addc(op, mods, types):
    kind = types[0]
    out = _flag(mods, "cc")

    def fn(a, b, carry):
        ua, ub, c = _unsigned(a), _unsigned(b), carry.astype(_unsigned(a).dtype)
        if op == "addc":
            part = ua + ub
            r = part + c
            flag = (part < ua) | (r < part)
        else:
            part = ua - ub
            r = part - c
            flag = (ua < ub) | (part < c)
        r = r.view(a.dtype)
        return (r, flag) if out else r

    return Op(fn, (kind, kind, "pred"), (kind, "pred") if out else (kind,))


def _wide(kind: str) -> str:
    return f"{kind[0]}{_bits(kind) * 2}"


def _widen(a, kind):
    return a.astype(DTYPES[_wide(kind)])


@_op("mul")
def _mul(op, mods, types):
    kind = types[0]
    if kind in ("f32", "f64"):
        mode = _one_of(mods, ROUNDINGS, "rn")
        if mode == "rn":
            return _finish(np.multiply, kind, mods, 2)
        if kind == "f32":
            return _finish(lambda a, b: _directed(*_product(a, b), mode), kind, mods, 2)
        zero = f64(0)
        return _finish(
            lambda a, b: _fma_exact(a, b, np.copysign(zero, a) * np.copysign(f64(1), b), mode),
            kind, mods, 2,
        )  # fmt: skip
    if kind in HALVES:
        return _half(np.multiply, kind, mods, 2)
    part = _one_of(mods, ("lo", "hi", "wide"))
    if part == "wide":
        return Op(lambda a, b: _widen(a, kind) * _widen(b, kind), (kind,) * 2, (_wide(kind),))
    if part == "hi":
        return Op(_high, (kind, kind), (kind,))
    return Op(np.multiply, (kind, kind), (kind,)) if part == "lo" else None


@_op("mad")
def _mad(op, mods, types):
    kind = types[0]
    if kind in ("f32", "f64"):
        return _fma(op, mods, types)
    part = _one_of(mods, ("lo", "hi", "wide"))
    carry = _flag(mods, "cc")
    if part == "wide":
        wide = _wide(kind)
        return Op(
            lambda a, b, c: _widen(a, kind) * _widen(b, kind) + c, (kind, kind, wide), (wide,)
        )
    product = {"lo": np.multiply, "hi": _high}.get(part)
    if product is None:
        return None
    if carry:
        def fn(a, b, c):
            p = product(a, b)
            r = p + c
            return r, _unsigned(r) < _unsigned(p)

        return Op(fn, (kind,) * 3, (kind, "pred"))
    if _flag(mods, "sat"):
        return Op(
            lambda a, b, c: _clamp(product(a, b).astype(s64) + c.astype(s64), kind),
            (kind,) * 3, (kind,),
        )  # fmt: skip
    return Op(lambda a, b, c: product(a, b) + c, (kind,) * 3, (kind,))


@_op("madc")
def _madc(op, mods, types):
    kind = types[0]
    product = {"lo": np.multiply, "hi": _high}.get(_one_of(mods, ("lo", "hi")))
    add = _addc("addc", mods, types)
    if product is None:
        return None
    return Op(
        lambda a, b, c, carry: add.fn(product(a, b), c, carry), (kind,) * 3 + ("pred",), add.dst
    )


@_op("mul24", "mad24")
def _mul24(op, mods, types):
    kind = types[0]
    part = _one_of(mods, ("lo", "hi"), "lo")

    def low24(x):
        x = x.astype(s64)
        if kind == "s32":
            return (x << s64(40)) >> s64(40)
        return x & s64(0xFFFFFF)

    shift = s64(16 if part == "hi" else 0)

    def fn(a, b, c=None):
        r = ((low24(a) * low24(b)) >> shift).astype(u32).view(DTYPES[kind])
        return r if c is None else r + c

    count = 2 if op == "mul24" else 3
    return Op(fn, (kind,) * count, (kind,))


@_op("sad")
def _sad(op, mods, types):
    kind = types[0]
    return Op(lambda a, b, c: c + pick(a < b, b - a, a - b), (kind,) * 3, (kind,))


@_op("div")
def _div(op, mods, types):
    kind = types[0]
    if kind in ("f32", "f64"):
        mode = _one_of(mods, (*ROUNDINGS, "full", "approx"))
        if mode is None:
            return None
        return _finish(_directed_quotient(mode) if mode in DIRECTED else np.divide, kind, mods, 2)
    return Op(lambda a, b: _divide(a, b)[0], (kind, kind), (kind,))


@_op("rem")
def _rem(op, mods, types):
    kind = types[0]
    return Op(lambda a, b: _divide(a, b)[1], (kind, kind), (kind,))


@_op("abs", "neg")
def _abs(op, mods, types):
    kind = types[0]
    fn = np.abs if op == "abs" else np.negative
    if kind in ("f32", "f64"):
        if _flag(mods, "ftz"):
            return Op(lambda a: fn(_flush(a)), (kind,), (kind,))
        return Op(fn, (kind,), (kind,))
    if kind in HALVES:
        return _half(fn, kind, mods, 1)
    return Op(fn, (kind,), (kind,))


@_op("min", "max")
def _minmax(op, mods, types):
    kind = types[0]
    low = op == "min"
    if kind in ("f32", "f64", *HALVES):
        nan = _flag(mods, "NaN")
        signs = {"xorsign", "abs"} <= mods
        mods -= {"xorsign", "abs"}

        def fn(a, b):
            ua, ub = _unsigned(a), _unsigned(b)
            if signs:
                a, b = np.abs(a), np.abs(b)
            if nan:
                r = np.minimum(a, b) if low else np.maximum(a, b)
            else:
                r = np.fmin(a, b) if low else np.fmax(a, b)
            if signs:
                top = ua.dtype.type(1 << (8 * ua.dtype.itemsize - 1))
                return pick(np.isnan(r), r, (_unsigned(r) | ((ua ^ ub) & top)).view(r.dtype))
            # -0 counts as less than +0; equal operands differ in nothing but the sign of zero.
            zero = (ua | ub) if low else (ua & ub)
            return pick(a == b, zero.view(r.dtype), r)

        return (_half if kind in HALVES else _finish)(fn, kind, mods, 2)
    fn = np.minimum if low else np.maximum
    relu = _flag(mods, "relu")
    if kind in PAIRS:
        return _pairs((lambda a, b: np.maximum(fn(a, b), a.dtype.type(0))) if relu else fn, kind)
    if relu:
        return Op(lambda a, b: np.maximum(fn(a, b), a.dtype.type(0)), (kind, kind), (kind,))
    return Op(fn, (kind, kind), (kind,))


def _pairs(fn: Callable, kind: str) -> Op:
    """An integer operation on both 16-bit halves of a word."""
    part = DTYPES[kind[:-2]]
    return Op(_lanes2(lambda *args: fn(*(a.view(part) for a in args)).view(u16)), (kind, kind), (kind,))


@_op("and", "or", "xor")
def _logic(op, mods, types):
    kind = types[0]
    fn = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op]
    return Op(fn, (kind, kind), (kind,))


@_op("not")
def _not(op, mods, types):
    return Op(np.invert, types[:1], types[:1])


@_op("cnot")
def _cnot(op, mods, types):
    kind = types[0]
    return Op(lambda a: (a == 0).astype(a.dtype), (kind,), (kind,))


def shift_left(a, n):
    """a << n, 0 where n is the width or more; n is uint32."""
    width = a.dtype.itemsize * 8
    if not isinstance(n, np.ndarray):
        return a << a.dtype.type(n) if n < width else a & a.dtype.type(0)
    return pick(n < width, a << (n & u32(width - 1)).astype(a.dtype), a.dtype.type(0))


def shift_right(a, n):
    """a >> n; a shift by the width or more leaves 0, or the sign for a signed type."""
    width = a.dtype.itemsize * 8
    if a.dtype.kind == "i":
        return a >> np.minimum(n, u32(width - 1)).astype(a.dtype)
    if not isinstance(n, np.ndarray):
        return a >> a.dtype.type(n) if n < width else a & a.dtype.type(0)
    return pick(n < width, a >> (n & u32(width - 1)).astype(a.dtype), a.dtype.type(0))


@_op("shl")
def _shl(op, mods, types):
    return Op(shift_left, (types[0], "u32"), types[:1])


@_op("shr")
def _shr(op, mods, types):
    return Op(shift_right, (types[0], "u32"), types[:1])


@_op("shf")
def _shf(op, mods, types):
    left = _one_of(mods, ("l", "r")) == "l"
    wrap = _one_of(mods, ("wrap", "clamp")) == "wrap"

    def fn(low, high, n):
        n = (n & u32(31)) if wrap else np.minimum(n, u32(32))
        both = (high.astype(u64) << u64(32)) | low.astype(u64)
        n = n.astype(u64)
        if left:
            return (shift_left(both, n.astype(u32)) >> u64(32)).astype(u32)
        return (both >> n).astype(u32)

    return Op(fn, ("b32", "b32", "u32"), ("b32",))


@_op("bfe")
def _bfe(op, mods, types):
    kind = types[0]
    width = _bits(kind)

    def fn(a, position, length):
        position, length = position & u32(255), length & u32(255)
        if kind[0] == "u":
            mask = ~shift_left(~_unsigned(a) | ~a.dtype.type(0), length)
            return shift_right(a, position) & mask
        # Signed: bits above the word repeat its sign, and the field is sign-extended.
        top = np.minimum(position + length, u32(width))
        left = u32(width) - top
        r = shift_right(shift_left(a, left), np.minimum(left + position, u32(width - 1)))
        sign = shift_right(a, u32(width - 1))
        r = pick(position >= width, sign, r)
        return pick(length == 0, a.dtype.type(0), r)

    return Op(fn, (kind, "u32", "u32"), (kind,))


@_op("bfi")
def _bfi(op, mods, types):
    kind = types[0]

    def fn(a, b, position, length):
        position, length = position & u32(255), length & u32(255)
        ones = a.dtype.type(0) | ~a.dtype.type(0)
        mask = ~shift_left(ones | (a & a.dtype.type(0)), length)
        mask = shift_left(mask, position)
        return (b & ~mask) | (shift_left(a, position) & mask)

    return Op(fn, (kind, kind, "u32", "u32"), (kind,))


@_op("bmsk")
def _bmsk(op, mods, types):
    clamp = _one_of(mods, ("clamp", "wrap")) == "clamp"

    def fn(a, b):
        if not clamp:
            a, b = a & u32(31), b & u32(31)
        ones = (a & u32(0)) | u32(0xFFFFFFFF)
        return shift_left(~shift_left(ones, b), a)

    return Op(fn, ("b32", "u32"), ("b32",))


@_op("popc")
def _popc(op, mods, types):
    return Op(lambda a: np.bitwise_count(a).astype(u32), types[:1], ("u32",))


def _length(a):
    """Bits up to and with the highest set one."""
    if a.dtype.itemsize == 8:
        high = (a >> u64(32)).astype(u32)
        return pick(high != 0, _length(high) + u32(32), _length((a & u64(0xFFFFFFFF)).astype(u32)))
    return np.frexp(a.astype(f64))[1].astype(u32)


@_op("clz")
def _clz(op, mods, types):
    width = u32(_bits(types[0]))
    return Op(lambda a: width - _length(a), types[:1], ("u32",))


@_op("bfind")
def _bfind(op, mods, types):
    kind = types[0]
    amount = _flag(mods, "shiftamt")
    width = _bits(kind)

    def fn(a):
        bits = _unsigned(a)
        if kind[0] == "s":
            bits = pick(a < 0, ~bits, bits)
        n = _length(bits) - u32(1)
        return pick(bits == 0, u32(0xFFFFFFFF), u32(width - 1) - n) if amount else n

    return Op(fn, (kind,), ("u32",))


def _reverse(a):
    width = a.dtype.itemsize * 8
    t = a.dtype.type
    for shift, mask in ((1, 0x55), (2, 0x33), (4, 0x0F)):
        m = t(int.from_bytes(bytes([mask]) * (width // 8), "little"))
        a = ((a >> t(shift)) & m) | ((a & m) << t(shift))
    return a.byteswap()


@_op("brev")
def _brev(op, mods, types):
    return Op(_reverse, types[:1], types[:1])


@_op("prmt")
def _prmt(op, mods, types):
    if mods:
        return None

    def fn(a, b, selector):
        both = (b.astype(u64) << u64(32)) | a.astype(u64)
        out = u32(0)
        for k in range(4):
            choice = (selector >> u32(4 * k)).astype(u32)
            byte = (both >> ((choice & u32(7)) * u32(8)).astype(u64)).astype(u32) & u32(255)
            sign = pick(byte & u32(128), u32(255), u32(0))
            byte = pick(choice & u32(8), sign, byte)
            out = out | (byte << u32(8 * k))
        return out

    return Op(fn, ("b32", "b32", "b32"), ("b32",))


@_op("lop3")
def _lop3(op, mods, types):
    def fn(a, b, c, table):
        table = int(table)
        out = a & u32(0)
        for k in range(8):
            if table >> k & 1:
                term = (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
                out = out | term
        return out

    return Op(fn, ("b32",) * 4, ("b32",))


@_op("dp4a", "dp2a")
def _dot(op, mods, types):
    """Dot products of 4 bytes with 4 bytes, or of 2 halves with 2 bytes, onto an integer."""
    count = 4 if op == "dp4a" else 2
    part = _one_of(mods, ("lo", "hi")) if op == "dp2a" else "lo"
    first = count if part == "hi" else 0

    def field(x, kind, bits, k):
        field = _unsigned(x) >> u32(bits * k)
        return field.astype(f"{'u' if kind[0] == 'u' else 'i'}{bits // 8}").astype(s64)

    ka, kb = types
    result = "u32" if ka[0] == kb[0] == "u" else "s32"
    if part is None:
        return None

    def fn(a, b, c):
        total = c.astype(s64)
        for k in range(count):
            total = total + field(a, ka, 32 // count, k) * field(b, kb, 8, first + k)
        return total.astype(u32).view(DTYPES[result])

    return Op(fn, (ka, kb, result), (result,))


@_op("vabsdiff4")
def _vabsdiff4(op, mods, types):
    """Absolute differences of 4 bytes, in place or (.add) summed onto c."""
    dst, ka, kb = types
    total = _flag(mods, "add")

    def field(x, kind, k):
        byte = (_unsigned(x) >> u32(8 * k)).astype(u8)
        return (byte if kind[0] == "u" else byte.view(s8)).astype(s64)

    def fn(a, b, c):
        apart = [np.abs(field(a, ka, k) - field(b, kb, k)).astype(u32) for k in range(4)]
        if total:
            return c + apart[0] + apart[1] + apart[2] + apart[3]
        return apart[0] | apart[1] << u32(8) | apart[2] << u32(16) | apart[3] << u32(24)

    return Op(fn, (ka, kb, dst), (dst,)) if dst == "u32" else None


@_op("fns")
def _fns(op, mods, types):
    """The place of the n-th set bit from `base` on (back, for a negative n); 0 asks for bit `base` itself."""

    def fn(mask, base, n):
        step = pick(n < 0, s64(-1), s64(1))
        left = np.maximum(np.abs(n.astype(s64)), 1)
        reach = pick(n == 0, s64(1), s64(32))
        place, found = base.astype(s64), s64(-1)
        for turn in range(32):
            inside = (place >= 0) & (place < 32) & (turn < reach)
            hit = inside & ((mask >> np.clip(place, 0, 31).astype(u32)) & u32(1)).astype(bool)
            left = left - hit
            found = pick(hit & (left == 0), place, found)
            place = place + step
        return found.astype(u32)

    return Op(fn, ("b32", "u32", "s32"), ("u32",))


# ---------------------------------------------------------------------------- floats


def _flush(x):
    """Subnormal float32 numbers to zero, keeping the sign."""
    tiny = np.abs(x) < np.finfo(f32).tiny
    return pick(tiny, np.copysign(f32(0), x), x)


def _saturate(x):
    # Adding +0 turns -0 into +0.
    zero, one = x.dtype.type(0), x.dtype.type(1)
    return pick(np.isnan(x), zero, np.clip(x, zero, one)) + zero


NAN32 = u32(0x7FFFFFFF).view(f32)


def _finish(fn: Callable, kind: str, mods: set[str], count: int) -> Op:
    """`fn` with .ftz and .sat around it as the modifiers ask, and float32's one NaN for NaNs."""
    ftz = _flag(mods, "ftz")
    sat = _flag(mods, "sat")
    if kind == "f64" and not ftz and not sat:
        return Op(fn, (kind,) * count, (kind,))

    def wrapped(*args):
        if ftz:
            args = [_flush(a) for a in args]
        r = fn(*args)
        if kind == "f32":
            nan = r != r
            if nan.any():
                r = pick(nan, NAN32, r)
        if ftz:
            r = _flush(r)
        return _saturate(r) if sat else r

    return Op(wrapped, (kind,) * count, (kind,))


def two_sum(a, b):
    """Knuth: a + b = s + e exactly."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _two_product(a, b):
    """Dekker: a * b = p + e exactly, barring overflow and underflow."""
    p = a * b
    split = f64(134217729.0)
    t = split * a
    ah = t - (t - a)
    t = split * b
    bh = t - (t - b)
    al, bl = a - ah, b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _odd(s, e):
    """Round s + e (s the nearest float64 of it) to odd: keeps what a second rounding needs."""
    bits = s.view(s64)
    step = pick((e > 0) == (s > 0), s64(1), s64(-1))
    fix = (e != 0) & ((bits & s64(1)) == 0) & np.isfinite(s) & np.isfinite(e)
    return pick(fix, bits + step, bits).view(f64)


def _product(a, b):
    return np.multiply(a, b, dtype=f64), f64(0)


def fma32(a, b, c):
    """a * b + c in float32, rounded once; numbers or arrays of one dimension.

    The product of two float32 is exact in float64; the float64 sum is wrong after the second
    rounding only where it ends in the bits of a float32 midpoint, and those are done again
    through round-to-odd (Boldo and Melquiond 2008).
    """
    p = np.multiply(a, b, dtype=f64)
    s = np.add(p, c, dtype=f64)
    hard = (s.view(s64) & s64(0x0FFFFFFF)) == 0
    if not hard.any():
        return s.astype(f32)
    if s.ndim == 0:
        return _odd(*two_sum(p, f64(c))).astype(f32)
    r = s.astype(f32)
    at = np.flatnonzero(hard)
    c = np.broadcast_to(c, s.shape)
    p = np.broadcast_to(p, s.shape)
    r[at] = _odd(*two_sum(p[at], c[at].astype(f64))).astype(f32)
    return r


def _directed(hi, lo, mode: str):
    """hi + lo (float64, lo below hi's last place) to float32, rounded up, down or to zero."""
    r = np.asarray(hi).astype(f32)
    rest = np.where(np.isfinite(hi), hi - r.astype(f64), 0)
    rest = np.where(rest == 0, lo, rest)
    down = np.nextafter(r, f32(-np.inf))
    up = np.nextafter(r, f32(np.inf))
    if mode == "rz":
        r = np.where((hi > 0) & (rest < 0), down, np.where((hi < 0) & (rest > 0), up, r))
    elif mode == "rm":
        r = np.where(rest < 0, down, r)
    else:
        r = np.where(rest > 0, up, r)
    return r.astype(f32)[()]


def _zero_sign(r, a, b, mode: str):
    """An exact zero sum of opposite signs is -0 when rounding down."""
    if mode != "rm":
        return r
    return pick((r == 0) & (np.signbit(a) != np.signbit(b)), r.dtype.type(-0.0), r)


def _float_add(op: str, mods: set[str], kind: str) -> Op:
    mode = _one_of(mods, ROUNDINGS, "rn")
    if mode == "rn":
        return _finish(np.add if op == "add" else np.subtract, kind, mods, 2)

    def fn(a, b):
        if op == "sub":
            b = -b
        if kind == "f64":
            return _fma_exact(a, f64(1), b, mode)
        r = _directed(*two_sum(a.astype(f64), b.astype(f64)), mode)
        return _zero_sign(r, a, b, mode)

    return _finish(fn, kind, mods, 2)


def _round_fraction(x: Fraction, mode: str) -> float:
    try:
        near = x.numerator / x.denominator
    except OverflowError:
        near = math.inf if x > 0 else -math.inf
    if mode == "rn":
        return near
    exact = None if math.isinf(near) else Fraction(near)
    above = near > 0 if exact is None else exact > x
    below = near < 0 if exact is None else exact < x
    toward_zero = mode == "rz"
    if above and (mode == "rm" or (toward_zero and x > 0)):
        return math.nextafter(near, -math.inf)
    if below and (mode == "rp" or (toward_zero and x < 0)):
        return math.nextafter(near, math.inf)
    return near


def _fma_exact(a, b, c, mode: str):
    """a * b + c lane by lane in exact fractions, rounded once; slow, for rare modes and ranges."""
    a, b, c = np.broadcast_arrays(a, b, c)
    out = np.empty(a.shape, f64)
    for i in np.ndindex(out.shape):
        x, y, z = float(a[i]), float(b[i]), float(c[i])
        if not (math.isfinite(x) and math.isfinite(y)):
            out[i] = f64(x) * f64(y) + f64(z)
            continue
        if not math.isfinite(z):
            out[i] = z
            continue
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if exact == 0:
            # Zeros of one sign keep it; a difference is -0 only when rounding down.
            product = math.copysign(1, x) * math.copysign(1, y)
            same = product == math.copysign(1, z)
            out[i] = math.copysign(0, z if same else (-1 if mode == "rm" else 1))
        else:
            out[i] = math.copysign(_round_fraction(exact, mode), 1 if exact > 0 else -1)
    return out[()]


def fma64(a, b, c):
    """a * b + c in float64, rounded once (Boldo and Melquiond 2008, exact fractions outside)."""
    a, b, c = np.broadcast_arrays(a, b, c)
    shape = a.shape
    a, b, c = (x.ravel() for x in (a, b, c))
    uh, ul = _two_product(a, b)
    th, tl = two_sum(c, ul)
    vh, vl = two_sum(uh, th)
    r = vh + _odd(*two_sum(tl, vl))
    size_a, size_b = np.abs(a), np.abs(b)
    low, high = f64(2.0**-450), f64(2.0**450)
    safe = (size_a > low) & (size_a < high) & (size_b > low) & (size_b < high)
    # A result of zero takes its sign from rules, not from the error terms.
    safe &= (np.abs(c) < f64(2.0**900)) & (r != 0)
    zero = ((a == 0) | (b == 0)) & np.isfinite(a) & np.isfinite(b)
    if not safe.all():
        r = np.where(zero, a * b + c, r)
        at = np.flatnonzero(~(safe | zero))
        r[at] = _fma_exact(a[at], b[at], c[at], "rn")
    return r.reshape(shape)[()]


@_op("fma")
def _fma(op, mods, types):
    signs = _flag(mods, "-ab"), False, _flag(mods, "-c")  # of contracted operations, see contraction.py
    made = _fma_plain(mods, types[0])
    if made is None or not any(signs):
        return made
    top = DTYPES[types[0]].type(0x80008000 if types[0].endswith("x2") else 0x8000) if types[0] in HALVES else None

    def fn(*args):
        turned = (x if not s else -x if top is None else x ^ top for x, s in zip(args, signs, strict=True))
        return made.fn(*turned)

    return Op(fn, made.src, made.dst)


def _fma_plain(mods, kind):
    if kind in HALVES:
        return _half(None, kind, mods, 3)
    mode = _one_of(mods, ROUNDINGS)
    if kind not in ("f32", "f64") or mode is None:
        return None
    if mode == "rn":
        return _finish(fma32 if kind == "f32" else fma64, kind, mods, 3)

    def fn(a, b, c):
        if kind == "f64":
            return _fma_exact(a, b, c, mode)
        p = np.multiply(a, b, dtype=f64)
        r = _directed(*two_sum(p, c.astype(f64)), mode)
        return _zero_sign(r, p, c, mode)

    return _finish(fn, kind, mods, 3)


def _exactly(fn: Callable, mode: str) -> Callable:
    """`fn(values, mode)` on Python floats lane by lane: slow, for the roundings that nobody uses much.

    It rounds to float64; rounding on to float32 in the same direction is rounding once.
    """

    def lanes(*args):
        args = np.broadcast_arrays(*args)
        out = np.empty(args[0].shape, f64)
        for i in np.ndindex(out.shape):
            out[i] = fn(*(float(a[i]) for a in args))
        return out[()] if args[0].dtype == f64 else _directed(out, f64(0), mode)

    return lanes


def _directed_quotient(mode: str) -> Callable:
    def quotient(x, y):
        if not (math.isfinite(x) and math.isfinite(y)) or x == 0 or y == 0:
            return np.divide(f64(x), f64(y))
        return _round_fraction(Fraction(x) / Fraction(y), mode)

    return _exactly(quotient, mode)


def _directed_root(mode: str) -> Callable:
    def root(x):
        if not math.isfinite(x) or x <= 0:
            return np.sqrt(f64(x))
        near = math.sqrt(x)
        error = Fraction(near) ** 2 - Fraction(x)
        if error > 0 and mode != "rp":
            return math.nextafter(near, 0)
        return math.nextafter(near, math.inf) if error < 0 and mode == "rp" else near

    return _exactly(root, mode)


def _in_double(fn: Callable) -> Callable:
    return lambda a: fn(a.astype(f64)).astype(a.dtype)


# 2**f for f from -1/2 to 1/2, by powers of f from the highest: Taylor's, short of a float64's last place by far.
EXP2 = tuple(math.log(2) ** k / math.factorial(k) for k in range(13, -1, -1))


def _exp2(x):
    """2**x of float64 numbers, as far as float32 reaches; of IEEE operations alone, which compiled code repeats."""
    x = pick(x > 200, f64(200), x)
    x = pick(x < -200, f64(-200), x)
    n = np.rint(x)
    f = x - n
    r = f64(EXP2[0])
    for c in EXP2[1:]:
        r = r * f + f64(c)
    whole = pick(np.isnan(n), f64(0), n).astype(s64)
    return r * ((whole + s64(1023)) << s64(52)).view(f64)


def _high_word(fn: Callable) -> Callable:
    """What reads and writes only the upper half of a float64, and has a NaN of its own."""
    high = u64(0xFFFFFFFF00000000)

    def flush(x):
        return pick(np.abs(x) < np.finfo(f64).tiny, np.copysign(f64(0), x), x)

    def wrapped(a):
        r = flush(fn(flush((a.view(u64) & high).view(f64))))
        return pick(np.isnan(r), u64(0x7FFFFFFF00000000), r.view(u64) & high).view(f64)

    return wrapped


@_op("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def _unary(op, mods, types):
    kind = types[0]
    mode = _one_of(mods, (*ROUNDINGS, "approx"))
    if mode is None or (mode != "approx" and op not in ("rcp", "sqrt")):
        return None
    fn = {
        "rcp": lambda a: a.dtype.type(1) / a,
        "sqrt": np.sqrt,
        "rsqrt": lambda a: 1 / np.sqrt(a),
        "ex2": _exp2, "lg2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    }[op]  # fmt: skip
    if kind in HALVES and op in ("ex2", "tanh"):
        # The H200 approximates in float32 and cuts the rest off.
        top = HALF_MAX[kind.removesuffix("x2")]

        def near(a):
            r = fn(a.astype(f64)).astype(f32)
            return pick(r > top, f32(np.inf), r)

        return _half(near, kind, mods, 1, mode="rz")
    if kind not in ("f32", "f64"):
        return None
    if mode in DIRECTED:
        quotient = _directed_quotient(mode)
        return _finish(_directed_root(mode) if op == "sqrt" else lambda a: quotient(a.dtype.type(1), a), kind, mods, 1)
    if kind == "f64" and mode == "approx" and _flag(mods, "ftz") and op in ("rcp", "rsqrt"):
        return Op(_high_word(fn), (kind,), (kind,))
    return _finish(fn if op in ("rcp", "sqrt") else _in_double(fn), kind, mods, 1)


@_op("copysign")
def _copysign(op, mods, types):
    kind = types[0]
    return Op(lambda a, b: np.copysign(b, a), (kind, kind), (kind,))


@_op("testp")
def _testp(op, mods, types):
    kind = types[0]
    tiny = np.finfo(DTYPES[kind]).tiny
    fn = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= tiny),
        "subnormal": lambda a: (np.abs(a) < tiny) & (a != 0),
    }[_one_of(mods, ("finite", "infinite", "number", "notanumber", "normal", "subnormal"))]
    return Op(fn, (kind,), ("pred",))


# ---------------------------------------------------------------------------- halves


def from_half(bits, kind: str):
    """f16 or bf16 bits (uint16) to float32, exactly."""
    if kind == "f16":
        return bits.view(f16).astype(f32)
    return (bits.astype(u32) << u32(16)).view(f32)


NAN16 = u16(0x7FFF)
NAN16_OF_F64 = {"f16": u16(0x7E00), "bf16": u16(0x7FC0)}
HALF_TINY = {"f16": f32(2.0**-14), "bf16": f32(2.0**-126)}
HALF_MAX = {"f16": f32(65504), "bf16": f32(2.0**128 - 2.0**120)}


def to_half(x, kind: str, mode: str = "rn"):
    """float32 to f16 or bf16 bits; every NaN becomes the one that the hardware writes."""
    if kind == "f16":
        near = x.astype(f16).view(u16)
    else:
        bits = x.view(u32)
        near = ((bits + u32(0x7FFF) + ((bits >> u32(16)) & u32(1))) >> u32(16)).astype(u16)
    if mode != "rn":
        # Half-precision numbers are sorted by their bits: one too far is one step back.
        value = from_half(near, kind)
        over, under = value > x, value < x
        negative = x < 0
        back = {"rz": pick(negative, under, over), "rm": over & ~negative, "rp": under & negative}[mode]
        on = {"rz": back & False, "rm": over & negative, "rp": under & ~negative}[mode]
        near = near - back.astype(u16) + on.astype(u16)
    return pick(np.isnan(x), NAN16, near)


def _flush_half(x, kind: str):
    """Subnormal numbers of a half-precision type to zero, keeping the sign."""
    return pick(np.abs(x) < HALF_TINY[kind], np.copysign(f32(0), x), x)


def _relu(x):
    """Negative numbers, -0 too, become +0; NaN stays."""
    return pick(x <= 0, x.dtype.type(0), x)


def _odd32(x):
    """float64 to float32, rounded to odd, so that rounding on to 8 or 11 bits is rounding once."""
    r = x.astype(f32)
    rest = x - r.astype(f64)
    bits = r.view(s32)
    step = pick((rest > 0) == (x > 0), s32(1), s32(-1))
    fix = (rest != 0) & ((bits & s32(1)) == 0) & np.isfinite(r)
    return pick(fix, bits + step, bits).view(f32)


def _half(fn: Callable | None, kind: str, mods: set[str], count: int, mode: str = "rn") -> Op:
    """A half-precision operation in float32, where one rounding more does no harm, or (fn None) an fma."""
    _one_of(mods, ("rn",))
    relu, sat, ftz = _flag(mods, "relu"), _flag(mods, "sat"), _flag(mods, "ftz")
    base = kind.removesuffix("x2")

    def one(*args):
        args = [from_half(x, base) for x in args]
        if ftz:
            args = [_flush_half(x, base) for x in args]
        if fn is None:
            a, b, c = (x.astype(f64) for x in args)
            r = _odd32(_odd(*two_sum(a * b, c)))
        else:
            r = fn(*args)
        if ftz:
            r = _flush_half(r, base)
        if sat:
            r = _saturate(r)
        if relu:
            r = _relu(r)
        return to_half(r, base, mode)

    if kind == base:
        return Op(one, (kind,) * count, (kind,))
    return Op(_lanes2(one), (kind,) * count, (kind,))


def _lanes2(one: Callable) -> Callable:
    def fn(*args):
        low = one(*((a & u32(0xFFFF)).astype(u16) for a in args))
        high = one(*((a >> u32(16)).astype(u16) for a in args))
        return low.astype(u32) | (high.astype(u32) << u32(16))

    return fn


# ---------------------------------------------------------------------------- comparisons

_COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def _nan(a, b):
    return np.isnan(a) | np.isnan(b)


def _comparison(mods: set[str], kind: str, upper: bool = False) -> Callable | None:
    """The test that the modifiers name; for a pair of halves that of the lower or the upper ones."""
    if kind in ("f16x2", "bf16x2"):
        inner = _comparison(mods, kind[:-2])
        shift = u32(16 if upper else 0)
        return inner and (lambda a, b: inner((a >> shift).astype(u16), (b >> shift).astype(u16)))
    if kind in ("f32", "f64", "f16", "bf16"):
        names = [*_COMPARE, *(n + "u" for n in _COMPARE), "num", "nan"]
        name = _one_of(mods, names)
        if name is None:
            return None
        if name == "num":
            fn = lambda a, b: ~_nan(a, b)  # noqa: E731
        elif name == "nan":
            fn = _nan
        elif name == "ne":
            fn = lambda a, b: (a != b) & ~_nan(a, b)  # noqa: E731
        elif name in _COMPARE:
            fn = _COMPARE[name]
        elif name == "neu":
            fn = np.not_equal
        else:
            ordered = _COMPARE[name[:-1]]
            fn = lambda a, b: ordered(a, b) | _nan(a, b)  # noqa: E731
        ftz = _flag(mods, "ftz")
        if kind in ("f16", "bf16"):
            flush = (lambda x: _flush_half(x, kind)) if ftz else (lambda x: x)
            return lambda a, b: fn(flush(from_half(a, kind)), flush(from_half(b, kind)))
        if ftz:
            return lambda a, b: fn(_flush(a), _flush(b))
        return fn
    name = _one_of(mods, [*_COMPARE, *_UNSIGNED])
    return _COMPARE.get(_UNSIGNED.get(name, name))


_COMBINE = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@_op("setp")
def _setp(op, mods, types):
    """Gives (p, q); the engine drops q where the instruction names no second destination."""
    kind = types[0]
    compare = _comparison(mods, kind)
    combine = _COMBINE.get(_one_of(mods, ("and", "or", "xor")))
    if compare is None:
        return None
    if combine is None:
        return Op(compare, (kind, kind), ("pred",))
    return Op(
        lambda a, b, c: combine(compare(a, b), c), (kind, kind, "pred"), ("pred",)
    )


def setp_second(mods: tuple[str, ...], types: tuple[str, ...]) -> Op:
    """The second destination of `setp p|q`: the comparison negated (of halves: of the upper ones), then combined."""
    left = set(mods)
    kind = types[0]
    compare = _comparison(left, kind, upper=True)
    test = compare if kind in HALVES else (lambda a, b: ~compare(a, b))
    combine = _COMBINE.get(_one_of(left, ("and", "or", "xor")))
    if combine is None:
        return Op(test, (kind, kind), ("pred",))
    return Op(lambda a, b, c: combine(test(a, b), c), (kind, kind, "pred"), ("pred",))


@_op("set")
def _set(op, mods, types):
    dst, kind = types
    compare, upper = _comparison(set(mods), kind), _comparison(mods, kind, upper=True)
    combine = _COMBINE.get(_one_of(mods, ("and", "or", "xor")))
    pair = kind in ("f16x2", "bf16x2")
    one = {"f16": 0x3C00, "bf16": 0x3F80}.get(dst.removesuffix("x2"), 0xFFFF)
    if pair:
        yes, no = u32(one), u32(0)
    else:
        yes, no = {
            "u32": (u32(0xFFFFFFFF), u32(0)), "s32": (s32(-1), s32(0)), "f32": (f32(1), f32(0)),
            "u16": (u16(one), u16(0)), "s16": (s16(-1), s16(0)), "f16": (u16(one), u16(0)), "bf16": (u16(one), u16(0)),
        }[dst]  # fmt: skip
    if compare is None:
        return None

    def fn(a, b, c=None):
        tests = [compare(a, b), upper(a, b)] if pair else [compare(a, b)]
        low, *high = (pick(t if combine is None else combine(t, c), yes, no) for t in tests)
        return (low | (high[0] << u32(16))).view(DTYPES[dst]) if pair else low

    return Op(fn, (kind, kind) if combine is None else (kind, kind, "pred"), (dst,))


@_op("selp")
def _selp(op, mods, types):
    kind = types[0]

    def fn(a, b, p):
        if not isinstance(p, np.ndarray):
            return a if p else b
        return np.where(p, a, b)

    return Op(fn, (kind, kind, "pred"), (kind,))


@_op("slct")
def _slct(op, mods, types):
    kind, test = types
    _flag(mods, "ftz")
    return Op(lambda a, b, c: pick(c >= 0, a, b), (kind, kind, test), (kind,))


# ---------------------------------------------------------------------------- conversions


def _to_int(x, kind: str, how: str, double: bool):
    """Round float64 values and saturate to an integer type."""
    x = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[how](x)
    dtype = DTYPES[kind]
    info = np.iinfo(dtype)
    bits = _bits(kind)
    # PTX: NaN becomes 0, or only the top bit set where a 64-bit type takes part.
    nan = dtype.type(info.min if kind[0] == "s" else 1 << (bits - 1))
    if not double and bits < 64:
        nan = dtype.type(0)
    if bits < 64:
        r = np.clip(np.nan_to_num(x, nan=0.0), info.min, info.max).astype(s64).astype(dtype)
    else:
        high, low = float(info.max), float(info.min)  # float(2**63 - 1) is 2**63
        safe = pick((x >= low) & (x < high), x, 0.0)
        r = pick(x >= high, dtype.type(info.max), safe.astype(dtype))
        r = pick(x < low, dtype.type(info.min), r)
    return pick(np.isnan(x), nan, r)


def _int_pair(x):
    """An integer as an exact sum of two float64."""
    if x.dtype.itemsize < 8:
        return x.astype(f64), f64(0)
    high = (x >> x.dtype.type(32)).astype(f64) * f64(2.0**32)
    low = (x & x.dtype.type(0xFFFFFFFF)).astype(f64)
    return two_sum(high, low)


@_op("cvt")
def _cvt(op, mods, types):
    if len(types) != 2:
        return None
    dst, src = types
    if dst in ("f16x2", "bf16x2"):
        one = _float_to_float(dst[:-2], src, mods)
        if one is None or src != "f32":
            return None
        return Op(lambda a, b: (one.fn(a).astype(u32) << u32(16)) | one.fn(b).astype(u32), (src, src), (dst,))
    if dst == "tf32" and src == "f32":
        return _to_tf32(mods)
    floats = ("f16", "bf16", "f32", "f64")
    if src in floats and dst in floats:
        return _float_to_float(dst, src, mods)
    if src in floats:
        how = _one_of(mods, ("rni", "rzi", "rmi", "rpi"))
        ftz = _flag(mods, "ftz")
        _flag(mods, "sat")
        if how is None:
            return None
        double = src == "f64"

        def fn(a):
            if src in ("f16", "bf16"):
                a = from_half(a, src)
            return _to_int(_flush(a).astype(f64) if ftz else a.astype(f64), dst, how, double)

        return Op(fn, (src,), (dst,))
    if dst in floats:
        return _int_to_float(dst, src, mods)
    if _flag(mods, "sat"):
        info = np.iinfo(DTYPES[dst])
        low, high = max(info.min, np.iinfo(DTYPES[src]).min), min(
            info.max, np.iinfo(DTYPES[src]).max
        )
        return Op(lambda a: np.clip(a, low, high).astype(DTYPES[dst]), (src,), (dst,))
    return Op(lambda a: a.astype(DTYPES[dst]), (src,), (dst,))


def _int_to_float(dst: str, src: str, mods: set[str]) -> Op | None:
    mode = _one_of(mods, ROUNDINGS)
    sat = _flag(mods, "sat")
    _flag(mods, "ftz")
    if mode is None:
        return None
    if dst in ("f16", "bf16"):
        return Op(lambda a: to_half(_odd32(_odd(*_int_pair(a))), dst, mode), (src,), (dst,))
    dtype = DTYPES[dst]
    if mode == "rn" or (dst == "f64" and _bits(src) < 64):
        fn = lambda a: a.astype(dtype)  # noqa: E731
    elif dst == "f32":
        fn = lambda a: _directed(*_int_pair(a), mode)  # noqa: E731
    else:
        def fn(a):
            hi, lo = _int_pair(a)
            return _fma_exact(hi, f64(1), lo, mode)
    if sat:
        return Op(lambda a: _saturate(fn(a)), (src,), (dst,))
    return Op(fn, (src,), (dst,))


def _float_to_float(dst: str, src: str, mods: set[str]) -> Op | None:
    whole = _one_of(mods, ("rni", "rzi", "rmi", "rpi"))
    mode = _one_of(mods, ROUNDINGS, "rn")
    ftz, sat, relu = _flag(mods, "ftz"), _flag(mods, "sat"), _flag(mods, "relu")
    finite = _flag(mods, "satfinite")
    rint = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}.get(whole)
    half = dst in ("f16", "bf16")
    if mode != "rn" and not half and (dst, src) != ("f32", "f64"):
        return None

    def fn(a):
        if src in ("f16", "bf16"):
            a = from_half(a, src)
        if ftz and src == "f32":
            a = _flush(a)
        if rint is not None:
            a = rint(a)
        if dst in ("f32", "f64"):
            a = _directed(a, f64(0), mode) if mode != "rn" else a.astype(DTYPES[dst])
        elif a.dtype == f64:
            a = _odd32(a)
        if ftz and dst == "f32":
            a = _flush(a)
        if sat:
            a = _saturate(a)
        if relu:
            a = _relu(a)
        if not half:
            return pick(np.isnan(a), NAN32, a) if src == "f16" and dst == "f32" else a
        if finite:
            a = pick(np.isnan(a), a, np.clip(a, -HALF_MAX[dst], HALF_MAX[dst]))
        bits = to_half(a, dst, mode)
        return pick(np.isnan(a), NAN16_OF_F64[dst], bits) if src == "f64" else bits

    return Op(fn, (src,), (dst,))


def _to_tf32(mods: set[str]) -> Op | None:
    """float32 with 10 bits of mantissa left, in a 32-bit register."""
    mode = _one_of(mods, ("rna", "rn", "rz"))
    relu, finite = _flag(mods, "relu"), _flag(mods, "satfinite")
    if mode is None:
        return None

    def fn(a):
        bits = (_relu(a) if relu else a).view(u32)
        up = {"rna": u32(0x1000), "rn": u32(0xFFF) + ((bits >> u32(13)) & u32(1)), "rz": u32(0)}[mode]
        r = (bits + up) & u32(0xFFFFE000)
        if finite:
            r = pick(r & u32(0x7FFFFFFF) == u32(0x7F800000), r - u32(0x2000), r)
        nan = np.isnan(a) if mode != "rna" else False
        return pick(nan, u32(0x7FFFE000), pick(np.isinf(a) & ~np.bool_(finite), bits, r))

    return Op(fn, ("f32",), ("tf32",))
