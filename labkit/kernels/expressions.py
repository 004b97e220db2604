"""Integer expressions that mean the same in Python and in C: those of `// launch` lines.

The extension's build pastes the same text into C++, so whatever the two languages would read differently
(`a // b`, `a < b < c`, `a & b == c`, `010`) is refused, and the value is the one that C computes with
64-bit integers: `/` truncates toward zero, `%` takes the sign of the dividend, overflow is an error.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from labkit.kernels.errors import KernelError

Number = int | float

_COMPARE = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_BITWISE = {ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor}
_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
_UNARY = {ast.UAdd: operator.pos, ast.USub: operator.neg, ast.Invert: operator.invert}
# A literal that both languages read alike.
_LITERAL = re.compile(r"0[xX][0-9a-fA-F]+|0|[1-9][0-9]*|[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+")


def parse(text: str, where: str) -> list[ast.expr]:
    """The comma-separated expressions of `text`; `where` (such as "naive.cu:6") opens the error's sentence."""
    if len(text) > 2000:
        raise KernelError(f"{where}: this line is too long ({len(text)} characters).")
    try:
        tree = ast.parse(f"({text.strip()},)" if text.strip() else "()", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise KernelError(f"{where}: cannot read {text.strip()!r} as C expressions.") from None
    assert isinstance(tree, ast.Tuple)
    source = f"({text.strip()},)"
    for node in ast.walk(tree):
        node.source = source  # type: ignore[attr-defined]  # errors quote the text; columns count in UTF-8 bytes
    return tree.elts


def text_of(node: ast.expr) -> str:
    """The source text of a parsed expression."""
    return ast.get_source_segment(node.source, node) or ""  # type: ignore[attr-defined]


def names(node: ast.expr) -> list[str]:
    """The names that an expression uses, other than min and max."""
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id not in ("min", "max")]


def evaluate(node: ast.expr, names: Mapping[str, Any] | Callable[[str], Any], where: str) -> Number:
    """The value that C gives to `node`, with ints as 64-bit integers and floats as doubles.

    `names` maps a name to its number (or is a function that does, raising KeyError for strange ones).
    Raises KernelError, naming `where` and the expression, for anything but numbers, names, parentheses,
    min, max, + - * / % << >> & | ^ ~ and comparisons, and for what C leaves undefined.
    """
    look_up = names if callable(names) else names.__getitem__

    def fail(what: str, at: ast.expr = node) -> KernelError:
        return KernelError(f"{where}: in `{text_of(at)}`: {what}.")

    def number(value: Any, at: ast.expr) -> Number:
        if isinstance(value, bool):
            value = int(value)
        if isinstance(value, int):
            if not -(2**63) <= value < 2**63:
                raise fail("the value does not fit into 64 bits", at)
        elif not isinstance(value, float):
            raise fail(f"{text_of(at)} is a {type(value).__name__}, not a number", at)
        return value

    def integers(a: Number, b: Number, at: ast.expr) -> None:
        if isinstance(a, float) or isinstance(b, float):
            raise fail("this operator takes integers", at)

    def parenthesized(child: ast.expr) -> bool:
        raw = child.source.encode()  # type: ignore[attr-defined]
        before, after = raw[: child.col_offset].rstrip(), raw[child.end_col_offset :].lstrip()
        return before.endswith(b"(") and after.startswith(b")")

    def binary(at: ast.BinOp) -> Number:
        a, b, op = walk(at.left), walk(at.right), type(at.op)
        if op in _ARITHMETIC:
            return _ARITHMETIC[op](a, b)
        if op in _BITWISE:
            integers(a, b, at)
            return _BITWISE[op](a, b)
        if op in (ast.LShift, ast.RShift):
            integers(a, b, at)
            if not 0 <= b < 64:
                raise fail(f"C does not define a shift by {b}", at)
            if op is ast.LShift and a < 0:
                raise fail("C does not define the left shift of a negative number", at)
            return a << b if op is ast.LShift else a >> b
        if op in (ast.Div, ast.Mod):
            if b == 0:
                raise fail("division by zero", at)
            if op is ast.Div and (isinstance(a, float) or isinstance(b, float)):
                return a / b
            integers(a, b, at)
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            number(quotient, at)  # C leaves -2**63 % -1 undefined together with the quotient
            return quotient if op is ast.Div else a - b * quotient
        what = "write `/`, which truncates in C" if op is ast.FloorDiv else "C has no such operator"
        raise fail(what, at)

    def walk(at: ast.expr) -> Number:
        if isinstance(at, ast.Constant):
            if type(at.value) not in (int, float) or not _LITERAL.fullmatch(text_of(at)):
                raise fail(f"{text_of(at)} does not mean the same number in C and in Python", at)
            return number(at.value, at)
        if isinstance(at, ast.Name):
            try:
                value = look_up(at.id)
            except KeyError:
                raise fail(f"nothing is called {at.id}", at) from None
            return number(value, at)
        if isinstance(at, ast.UnaryOp) and type(at.op) in _UNARY:
            value = walk(at.operand)
            if isinstance(at.op, ast.Invert):
                integers(value, value, at)
            return number(_UNARY[type(at.op)](value), at)
        if isinstance(at, ast.BinOp):
            try:
                return number(binary(at), at)
            except OverflowError:
                raise fail("the value is too large", at) from None
        if isinstance(at, ast.Compare):
            if len(at.ops) != 1 or type(at.ops[0]) not in _COMPARE:
                raise fail("C compares two numbers at a time; use parentheses", at)
            for child in (at.left, at.comparators[0]):
                if isinstance(child, ast.BinOp) and type(child.op) in _BITWISE and not parenthesized(child):
                    raise fail("C compares before & | ^, Python after; use parentheses", at)
            return int(_COMPARE[type(at.ops[0])](walk(at.left), walk(at.comparators[0])))
        if isinstance(at, ast.Call) and isinstance(at.func, ast.Name) and at.func.id in ("min", "max"):
            if len(at.args) != 2 or at.keywords or any(isinstance(a, ast.Starred) for a in at.args):
                raise fail(f"{at.func.id} takes two numbers", at)
            a, b = walk(at.args[0]), walk(at.args[1])
            if math.isnan(a) or math.isnan(b):
                raise fail("not a number", at)
            return (min if at.func.id == "min" else max)(a, b)
        raise fail("only integers, names, parentheses, min, max and C's arithmetic may stand here", at)

    try:
        return walk(node)
    except RecursionError:
        raise KernelError(f"{where}: the expression is nested too deeply.") from None
