"""Arrays as their author declared them: names and shapes of shared and local arrays, read off the source."""

from __future__ import annotations

import ast
import linecache
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labkit.emulator.ptx import Program, Variable


@dataclass(frozen=True)
class Declared:
    """A declaration: `shape` has one extent per dimension, or is empty where the source does not say."""

    name: str
    shape: tuple[int, ...] = ()

    def index(self, element: int) -> tuple[int, ...]:
        """The index of element number `element`; the first runs on beyond the end, as C's indexing would."""
        index = []
        for extent in reversed(self.shape[1:]):
            element, k = divmod(element, extent)
            index.append(k)
        return (element, *reversed(index))


def language(program: Program) -> str:
    """`numba` or `cuda`: which language a kernel was written in."""
    source = "".join(linecache.getlines(program.file or ""))
    return "numba" if re.search(rf"^\s*def {re.escape(program.kernel)}\(", source, re.M) else "cuda"


def spell(program: Program, name: str, index: tuple[int, ...]) -> str:
    """An element in the kernel's own language: `tile[1, 2]` in numba, `tile[1][2]` in CUDA C++."""
    if language(program) == "numba":
        return f"{name}[{', '.join(map(str, index))}]"
    return name + "".join(f"[{k}]" for k in index)


def declared(program: Program, space: str) -> dict[str, Declared]:
    """By their names in the PTX, the shared or local arrays that the source names."""
    source = linecache.getlines(program.file) if program.file else []
    known = program.declared.get(space)
    if known is None or known[0] is not source:  # a list of the cache's own, as long as the file stays
        known = program.declared[space] = (source, _declared(program, space, source))
    return known[1]


def _declared(program: Program, space: str, source: list[str]) -> dict[str, Declared]:
    if language(program) == "numba":
        return _of_numba(program, space, source) if space == "shared" else {}
    placed = program.shared if space == "shared" else program.local
    found = {}
    for key, (variable, _) in placed.items():
        name = plain_name(key)
        if not name.startswith("__local_depot"):
            found[key] = Declared(name, _shape_in_c(name, "".join(source), variable))
    return found


def plain_name(name: str) -> str:
    """A variable's name as its author wrote it (`_ZZ1kE4tile` is `tile`)."""
    name = name.split("@")[0]
    mangled = re.match(r"_Z.*E(\d+)(\w+)$", name)
    return mangled[2][-int(mangled[1]) :] if mangled and int(mangled[1]) <= len(mangled[2]) else name


def _of_numba(program: Program, space: str, source: list[str]) -> dict[str, Declared]:
    """numba numbers the arrays in the order of their calls, whose left-hand sides name them."""
    numbered = sorted(
        (int(match[1]), name)
        for name in (program.shared if space == "shared" else program.local)
        if (match := re.match(r"_cudapy_smem_(\d+)", name))
    )
    try:
        tree = ast.parse("".join("\n" if line.startswith("%") else line for line in source))  # a cell's magics
    except SyntaxError:
        return {}
    lines = [i.line for i in program.instructions if i.line]
    function = _function(tree, min(lines, default=1), max(lines, default=1))
    if function is None:
        return {}
    values = _constants(tree.body) | _constants(function.body)
    calls = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).endswith(f"{space}.array")
        and isinstance(node.targets[0], ast.Name)
    ]
    calls.sort(key=lambda node: node.lineno)
    if len(calls) != len(numbered):
        return {}
    variables = program.shared if space == "shared" else program.local
    found = {}
    for call, (_, name) in zip(calls, numbered, strict=True):
        shape = call.value.args[0] if call.value.args else None
        for keyword in call.value.keywords:
            shape = keyword.value if keyword.arg == "shape" else shape
        extents = _evaluate(shape, values) if shape is not None else None
        extents = (extents,) if isinstance(extents, int) else extents
        found[name] = Declared(call.targets[0].id, _fitting(extents, variables[name][0]))
    return found


def _function(tree: ast.Module, first: int, last: int) -> ast.FunctionDef | None:
    """The innermost function that holds these lines."""
    inside = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.lineno <= first + 1 and last <= (node.end_lineno or 0)
    ]
    return max(inside, key=lambda node: node.lineno, default=None)


def _constants(body: list[ast.stmt]) -> dict[str, object]:
    """The numbers and tuples that names are given, `A = B = 16` and `A, B = 8, 16` included."""
    values: dict[str, object] = {}
    for node in body:
        if isinstance(node, ast.Assign):
            value = _evaluate(node.value, values)
            for target in node.targets:
                if isinstance(target, ast.Name):
                    values[target.id] = value
                elif isinstance(target, ast.Tuple) and isinstance(value, tuple):
                    names = [t.id for t in target.elts if isinstance(t, ast.Name)]
                    values.update(zip(names, value, strict=False))
    return {name: value for name, value in values.items() if value is not None}


_ARITHMETIC = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b, ast.Div: lambda a, b: a // b, ast.Mod: lambda a, b: a % b,
}  # fmt: skip


def _evaluate(node: ast.expr, values: dict[str, object]) -> object:
    """An expression of integers and tuples of them; None where it is more than that."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return values.get(node.id)
    if isinstance(node, ast.Tuple):
        items = tuple(_evaluate(item, values) for item in node.elts)
        return None if None in items else items
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = _evaluate(node.left, values), _evaluate(node.right, values)
        if isinstance(left, int) and isinstance(right, int) and (right or not isinstance(node.op, ast.Div)):
            return _ARITHMETIC[type(node.op)](left, right) if right else None
    return None


def _shape_in_c(name: str, source: str, variable: Variable) -> tuple[int, ...]:
    source = re.sub(r"//[^\n]*|/\*.*?\*/", "", source, flags=re.S)
    declaration = re.search(rf"__shared__[^;{{}}]*?\b{re.escape(name)}\s*((?:\[[^\]]*\]\s*)+)[,;=]", source)
    if not declaration:
        return ()
    values: dict[str, object] = {}
    for line in source.splitlines():
        if define := re.match(r"\s*#\s*define\s+(\w+)\s+(.+)$", line):
            pairs = [(define[1], define[2])]
        elif constants := re.match(r".*\b(?:const|constexpr)\s[\w\s]*?\b(\w+\s*=.*?);", line):
            pairs = re.findall(r"(\w+)\s*=\s*([^,]+)", constants[1])
        else:
            continue
        for key, text in pairs:
            value = _in_c(text, values)
            if value is not None:
                values[key] = value
    extents = [_in_c(text, values) for text in re.findall(r"\[([^\]]*)\]", declaration[1])]
    return _fitting(tuple(extents), variable) if None not in extents else ()


def _in_c(text: str, values: dict[str, object]) -> int | None:
    try:
        value = _evaluate(ast.parse(text.strip(), mode="eval").body, values)
    except SyntaxError:
        return None
    return value if isinstance(value, int) else None


def _fitting(shape: object, variable: Variable) -> tuple[int, ...]:
    """The shape, if it is one that divides the variable's size: else the source was misread."""
    if not isinstance(shape, tuple) or not all(isinstance(k, int) and k > 0 for k in shape):
        return ()
    return shape if variable.size and variable.size % math.prod(shape) == 0 else ()
