"""The corpus's kernels as cases: a launch, its arrays, and what a sanitizer has to say.

A `.cu` file says it in a comment before each kernel,

    // wrong race tile_transpose<<<1, (16, 16)>>>(new f4 16x16, ramp f4 16x16)
    // right guarded<<<2, 64>>>(new f4 100, ramp f4 100, 100)

and a `.py` file in a decorator: `@wrong("race", 1, 64, "new f4 64", "ramp f4 64")`, `@right(1, 64, ...)`. Arrays are
`new` (nobody has written them), `zeros`, or `ramp` (0, 1, 2, ...). The line at fault ends in `BUG`, the earlier one
of a race in `OTHER`.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from engine_tools import numba_ptx, nvrtc_file, three

from labkit.emulator import Emulation, Launch, Pointer
from labkit.emulator.ptx import parse

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """One kernel; `kind` is None for a right one. `bug` and `other` are the lines marked so."""

    name: str
    language: str
    file: Path
    kind: str | None
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    names: tuple[str, ...]
    values: tuple[str | int, ...]
    bug: tuple[int, ...]
    other: tuple[int, ...]
    function: Callable | None = field(default=None, repr=False)

    @property
    def id(self) -> str:
        return f"{self.language}-{self.name}"

    def arrays(self) -> list[tuple[str, np.ndarray | int, bool]]:
        """Name, array or number, and whether nobody has written it."""
        return [(n, *_value(v)) for n, v in zip(self.names, self.values, strict=True)]

    def launch(self) -> tuple[Launch, list[tuple[str, np.ndarray, bool]]]:
        """The launch, whose pointers number the arrays beside it."""
        arrays, params = [], []
        word = struct.Struct("<q").pack
        values = self.arrays()
        for name, value, fresh in values:
            if not isinstance(value, np.ndarray):
                wide = self.language == "numba" or isinstance(value, Long)
                params.append(word(value) if wide else struct.pack("<i", value))
                continue
            pointer = Pointer(len(arrays))
            arrays.append((name, value, fresh))
            if self.language == "numba":
                params += [word(0), word(0), word(value.size), word(value.itemsize), pointer]
                params += [word(n) for n in (*value.shape, *value.strides)]
            else:
                params.append(pointer)
        if self.language == "numba":
            ptx = _numba_ptx(self)
            entry = parse(ptx).entries[0]
        else:
            ptx, entry = nvrtc_file(self.file), self.name
        return Launch(ptx, entry, self.grid, self.block, tuple(params), shared=self.shared), arrays

    def run(self, **options: object) -> list[np.ndarray]:
        """On the emulator: the arrays after it; raises KernelFault."""
        launch, arrays = self.launch()
        emulation = Emulation(**{"max_steps": 200_000, **options})
        for name, array, fresh in arrays:
            number = emulation.memory.add(
                array.reshape(-1).view(np.uint8), name=name, dtype=array.dtype.str[1:], shape=array.shape
            )
            if fresh:
                emulation.memory.buffers[number].forget()
        emulation.run(launch)
        return [array for _, array, _ in arrays]


@cache
def _numba_ptx(case: Case) -> str:
    return numba_ptx(case.function, *(value for _, value, _ in case.arrays()))


class Long(int):
    """A 64-bit number."""


def _value(text: str | int) -> tuple[np.ndarray | int, bool]:
    if isinstance(text, int):
        return text, False
    if number := re.fullmatch(r"(-?\d+)(L?)", text):
        return (Long if number[2] else int)(number[1]), False
    how, dtype, shape = text.split()
    shape = tuple(map(int, shape.split("x")))
    if how == "ramp":
        return np.arange(np.prod(shape)).astype(dtype).reshape(shape), False
    return np.full(shape, 0 if how == "zeros" else 85, dtype), how == "new"


_SPEC = re.compile(r"// (?:wrong (\w+)|right) (\w+)<<<(.+)>>>\((.*)\)$")


def _marked(lines: list[str], first: int, mark: str) -> tuple[int, ...]:
    return tuple(first + k for k, line in enumerate(lines) if re.search(rf"(//|#) {mark}\b", line))


def cuda_cases(file: Path) -> list[Case]:
    lines = file.read_text().splitlines()
    starts = [k for k, line in enumerate(lines) if _SPEC.match(line)]
    found = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        kind, name, config, values = _SPEC.match(lines[start]).groups()
        grid, block, *shared = ast.literal_eval(f"({config})")
        body = lines[start + 1 : end]
        signature = re.search(r"\bvoid \w+\((.*?)\)", " ".join(body))[1]
        names = tuple(re.findall(r"(\w+)(?:,|$)", signature))
        found.append(
            Case(
                name, "cuda", file, kind, three(grid), three(block), shared[0] if shared else 0, names,
                tuple(v.strip() for v in values.split(",")),
                _marked(body, start + 2, "BUG"), _marked(body, start + 2, "OTHER"),
            )
        )  # fmt: skip
    return found


_collected: list[Case] = []


def wrong(kind: str | None, grid: object, block: object, *values: str | int) -> Callable:
    """Make a numba kernel a case."""

    def keep(function: Callable) -> Callable:
        lines, first = inspect.getsourcelines(function)
        _collected.append(
            Case(
                function.__name__, "numba", Path(function.__code__.co_filename), kind, three(grid), three(block), 0,
                tuple(inspect.signature(function).parameters), values,
                _marked(lines, first, "BUG"), _marked(lines, first, "OTHER"), function,
            )
        )  # fmt: skip
        return function

    return keep


def right(grid: object, block: object, *values: str | int) -> Callable:
    return wrong(None, grid, block, *values)


def numba_cases(file: Path) -> list[Case]:
    _collected.clear()
    sys.modules.setdefault("cases", sys.modules[__name__])
    spec = importlib.util.spec_from_file_location(f"corpus_{file.stem}", file)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return list(_collected)


def all_cases() -> list[Case]:
    """Every kernel of the corpus."""
    files = sorted(HERE.glob("*.cu"))
    found = [case for file in files for case in cuda_cases(file)]
    for file in sorted(HERE.glob("numba_*.py")):
        found += numba_cases(file)
    return found
