"""What numba makes a kernel's code from, as plain data: equal data give equal PTX, so that it can be kept on disk."""

from __future__ import annotations

import builtins
import functools
import hashlib
import sys
from importlib import metadata
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba.cuda import types
from numba.cuda.dispatcher import CUDADispatcher

_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), np.generic)
# Packages whose contents are known by their versions.
_KNOWN = {"numba", "numba_cuda", "math", "cmath", "operator", "numpy", "builtins", "labkit"}
_VERSIONS = ("numba", "numba-cuda", "llvmlite", "numpy", "nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-nvjitlink")


class Unknown(Exception):
    """Something that tells too little of itself."""


def identity(dispatcher: CUDADispatcher, argtypes: tuple, options: tuple) -> tuple | None:
    """Of a kernel for some argument types; None where it depends on something that cannot be told."""
    try:
        return _versions(), repr(argtypes), repr(options), _of(dispatcher.py_func, ())
    except Unknown:
        return None


@functools.cache
def _versions() -> tuple:
    found = []
    for name in _VERSIONS:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"no {name}")
    ours = sorted(Path(__file__).parent.glob("*.py"))  # with the intrinsics that kernels may call
    return (sys.version, *found, *(hashlib.sha256(path.read_bytes()).hexdigest() for path in ours))


def _of(value: Any, inside: tuple) -> Any:
    if isinstance(value, _PLAIN):
        return type(value).__name__, repr(value)
    if isinstance(value, tuple | list | frozenset):
        return type(value).__name__, [_of(v, inside) for v in value]
    if isinstance(value, np.ndarray) and value.dtype != object:
        return "array", value.dtype.str, value.shape, value.strides, value.tobytes()
    if isinstance(value, types.Type):
        return "type", repr(value)
    if isinstance(value, ModuleType | type | BuiltinFunctionType | np.ufunc):
        name = getattr(value, "__module__", None) or value.__name__
        if name.split(".")[0] not in _KNOWN and not isinstance(value, np.ufunc):
            raise Unknown(name)
        return "known", name, getattr(value, "__qualname__", value.__name__)
    if isinstance(value, CUDADispatcher):
        return "kernel", repr(sorted(value.targetoptions.items(), key=str)), _of(value.py_func, inside)
    if isinstance(value, FunctionType):
        return _of_function(value, inside)
    if isinstance(value, CodeType):
        return (
            value.co_code, value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars, value.co_filename,
            value.co_firstlineno, value.co_linetable, value.co_flags, [_of(c, inside) for c in value.co_consts],
        )  # fmt: skip
    raise Unknown(repr(value))


def _of_function(function: FunctionType, inside: tuple) -> Any:
    if (function.__module__ or "").split(".")[0] in _KNOWN:
        return "known", function.__module__, function.__qualname__
    if function in inside:
        return "itself", inside.index(function)
    inside = (*inside, function)
    names = sorted(set(_names(function.__code__)))
    read = {n: _of(function.__globals__[n], inside) for n in names if n in function.__globals__}
    unknown = [n for n in names if n not in function.__globals__ and not hasattr(builtins, n)]
    cells = [_of(cell.cell_contents, inside) for cell in function.__closure__ or ()]
    defaults = _of((function.__defaults__, tuple((function.__kwdefaults__ or {}).items())), inside)
    return "function", function.__name__, _of(function.__code__, inside), defaults, cells, read, unknown


def _names(code: CodeType) -> list[str]:
    """Globals (and attributes) that a code names."""
    return [*code.co_names, *(n for c in code.co_consts if isinstance(c, CodeType) for n in _names(c))]
