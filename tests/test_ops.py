"""PTX arithmetic one instruction at a time, against Python's integers and fractions."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.emulator import ops

RNG = np.random.default_rng(7)


def op(text: str) -> ops.Op:
    name, *words = text.split(".")
    types = tuple(w for w in words if w in ops.DTYPES)
    return ops.lookup(name, tuple(w for w in words if w not in ops.DTYPES), types)


def run(text: str, *values):
    """Apply an instruction to Python numbers or arrays, cast to its source types."""
    o = op(text)
    args = []
    for value, kind in zip(values, o.src, strict=True):
        dtype = ops.DTYPES[kind]
        if dtype.kind in "iu" and not isinstance(value, np.ndarray):
            bits = int(value) % (1 << (8 * dtype.itemsize))
            value = np.array(bits, f"u{dtype.itemsize}").view(dtype)[()]
        elif not isinstance(value, np.ndarray):
            value = dtype.type(value)
        args.append(value)
    with np.errstate(all="ignore"):
        result = o.fn(*args)
    for r, kind in zip(result if isinstance(result, tuple) else (result,), o.dst, strict=True):
        assert r.dtype == ops.DTYPES[kind], f"{text} gives {r.dtype}, not {kind}"
    return result


def wrap(value: int, kind: str) -> int:
    bits = int(kind[1:])
    value %= 1 << bits
    return value - (1 << bits) if kind[0] == "s" and value >> (bits - 1) else value


def unsigned(value: int, bits: int) -> int:
    return value % (1 << bits)


def samples(kind: str, count: int = 40) -> list[int]:
    bits = int(kind[1:])
    edges = [0, 1, 2, 3, 31, 32, 255, (1 << bits) - 1, (1 << bits) - 2, 1 << (bits - 1), (1 << (bits - 1)) - 1]
    values = edges + [int(v) for v in RNG.integers(0, 1 << 63, count)]
    return [wrap(v, kind) for v in values]


def trunc_div(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return -q if (a < 0) != (b < 0) else q


INTEGER = {
    "add": lambda a, b, n: a + b,
    "sub": lambda a, b, n: a - b,
    "mul.lo": lambda a, b, n: a * b,
    "mul.hi": lambda a, b, n: a * b >> n,
    "min": lambda a, b, n: min(a, b),
    "max": lambda a, b, n: max(a, b),
    "div": lambda a, b, n: trunc_div(a, b) if b else -1,
    "rem": lambda a, b, n: a - b * trunc_div(a, b) if b else a,
}


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("name", INTEGER)
def test_integer_arithmetic(name: str, kind: str) -> None:
    n = int(kind[1:])
    xs, ys = samples(kind), samples(kind)[::-1]
    pairs = [(x, y) for x in xs[:11] for y in ys[-11:]] + list(zip(xs, ys, strict=True))
    a, b = (np.array([p[k] for p in pairs], ops.DTYPES[kind]) for k in (0, 1))
    got = run(f"{name}.{kind}", a, b)
    want = [wrap(INTEGER[name](x, y, n), kind) for x, y in pairs]
    assert got.tolist() == want
    scalar = run(f"{name}.{kind}", a[5], b[5])
    assert not isinstance(scalar, np.ndarray) and int(scalar) == want[5]


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32"])
def test_wide_products(kind: str) -> None:
    a, b = np.array(samples(kind), ops.DTYPES[kind]), np.array(samples(kind)[::-1], ops.DTYPES[kind])
    wide = f"{kind[0]}{2 * int(kind[1:])}"
    got = run(f"mul.wide.{kind}", a, b)
    assert got.tolist() == [x * y for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    c = np.array(samples(wide, len(a) - 11), ops.DTYPES[wide])
    got = run(f"mad.wide.{kind}", a, b, c)
    assert got.tolist() == [wrap(x * y + z, wide) for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]


@given(st.integers(0, 2**128 - 1), st.integers(0, 2**128 - 1))
def test_carry_chains(a: int, b: int) -> None:
    words = range(0, 128, 32)
    for first, rest, want in (("add", "addc", a + b), ("sub", "subc", a - b)):
        out, carry = 0, None
        for k in words:
            x, y = a >> k & 0xFFFFFFFF, b >> k & 0xFFFFFFFF
            if carry is None:
                r, carry = run(f"{first}.cc.u32", x, y)
            else:
                r, carry = run(f"{rest}.cc.u32", x, y, carry)
            out |= int(r) << k
        assert out == want % 2**128


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_multiply_add_with_carry(a: int, b: int, c: int) -> None:
    low, carry = run("mad.lo.cc.u32", a, b, c & 0xFFFFFFFF)
    high = run("madc.hi.u32", a, b, c >> 32, carry)
    assert int(low) | int(high) << 32 == (a * b + c) % 2**64


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
def test_shifts_clamp(x: int, n: int) -> None:
    _shifts(x, n)
    _shifts(x, n % 70)


def _shifts(x: int, n: int) -> None:
    for bits in (16, 32, 64):
        a = x % (1 << bits)
        assert int(run(f"shl.b{bits}", a, n)) == (a << min(n, 99)) % (1 << bits)
        assert int(run(f"shr.u{bits}", a, n)) == a >> min(n, 99)
        assert int(run(f"shr.s{bits}", a, n)) == wrap(a, f"s{bits}") >> min(n, 99)
        many = run(f"shr.u{bits}", np.array([a] * 2, f"u{bits // 8}"), np.array([n] * 2, np.uint32))
        assert many.tolist() == [a >> min(n, 99)] * 2
    both, m = x, min(n, 32)
    low, high = both & 0xFFFFFFFF, both >> 32
    assert int(run("shf.l.clamp.b32", low, high, n)) == (both << m >> 32) % 2**32
    assert int(run("shf.r.clamp.b32", low, high, n)) == (both >> m) % 2**32
    assert int(run("shf.l.wrap.b32", low, high, n)) == (both << n % 32 >> 32) % 2**32
    assert int(run("shf.r.wrap.b32", low, high, n)) == (both >> n % 32) % 2**32


def bfe(a: int, pos: int, length: int, kind: str) -> int:
    """The loop of the PTX manual."""
    bits = int(kind[1:])
    msb = bits - 1
    pos, length = pos & 255, length & 255
    raw = unsigned(a, bits)
    if kind[0] == "u" or length == 0:
        sign = 0
    else:
        sign = raw >> min(pos + length - 1, msb) & 1
    d = 0
    for i in range(msb + 1):
        d |= ((raw >> (pos + i) & 1) if i < length and pos + i <= msb else sign) << i
    return wrap(d, kind)


def bfi(a: int, b: int, pos: int, length: int, bits: int) -> int:
    pos, length, d = pos & 255, length & 255, b
    for i in range(bits):
        if i < length and pos + i <= bits - 1:
            d = d & ~(1 << (pos + i)) | (a >> i & 1) << (pos + i)
    return d


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 300), st.integers(0, 300))
@settings(max_examples=200)
def test_bit_fields(a: int, b: int, pos: int, length: int) -> None:
    for p, n in ((pos, length), (pos % 40, length % 40)):
        for bits in (32, 64):
            for sign in "us":
                kind = f"{sign}{bits}"
                x = wrap(a, kind)
                assert int(run(f"bfe.{kind}", x, p, n)) == bfe(x, p, n, kind)
            x, y = a % (1 << bits), b % (1 << bits)
            assert int(run(f"bfi.b{bits}", x, y, p, n)) == bfi(x, y, p, n, bits)


@given(st.integers(0, 2**64 - 1))
def test_bit_counts(x: int) -> None:
    for bits in (32, 64):
        whole = x % (1 << bits)
        for a in (whole, whole >> bits // 2, 0):
            assert int(run(f"popc.b{bits}", a)) == a.bit_count()
            assert int(run(f"clz.b{bits}", a)) == bits - a.bit_length()
            assert int(run(f"brev.b{bits}", a)) == int(f"{a:0{bits}b}"[::-1], 2)
            assert int(run(f"bfind.u{bits}", a)) == unsigned(a.bit_length() - 1, 32)
            assert int(run(f"not.b{bits}", a)) == a ^ ((1 << bits) - 1)
            assert int(run(f"cnot.b{bits}", a)) == (a == 0)


@given(*[st.integers(0, 2**32 - 1)] * 3, st.integers(0, 255))
def test_lop3_and_prmt(a: int, b: int, c: int, table: int) -> None:
    want = 0
    for bit in range(32):
        k = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | c >> bit & 1
        want |= (table >> k & 1) << bit
    assert int(run("lop3.b32", a, b, c, table)) == want
    source = a.to_bytes(4, "little") + b.to_bytes(4, "little")
    out = []
    for k in range(4):
        n = c >> 4 * k & 15
        byte = source[n & 7]
        out.append((255 if byte & 128 else 0) if n & 8 else byte)
    assert int(run("prmt.b32", a, b, c)) == int.from_bytes(bytes(out), "little")


def test_small_integer_operations() -> None:
    assert run("mul24.lo.u32", 0xFF000003, 5) == 15
    assert run("mul24.lo.s32", -3, 5) == -15
    assert run("sad.u32", 3, 10, 100) == 107
    assert run("add.sat.s32", 2**31 - 1, 5) == 2**31 - 1
    assert run("sub.sat.s32", -(2**31), 5) == -(2**31)
    assert run("dp4a.s32.s32", 0xFF02FE01, 0x01020304, 10) == 10 + 1 * 4 - 2 * 3 + 2 * 2 - 1 * 1
    assert run("abs.s32", -7) == 7 and run("neg.s64", 9) == -9
    assert run("slct.u32.s32", 1, 2, -1) == 2
    assert run("bmsk.clamp.b32", 4, 8) == 0xFF0


@given(*[st.integers(0, 2**32 - 1)] * 3)
def test_byte_differences(a: int, b: int, c: int) -> None:
    for kind, signed in (("u32", False), ("s32", True)):
        x, y = (np.array([v], np.uint32).view(np.int8 if signed else np.uint8).tolist() for v in (a, b))
        apart = [abs(p - q) for p, q in zip(x, y, strict=True)]
        assert int(run(f"vabsdiff4.u32.{kind}.{kind}", a, b, c)) == int.from_bytes(bytes(apart), "little")
        assert int(run(f"vabsdiff4.u32.{kind}.{kind}.add", a, b, c)) == (c + sum(apart)) % 2**32


@given(st.integers(0, 2**32 - 1), st.integers(0, 31), st.integers(-33, 33))
def test_find_nth_set(mask: int, base: int, n: int) -> None:
    """The loop of the PTX manual."""
    want = 2**32 - 1
    if n == 0:
        want = base if mask >> base & 1 else want
    place, count = base, abs(n) - 1
    while n and 0 <= place < 32:
        if mask >> place & 1:
            if count == 0:
                want = place
                break
            count -= 1
        place += 1 if n > 0 else -1
    assert int(run("fns.b32", mask, base, n)) == want


# ---------------------------------------------------------------------------- floats

F32 = st.floats(width=32)
F64 = st.floats()
HARD = st.one_of(
    F32,
    st.builds(lambda m, e: math.ldexp(m, e), st.integers(-(2**24) + 1, 2**24 - 1), st.integers(-149, 80)),
    st.builds(lambda m, e: math.ldexp(m, e), st.integers(-8, 8), st.integers(-149, 127 - 4)),
)


def bits_of(x) -> int:
    x = np.asarray(x)
    return int(x.view(f"u{x.dtype.itemsize}"))


def rounded(x: Fraction, mode: str, digits: int, low: int, high: int) -> float:
    """x to `digits` bits, last place at least 2**low, largest exponent `high`, by integers."""
    if x == 0:
        return 0.0
    sign, x = (-1 if x < 0 else 1), abs(x)
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    if Fraction(2) ** exponent > x:
        exponent -= 1
    place = max(exponent - digits + 1, low)
    scaled = x / Fraction(2) ** place
    floor = scaled.numerator // scaled.denominator
    rest = scaled - floor
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and floor % 2 == 1),
        "rz": False,
        "rm": rest > 0 and sign < 0,
        "rp": rest > 0 and sign > 0,
    }[mode]
    floor += up
    if Fraction(floor) * Fraction(2) ** place >= Fraction(2) ** (high + 1):
        away = mode == "rn" or (mode == "rm" and sign < 0) or (mode == "rp" and sign > 0)
        largest = math.ldexp(2 - 2.0 ** (1 - digits), high)
        return sign * (math.inf if away else largest)
    return sign * math.ldexp(floor, place)


def to32(x: Fraction, mode: str = "rn") -> float:
    return rounded(x, mode, 24, -149, 127)


def to64(x: Fraction, mode: str = "rn") -> float:
    return rounded(x, mode, 53, -1074, 1023)


def finite(*values: float) -> bool:
    return all(math.isfinite(v) for v in values)


@given(HARD, HARD, HARD)
@settings(max_examples=1500)
def test_fma32_rounds_once(a: float, b: float, c: float) -> None:
    a, b, c = (float(np.float32(v)) for v in (a, b, c))
    got = run("fma.rn.f32", a, b, c)
    if not finite(a, b, c):
        with np.errstate(all="ignore"):
            want = float(np.float64(a) * b + c)
        assert np.array_equal(float(got), want, equal_nan=True)
        return
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    assert float(got) == to32(exact)
    for mode in ("rz", "rm", "rp"):
        assert float(run(f"fma.{mode}.f32", a, b, c)) == to32(exact, mode)


def test_fma32_where_rounding_twice_is_wrong() -> None:
    """c + a * b a hair below a midpoint of float32, less than float64 can tell from it."""
    n = 3000
    a, b, c = (RNG.standard_normal(n).astype(np.float32) for _ in range(3))
    k = RNG.integers(1, 4, n)[::3] * np.float32(2.0**-23)
    a[::3] = np.float32(2.0**-24) * (1 + k)
    b[::3] = 1 - k
    c[::3] = np.float32(1.5 + 2.0**-23)
    got = run("fma.rn.f32", a, b, c)
    want = [to32(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))) for x, y, z in zip(a, b, c, strict=True)]
    assert got.tolist() == want
    twice = (a.astype(np.float64) * b + c).astype(np.float32)
    assert (twice[::3] != got[::3]).all(), "the samples do not reach the hard cases"
    assert float(run("fma.rn.f32", a[0], b[0], c[0])) == want[0]


WIDE = st.one_of(
    F64,
    st.builds(lambda m, e: math.ldexp(m, e), st.integers(-(2**53) + 1, 2**53 - 1), st.integers(-1074, 900)),
    st.builds(lambda m, e: math.ldexp(m, e), st.integers(-9, 9), st.integers(-60, 60)),
)


@given(WIDE, WIDE, WIDE)
@settings(max_examples=1500)
def test_fma64_rounds_once(a: float, b: float, c: float) -> None:
    got = run("fma.rn.f64", a, b, c)
    if not finite(a, b, c):
        want = c if finite(a, b) else a * b + c
        assert np.array_equal(float(got), want, equal_nan=True)
        return
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    assert float(got) == to64(exact)
    for mode in ("rz", "rm", "rp"):
        assert float(run(f"fma.{mode}.f64", a, b, c)) == to64(exact, mode)


@given(HARD, HARD)
@settings(max_examples=400)
def test_directed_rounding(a: float, b: float) -> None:
    a, b = float(np.float32(a)), float(np.float32(b))
    if not finite(a, b):
        return
    for mode in ("rn", "rz", "rm", "rp"):
        total, product = Fraction(a) + Fraction(b), Fraction(a) * Fraction(b)
        assert float(run(f"add.{mode}.f32", a, b)) == to32(total, mode)
        assert float(run(f"sub.{mode}.f32", a, -b)) == to32(total, mode)
        assert float(run(f"mul.{mode}.f32", a, b)) == to32(product, mode)
        assert float(run(f"add.{mode}.f64", a, b)) == to64(total, mode)
        assert float(run(f"mul.{mode}.f64", a, b)) == to64(product, mode)


def test_zeros_keep_their_sign() -> None:
    for kind in ("f32", "f64"):
        assert not np.signbit(run(f"add.rn.{kind}", 1.0, -1.0))
        assert np.signbit(run(f"add.rm.{kind}", 1.0, -1.0))
        assert np.signbit(run(f"fma.rm.{kind}", 1.0, 1.0, -1.0))
        assert not np.signbit(run(f"fma.rn.{kind}", 1.0, 1.0, -1.0))
        assert np.signbit(run(f"fma.rn.{kind}", -1.0, 0.0, -0.0))
        assert not np.signbit(run(f"fma.rn.{kind}", -1.0, 0.0, 0.0))
        assert np.signbit(run(f"mul.rm.{kind}", -1.0, 0.0))


@given(F32, F32)
def test_min_max_drop_nan(a: float, b: float) -> None:
    for name, fn in (("min", min), ("max", max)):
        got = run(f"{name}.f32", a, b)
        if math.isnan(a) or math.isnan(b):
            rest = [v for v in (a, b) if not math.isnan(v)]
            assert float(got) == rest[0] if rest else np.isnan(got)
            assert np.isnan(run(f"{name}.NaN.f32", a, b))
        else:
            # By order, and by the sign for zeros.
            want = fn((a, b), key=lambda v: (v, math.copysign(1, v)))
            assert bits_of(got) == bits_of(np.float32(want))
            assert bits_of(run(f"{name}.NaN.f32", a, b)) == bits_of(np.float32(want))


def test_min_max_of_zeros_in_arrays() -> None:
    a, b = np.array([0.0, -0.0], np.float32), np.array([-0.0, 0.0], np.float32)
    assert np.signbit(run("min.f32", a, b)).all()
    assert not np.signbit(run("max.f32", a, b)).any()


def test_float32_has_one_nan() -> None:
    payload = np.array([0x7FC12345, 0xFF800001, 0x3F800000], np.uint32).view(np.float32)
    one = np.ones(3, np.float32)
    for got in (
        run("add.f32", payload, one),
        run("mul.f32", payload, one),
        run("fma.rn.f32", one, one, payload),
        run("max.NaN.f32", payload, one),
        run("sub.f32", np.float32(np.inf), np.full(3, np.inf, np.float32)),
    ):
        nan = np.isnan(got)
        assert nan[:2].all() and set(got[nan].view(np.uint32).tolist()) == {0x7FFFFFFF}
    assert bits_of(run("div.rn.f32", 0.0, 0.0)) == 0x7FFFFFFF


def test_flush_and_saturate() -> None:
    tiny = 1e-40
    assert run("add.f32", tiny, 0.0) != 0
    assert run("add.ftz.f32", tiny, 0.0) == 0
    assert np.signbit(run("mul.ftz.f32", -1e-30, 1e-10))
    assert run("add.sat.f32", 5.0, 1.0) == 1
    assert run("add.sat.f32", -5.0, 1.0) == 0
    assert run("fma.rn.sat.f32", math.nan, 1.0, 1.0) == 0
    assert run("setp.eq.ftz.f32", tiny, 0.0) and not run("setp.eq.f32", tiny, 0.0)


def test_division_and_roots_are_exact() -> None:
    a = RNG.standard_normal(500).astype(np.float32)
    b = RNG.standard_normal(500).astype(np.float32)
    want = [to32(Fraction(float(x)) / Fraction(float(y))) for x, y in zip(a, b, strict=True)]
    assert run("div.rn.f32", a, b).tolist() == want
    assert run("rcp.rn.f32", b).tolist() == [to32(1 / Fraction(float(y))) for y in b]
    root = run("sqrt.rn.f32", np.abs(a))
    for x, r in zip(np.abs(a), root, strict=True):
        low, high = (np.nextafter(r, np.float32(k)) for k in (0, np.inf))
        near = abs(Fraction(float(r)) ** 2 - Fraction(float(x)))
        assert near <= abs(Fraction(float(low)) ** 2 - Fraction(float(x)))
        assert near <= abs(Fraction(float(high)) ** 2 - Fraction(float(x)))


def test_approximations_are_close() -> None:
    x = np.linspace(0.1, 5, 200).astype(np.float32)
    for name, fn in (
        ("ex2.approx", np.exp2), ("lg2.approx", np.log2), ("sin.approx", np.sin), ("cos.approx", np.cos),
        ("tanh.approx", np.tanh), ("rsqrt.approx", lambda v: 1 / np.sqrt(v)), ("rcp.approx", lambda v: 1 / v),
    ):  # fmt: skip
        np.testing.assert_allclose(run(f"{name}.f32", x), fn(x.astype(np.float64)), rtol=2e-7, atol=1e-7)
    assert run("ex2.approx.f32", -200.0) == 0 and run("rcp.approx.f32", 0.0) == math.inf


def test_signs_and_kinds() -> None:
    assert run("copysign.f32", -1.0, 3.0) == -3
    assert np.signbit(run("neg.f32", 0.0)) and run("abs.f64", -2.5) == 2.5
    for kind, yes in (
        ("finite", [0, 1, 2]), ("infinite", [3]), ("number", [0, 1, 2, 3]), ("notanumber", [4]),
        ("normal", [1]), ("subnormal", [2]),
    ):  # fmt: skip
        x = np.array([0, 1, 1e-40, np.inf, np.nan], np.float32)
        assert np.flatnonzero(run(f"testp.{kind}.f32", x)).tolist() == yes


# ---------------------------------------------------------------------------- comparisons


@given(F32, F32)
def test_float_comparisons(a: float, b: float) -> None:
    nan = math.isnan(a) or math.isnan(b)
    plain = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
    for name, holds in plain.items():
        assert bool(run(f"setp.{name}.f32", a, b)) == (holds and not nan)
        assert bool(run(f"setp.{name}u.f32", a, b)) == (holds or nan)
    assert bool(run("setp.num.f32", a, b)) != nan
    assert bool(run("setp.nan.f32", a, b)) == nan


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1), st.booleans())
def test_integer_comparisons(a: int, b: int, c: bool) -> None:
    ua, ub = a % 2**32, b % 2**32
    assert bool(run("setp.lt.s32", a, b)) == (a < b)
    assert bool(run("setp.lt.u32", a, b)) == (ua < ub)
    assert bool(run("setp.hs.u32", a, b)) == (ua >= ub)
    assert bool(run("setp.ge.and.s32", a, b, c)) == (a >= b and c)
    assert bool(run("setp.ge.or.s32", a, b, c)) == (a >= b or c)
    assert bool(run("setp.ge.xor.s32", a, b, c)) == ((a >= b) != c)
    second = ops.setp_second(("ge", "and"), ("s32",))
    assert bool(second.fn(np.int32(a), np.int32(b), np.bool_(c))) == (not a >= b and c)
    assert int(run("set.gt.u32.s32", a, b)) == (2**32 - 1 if a > b else 0)
    assert int(run("selp.b32", a, b, c)) == (ua if c else ub)


# ---------------------------------------------------------------------------- conversions


@pytest.mark.parametrize("how, fn", [("rzi", math.trunc), ("rmi", math.floor), ("rpi", math.ceil), ("rni", round)])
@given(x=st.one_of(F32, st.floats(-300, 300, width=32), st.sampled_from([2.0**31, -(2.0**31), 2.0**63, 2.0**64, 0.5])))
def test_float_to_integer_saturates(how: str, fn, x: float) -> None:
    for source in ("f32", "f64"):
        for kind in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"):
            bits = int(kind[1:])
            low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
            got = int(run(f"cvt.{how}.{kind}.{source}", x))
            if math.isnan(x):
                top = 1 << (bits - 1)
                want = 0 if source == "f32" and bits < 64 else (-top if kind[0] == "s" else top)
            elif math.isinf(x):
                want = high if x > 0 else low
            else:
                want = min(max(fn(x), low), high)
            assert got == want, (how, kind, source)


@given(st.integers(0, 2**64 - 1))
@settings(max_examples=300)
def test_integer_to_float(x: int) -> None:
    for kind in ("u16", "s16", "u32", "s32", "u64", "s64"):
        for value in (wrap(x, kind), wrap(x >> 40, kind), wrap(2**24 + 1, kind)):
            for mode in ("rn", "rz", "rm", "rp"):
                assert float(run(f"cvt.{mode}.f32.{kind}", value)) == to32(Fraction(value), mode)
                assert float(run(f"cvt.{mode}.f64.{kind}", value)) == to64(Fraction(value), mode)
            if abs(value) < 60000:
                assert float(run(f"cvt.rn.f16.{kind}", value).view(np.float16)) == rounded(
                    Fraction(value), "rn", 11, -24, 15
                )


@given(WIDE)
@settings(max_examples=400)
def test_float_narrowing(x: float) -> None:
    if math.isnan(x):
        assert np.isnan(run("cvt.rn.f32.f64", x))
        return
    if math.isinf(x):
        assert run("cvt.rn.f32.f64", x) == x
        return
    exact = Fraction(x)
    for mode in ("rn", "rz", "rm", "rp"):
        assert float(run(f"cvt.{mode}.f32.f64", x)) == to32(exact, mode)
    assert float(run("cvt.rn.f16.f64", x).view(np.float16)) == rounded(exact, "rn", 11, -24, 15)
    assert float(ops.from_half(run("cvt.rn.bf16.f64", x), "bf16")) == rounded(exact, "rn", 8, -133, 127)
    with np.errstate(over="ignore"):
        y = float(np.float32(x))
    if math.isfinite(y):
        assert float(run("cvt.rn.f16.f32", y).view(np.float16)) == rounded(Fraction(y), "rn", 11, -24, 15)
        assert float(ops.from_half(run("cvt.rn.bf16.f32", y), "bf16")) == rounded(Fraction(y), "rn", 8, -133, 127)


def test_other_conversions() -> None:
    assert run("cvt.s64.s32", -5) == -5 and run("cvt.u64.u32", -5) == 2**32 - 5
    assert run("cvt.u8.u32", 0x1FF) == 255 and run("cvt.sat.u8.s32", 300) == 255
    assert run("cvt.sat.u8.s32", -3) == 0 and run("cvt.sat.s8.u32", 200) == 127
    assert run("cvt.rni.f32.f32", 2.5) == 2 and run("cvt.rpi.f32.f32", 2.1) == 3
    assert run("cvt.sat.f32.f32", 1.5) == 1
    one, two = np.float16(1).view(np.uint16), np.float16(2).view(np.uint16)
    assert run("cvt.rn.f16x2.f32", 1.0, 2.0) == int(one) << 16 | int(two)
    assert run("cvt.f32.f16", int(two)) == 2


@given(*[st.integers(0, 2**16 - 1)] * 3)
@settings(max_examples=400)
def test_halves(a: int, b: int, c: int) -> None:
    for kind, digits, low, high in (("f16", 11, -24, 15), ("bf16", 8, -133, 127)):
        x, y, z = (float(ops.from_half(np.uint16(v), kind)) for v in (a, b, c))
        if not finite(x, y, z):
            continue
        fx, fy, fz = Fraction(x), Fraction(y), Fraction(z)
        for name, exact, args in (
            (f"add.rn.{kind}", fx + fy, (a, b)),
            (f"sub.rn.{kind}", fx - fy, (a, b)),
            (f"mul.rn.{kind}", fx * fy, (a, b)),
            (f"fma.rn.{kind}", fx * fy + fz, (a, b, c)),
        ):
            want = rounded(exact, "rn", digits, low, high)
            assert float(ops.from_half(run(name, *args), kind)) == want, name
            both = run(name + "x2", *(v | v << 16 for v in args))
            assert float(ops.from_half(np.uint16(int(both) >> 16), kind)) == want


def test_unknown_instructions_are_named() -> None:
    for text in ("add.rn.f128", "frobnicate.u32", "add.weird.u32", "rsqrt.rz.f32", "div.f32", "add.ftz.f64x2"):
        with pytest.raises(ops.Unsupported):
            op(text)


def test_reference_rounding_is_right() -> None:
    """The second source itself, against struct's rounding to float32."""
    for x in RNG.standard_normal(500) * 10.0 ** RNG.integers(-44, 38, 500):
        assert to32(Fraction(float(x))) == struct.unpack("f", struct.pack("f", float(x)))[0]
