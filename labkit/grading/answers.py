"""The value in `lk.answer(key, value)`, read off the text of a cell and never executed: numbers and arithmetic."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

LONGEST = 100_000  # characters
MOST_BITS = 4096  # of an integer


class Unreadable(ValueError):
    """The cell gives no number; the message is a sentence for the student."""


_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
_UNARY: dict[type, Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs, "min": min, "max": max, "round": round, "int": int, "float": float,
    "sqrt": math.sqrt, "ceil": math.ceil, "floor": math.floor, "log2": math.log2,
}  # fmt: skip


def given(source: str, key: str) -> float | str | None:
    """The answer that a cell gives to the question `key`; None while the dots stand there.

    Names may stand for values that the same cell gives them. Raises Unreadable where it is no number and no word.
    """
    if len(source) > LONGEST:
        raise Unreadable("The cell of this answer is too long to be read.")
    lines = ("" if line.lstrip().startswith(("%", "!", "?")) else line for line in source.split("\n"))
    try:
        tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Unreadable("The cell of this answer is not Python that could be read.") from None
    names: dict[str, ast.expr] = {}
    for statement in tree.body:
        for node in ast.walk(statement):
            if _is_answer(node, key):
                return _value(node, names)
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name):
                names[target.id] = statement.value
    raise Unreadable(f"The cell does not call lk.answer({key!r}, ...).")


def _is_answer(node: ast.AST, key: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and (getattr(node.func, "attr", None) == "answer" or getattr(node.func, "id", None) == "answer")
        and bool(node.args)
        and isinstance(node.args[0], ast.Constant)
        and node.args[0].value == key
    )


def _value(call: ast.Call, names: dict[str, ast.expr]) -> float | str | None:
    values = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "value")]
    if not values:
        return None
    node = values[0]
    if isinstance(node, ast.Constant) and (node.value is None or node.value is ...):
        return None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value[:200]
    try:
        value = _Arithmetic(names)(node)
    except RecursionError:
        raise Unreadable("This answer is nested too deeply; write a number.") from None
    if isinstance(value, int) and value.bit_length() > 1000 or not math.isfinite(value):
        raise Unreadable("This answer is no finite number.")
    return value


class _Arithmetic:
    def __init__(self, names: dict[str, ast.expr]) -> None:
        self.names, self.steps = names, 0

    def __call__(self, node: ast.expr) -> Any:
        self.steps += 1
        if self.steps > 1000:
            raise Unreadable("This answer takes too many steps; write a number.")
        try:
            return self._bounded(self._of(node))
        except (ArithmeticError, ValueError, TypeError) as error:
            if isinstance(error, Unreadable):
                raise
            raise Unreadable(f"This answer cannot be worked out: {error}.") from None

    def _of(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            left, right = self(node.left), self(node.right)
            if isinstance(node.op, (ast.Pow, ast.LShift)) and isinstance(left, int) and isinstance(right, int):
                if abs(right) > MOST_BITS or left.bit_length() * abs(right) > 8 * MOST_BITS:
                    raise Unreadable("This answer is no finite number.")
            return _BINARY[type(node.op)](left, right)
        if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
            return _UNARY[type(node.op)](self(node.operand))
        if isinstance(node, ast.Name) and node.id in self.names:
            return self(self.names[node.id])
        if isinstance(node, ast.Call) and not node.keywords and len(node.args) <= 8:
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name in _FUNCTIONS:
                return _FUNCTIONS[name](*(self(argument) for argument in node.args))
        raise Unreadable("This answer is not a number or plain arithmetic with numbers, such as 3 * 256**2.")

    @staticmethod
    def _bounded(value: Any) -> Any:
        if type(value) not in (int, float):
            raise Unreadable("This answer is not a number.")
        if isinstance(value, int) and value.bit_length() > MOST_BITS:
            raise Unreadable("This answer is no finite number.")
        return value
