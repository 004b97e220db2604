"""The value in `lk.answer(key, value)`, read off the text of a cell and never executed: numbers and arithmetic."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

LONGEST = 100_000  # characters
MOST_BITS = 4096  # of an integer
MOST_STEPS = 100_000


class Unreadable(ValueError):
    """The cell gives no number; the message is a sentence for the student."""


_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_UNARY: dict[type, Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs, "min": min, "max": max, "round": round, "int": int, "float": float,
    "sqrt": math.sqrt, "ceil": math.ceil, "floor": math.floor, "exp": math.exp, "log": math.log, "log2": math.log2,
    "log10": math.log10,
}  # fmt: skip


def given(
    source: str,
    key: str,
    names: Mapping[str, float | ast.expr] | None = None,
    known: Mapping[str, float] | None = None,
) -> float | str | None:
    """The answer that a cell gives to the question `key`; None while the dots stand there.

    Names may stand for values that the same cell gives them, or that `names` has; or else, and where that value is no
    arithmetic, for the numbers that the notebook's own cells have under them (`known`).
    Raises Unreadable where it is no number and no word.
    """
    tree = _parsed(source)
    if tree is None:
        raise Unreadable("The cell of this answer is not Python that could be read.")
    assigned_ = dict(names or {})
    for statement in tree.body:
        for node in ast.walk(statement):
            if _is_answer(node, key):
                return _value(node, assigned_, known or {})
        assigned_.update(_assigned(statement))
    raise Unreadable(f"The cell does not call lk.answer({key!r}, ...).")


def assigned(source: str) -> dict[str, ast.expr]:
    """What the names that a cell assigns to at its top level stand for."""
    tree = _parsed(source)
    return {name: value for statement in tree.body for name, value in _assigned(statement).items()} if tree else {}


def _parsed(source: str) -> ast.Module | None:
    lines = ("" if line.lstrip().startswith(("%", "!", "?")) else line for line in source.split("\n"))
    try:
        return ast.parse("\n".join(lines)) if len(source) <= LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _assigned(statement: ast.stmt) -> dict[str, ast.expr]:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Name):
            return {target.id: statement.value}
    return {}


def _is_answer(node: ast.AST, key: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and (getattr(node.func, "attr", None) == "answer" or getattr(node.func, "id", None) == "answer")
        and bool(node.args)
        and isinstance(node.args[0], ast.Constant)
        and node.args[0].value == key
    )


def _value(call: ast.Call, names: dict[str, Any], known: Mapping[str, float]) -> float | str | None:
    values = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "value")]
    if not values:
        return None
    node = values[0]
    if isinstance(node, ast.Constant) and (node.value is None or node.value is ...):
        return None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value[:200]
    try:
        value = _Arithmetic(names, known)(node)
    except RecursionError:
        raise Unreadable("This answer is nested too deeply; write a number.") from None
    if isinstance(value, int) and value.bit_length() > 1000 or not math.isfinite(value):
        raise Unreadable("This answer is no finite number.")
    return value


class _Arithmetic:
    def __init__(self, names: dict[str, Any], known: Mapping[str, float]) -> None:
        self.names, self.known, self.steps = names, known, 0

    def __call__(self, node: ast.expr) -> Any:
        self.steps += 1
        if self.steps > MOST_STEPS:
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
        if isinstance(node, ast.Name) and (node.id in self.names or node.id in self.known):
            return self._named(node.id)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
            return int(_COMPARE[type(node.ops[0])](self(node.left), self(node.comparators[0])))
        if isinstance(node, ast.Call) and not node.keywords and len(node.args) <= 8:
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name in ("sum", "min", "max") and len(node.args) == 1:
                values = self._several(node.args[0])
                return sum(values) if name == "sum" else _FUNCTIONS[name](values)
            if name in _FUNCTIONS:
                return _FUNCTIONS[name](*(self(argument) for argument in node.args))
        raise Unreadable("This answer is not a number or plain arithmetic with numbers, such as 3 * 256**2.")

    def _named(self, name: str) -> Any:
        value = self.names.get(name)
        if isinstance(value, ast.expr):
            try:
                return self(value)
            except Unreadable:
                if name not in self.known:
                    raise
                value = None
        return self.known[name] if value is None else value

    def _several(self, node: ast.expr) -> list[Any]:
        """The numbers of a list, of range(...), or of a comprehension over such."""
        if isinstance(node, ast.List | ast.Tuple):
            return [self(element) for element in node.elts]
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "range" and 1 <= len(node.args) <= 3:
            numbers = range(*(self(argument) for argument in node.args))
            self.steps += len(numbers)
            if self.steps > MOST_STEPS:
                raise Unreadable("This answer takes too many steps; write a number.")
            return list(numbers)
        if isinstance(node, ast.GeneratorExp | ast.ListComp) and len(node.generators) == 1:
            (loop,) = node.generators
            if isinstance(loop.target, ast.Name):
                inner, values = _Arithmetic(dict(self.names), self.known), []
                inner.steps = self.steps
                for number in self._several(loop.iter):
                    inner.names[loop.target.id] = number
                    if all(inner(condition) for condition in loop.ifs):
                        values.append(inner(node.elt))
                self.steps = inner.steps
                return values
        raise Unreadable("This answer is not a number or plain arithmetic with numbers, such as 3 * 256**2.")

    @staticmethod
    def _bounded(value: Any) -> Any:
        if type(value) not in (int, float):
            raise Unreadable("This answer is not a number.")
        if isinstance(value, int) and value.bit_length() > MOST_BITS:
            raise Unreadable("This answer is no finite number.")
        return value
