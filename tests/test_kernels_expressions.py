"""The expressions of launch lines: C's values, and nothing that C and Python read differently."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.kernels import KernelError
from labkit.kernels.expressions import evaluate, parse


def value(text: str, **names: object) -> int | float:
    (node,) = parse(text, "f.cu:1")
    return evaluate(node, names, "f.cu:1")


class Undefined(Exception):
    """C gives the expression no value (or 64 bits do not hold it)."""


# An expression as a tree; the oracle below reads the tree, the evaluator reads the text.
NUMBERS = st.integers(0, 2**31) | st.sampled_from([0, 1, 2, 3, 7, 15, 16, 255, 2**40, 2**62])
NAMES = {"M": 4097, "N": -13, "K": 0, "S": 3}
LEAVES = NUMBERS | st.sampled_from(sorted(NAMES))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.tuples(st.sampled_from("- + ~".split()), inner)
    | st.tuples(st.sampled_from("+ - * / % << >> & | ^ == != < <= > >= min max".split()), inner, inner),
    max_leaves=12,
)


def text_of(tree: object) -> str:
    if not isinstance(tree, tuple):
        return str(tree)
    if len(tree) == 2:
        return f"({tree[0]} {text_of(tree[1])})"
    op, a, b = tree[0], text_of(tree[1]), text_of(tree[2])
    return f"{op}({a}, {b})" if op in ("min", "max") else f"({a} {op} {b})"


def in_c(tree: object) -> int:
    """What C computes with 64-bit integers, by truncating real quotients, not by Python's division."""
    if isinstance(tree, str):
        return NAMES[tree]
    if isinstance(tree, int):
        return tree
    if len(tree) == 2:
        a = in_c(tree[1])
        result = {"-": -a, "+": a, "~": -a - 1}[tree[0]]
    else:
        op, a, b = tree[0], in_c(tree[1]), in_c(tree[2])
        if op in ("/", "%"):
            if b == 0:
                raise Undefined
            quotient = math.trunc(a / b) if abs(a) < 2**50 and abs(b) < 2**50 else int(_exact_trunc(a, b))
            if not -(2**63) <= quotient < 2**63:
                raise Undefined
            result = quotient if op == "/" else a - quotient * b
        elif op in ("<<", ">>"):
            if not 0 <= b <= 63 or (op == "<<" and a < 0):
                raise Undefined
            result = a * 2**b if op == "<<" else math.floor(a / 2**b) if abs(a) < 2**50 else (a - a % 2**b) // 2**b
        elif op in ("&", "|", "^"):
            bits_a, bits_b = ctypes.c_uint64(a).value, ctypes.c_uint64(b).value
            joined = {"&": bits_a & bits_b, "|": bits_a | bits_b, "^": bits_a ^ bits_b}[op]
            result = ctypes.c_int64(joined).value
        elif op in ("min", "max"):
            result = (a if a < b else b) if op == "min" else (a if a > b else b)
        elif op in ("+", "-", "*"):
            result = {"+": a + b, "-": a - b, "*": a * b}[op]
        else:
            result = int({"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op])
    if not -(2**63) <= result < 2**63:
        raise Undefined
    return result


def _exact_trunc(a: int, b: int) -> int:
    from fractions import Fraction

    return math.trunc(Fraction(a, b))


@given(TREES)
def test_values_are_those_of_c(tree):
    try:
        expected = in_c(tree)
    except Undefined:
        with pytest.raises(KernelError):
            value(text_of(tree), **NAMES)
    else:
        got = value(text_of(tree), **NAMES)
        assert (type(got), got) == (int, expected)


@pytest.mark.skipif(not (shutil.which("gcc") or shutil.which("cc")), reason="there is no C compiler here")
def test_a_c_compiler_agrees(tmp_path):
    texts = [
        "(M + 15) / 16", "-7 / 2", "-7 % 3", "7 % -3", "N / 4", "N % 4", "N >> 1", "1 << 4 + 1", "3 - 2 - 1",
        "2 * 3 % 4", "6 & 3 ^ 5 | 8", "~M & 255", "(M & 7) == 0", "1 + (M > 3)", "-N / 4 * 4", "M - N * K",
        "0x10 + 3", "1 << 40", "8 >> 1 << 2",
    ]  # fmt: skip
    source = ["#include <stdio.h>", "int main(void) { long long M = 4097, N = -13, K = 0;"]
    # Literals are 64-bit in the launch code that the extension's build writes; here a cast makes them so.
    source += [f'printf("%lld\\n", (long long)({t.replace("1 <<", "1LL <<")}));' for t in texts]
    (tmp_path / "e.c").write_text("\n".join([*source, "return 0; }"]))
    compiler = shutil.which("gcc") or shutil.which("cc")
    subprocess.run([compiler, "-w", "-o", tmp_path / "e", tmp_path / "e.c"], check=True)
    printed = subprocess.run([tmp_path / "e"], check=True, capture_output=True, text=True).stdout.split()
    assert [value(t, **NAMES) for t in texts] == [int(p) for p in printed]


def test_floats_and_booleans():
    assert value("1.0 / K", K=4) == 0.25
    assert value("alpha * 2", alpha=1.5) == 3.0
    assert value("causal + 1", causal=True) == 2
    assert value("7 / 2.0") == 3.5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("M // 2", "write `/`, which truncates in C"),
        ("M ** 2", "no such operator"),
        ("1 < M < 3", "two numbers at a time"),
        ("M & 1 == 0", "use parentheses"),
        ("M == 4 & 1", "use parentheses"),
        ("M / K", "division by zero"),
        ("M % K", "division by zero"),
        ("1 << 64", "does not define a shift by 64"),
        ("-1 << 2", "left shift of a negative"),
        ("2 << 62", "does not fit into 64 bits"),
        ("4611686018427387904 * 4", "does not fit into 64 bits"),
        ("0o17", "does not mean the same"),
        ("1_000", "does not mean the same"),
        ("0b11", "does not mean the same"),
        ("'a'", "does not mean the same"),
        ("True", "does not mean the same"),
        ("Q + 1", "nothing is called Q"),
        ("M if M else 1", "only integers"),
        ("not M", "only integers"),
        ("M and K", "only integers"),
        ("__import__('os')", "only integers"),
        ("M.real", "only integers"),
        ("min(M)", "min takes two numbers"),
        ("min(*M)", "min takes two numbers"),
        ("1.5 % 2", "takes integers"),
        ("~1.5", "takes integers"),
        ("M +", "cannot read"),
        ("(M", "cannot read"),
        ("M)(", "cannot read"),
        ("lambda: 1", "only integers"),
        ("1" * 3000, "too long"),
        ("(" * 500 + ")" * 500, "cannot read"),
        ("-" * 1900 + "1", "nested too deeply"),
    ],
)
def test_refused(text, says):
    with pytest.raises(KernelError, match="f.cu:1: ") as caught:
        value(text, M=5, K=0)
    assert says in str(caught.value)


def test_parentheses_may_settle_it():
    assert value("(M & 1) == 0", M=4) == 1
    assert value("1 == (M & 5)", M=1) == 1
    assert value("((M) & (1)) == 0", M=4) == 1


def test_several_expressions():
    assert [evaluate(n, {"N": 33}, "x") for n in parse("(N + 15) / 16, 1", "x")] == [3, 1]
    assert parse("", "x") == []
