"""numba.cuda launches as data: PTX for the argument types, and the arguments as the entry's parameters.

Imports numba; `numba_host` calls it once numba.cuda is there.
"""

from __future__ import annotations

import difflib
import inspect
import linecache
import re
import struct
import sys
import warnings
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.cuda import types
from numba.cuda.args import ArgHint, In
from numba.cuda.compiler import _compile_pyfunc_with_fixup
from numba.cuda.core.errors import NumbaDebugInfoWarning
from numba.cuda.np import numpy_support
from numba.cuda.typing.typeof import Purpose, typeof

from labkit import cache
from labkit.kernels import ptx
from labkit.kernels.arrays import Array, as_array
from labkit.kernels.cuda import compile_ltoir
from labkit.kernels.errors import KernelError
from labkit.kernels.numba_content import identity
from labkit.kernels.recorder import Session

EMULATED_CC = (9, 0)

_compiled: weakref.WeakKeyDictionary[Any, dict[tuple, Compiled]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Compiled:
    """A numba kernel compiled for one tuple of argument types."""

    ptx: str
    entry: str
    types: tuple[Any, ...]


def launch(dispatcher: Any, args: Sequence[Any], config: Any, session: Session) -> None:
    """Run the launch `dispatcher[config](*args)` in `session`.

    Raises KernelError for argument types that numba refuses and for code that it cannot compile.
    """
    function = dispatcher.py_func
    names = list(inspect.signature(function).parameters)
    if len(args) != len(names):
        raise KernelError(
            f"{function.__name__} takes {len(names)} argument{'s' * (len(names) != 1)} ({', '.join(names)}), "
            f"not {len(args)}."
        )
    args = [_on_the_host(value) for value in args]
    argtypes = tuple(type_of(a, f"{function.__name__}'s {n}") for a, n in zip(args, names, strict=True))
    compiled = compile_kernel(dispatcher, _signature(dispatcher, argtypes))
    flat = [
        (name, part)
        for name, kind, value in zip(names, compiled.types, args, strict=True)
        for part in flatten(kind, value, f"{function.__name__}'s {name}")
    ]
    params = ptx.entries(compiled.ptx)[compiled.entry]
    sizes = [8 if isinstance(part, Array) else len(part) for _, part in flat]
    if sizes != [p.size for p in params]:
        raise KernelError(
            f"{_place(function)}: labkit cannot pass {', '.join(map(str, compiled.types))} to a kernel; "
            "pass arrays, numbers and tuples of them."
        )
    session.launch(
        compiled.ptx,
        compiled.entry,
        config.griddim,
        config.blockdim,
        [part for _, part in flat],
        shared=config.sharedmem,
        max_registers=dispatcher.targetoptions.get("max_registers"),
        names=[name for name, _ in flat],
    )


def _on_the_host(value: Any) -> Any:
    """cuda.In, Out and InOut unwrapped; of In a copy, because a GPU would leave the host's array as it is."""
    if not isinstance(value, ArgHint):
        return value
    return value.value.copy() if isinstance(value, In) and isinstance(value.value, np.ndarray) else value.value


def type_of(value: Any, what: str) -> Any:
    """numba's type of an argument; KernelError, beginning with `what`, where it has none."""
    array = as_array(value, what)
    if array is not None:
        if array.dtype in ("bfloat16", "complex32") or array.dtype.startswith("float8"):
            raise KernelError(
                f"{what} is a {array.dtype} tensor, and numba has no such type; use CUDA C++, or another dtype."
            )
        if hasattr(value, "_numba_type_"):
            return value._numba_type_
        if isinstance(value, np.ndarray):
            return typeof(value, Purpose.argument)
        return types.Array(numpy_support.from_dtype(np.dtype(array.dtype)), len(array.shape), _layout(array))
    try:
        return typeof(value, Purpose.argument)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise KernelError(
            f"{what} is a {type(value).__name__}, which a kernel cannot take; pass arrays, tensors and numbers."
        ) from error


def _layout(array: Array) -> str:
    if array.contiguous:
        return "C"
    expected = 1
    for size, stride in zip(array.shape, array.strides, strict=True):
        if size > 1 and stride != expected:
            return "A"
        expected *= size
    return "F"


def _signature(dispatcher: Any, argtypes: tuple) -> tuple:
    """The types to compile for: those of the arguments, or of the eager signature that they fit."""
    if dispatcher._can_compile:
        return argtypes
    eager = list(dispatcher.overloads)  # @cuda.jit with signatures
    if argtypes in eager:
        return argtypes
    fitting = [s for s in eager if len(s) == len(argtypes) and all(map(_fits, s, argtypes))]
    if fitting:
        return fitting[0]
    name = dispatcher.py_func.__name__
    wanted = " or ".join(f"({', '.join(map(str, s))})" for s in eager)
    raise KernelError(
        f"{_place(dispatcher.py_func)}: {name} is compiled for {wanted}, and the arguments are "
        f"({', '.join(map(_short, argtypes))})."
    )


def _short(kind: Any) -> str:
    if isinstance(kind, types.Array):
        return f"array({kind.dtype}, {kind.ndim}d, {kind.layout})"
    return str(kind)


def _fits(wanted: Any, given: Any) -> bool:
    if isinstance(wanted, types.Array) and isinstance(given, types.Array):
        same = wanted.dtype == given.dtype and wanted.ndim == given.ndim
        return same and wanted.layout in ("A", given.layout)
    number = (types.Number, types.Boolean)
    if isinstance(wanted, number) and isinstance(given, number):
        rank = [types.Boolean, types.Integer, types.Float, types.Complex]
        return _rank(wanted, rank) >= _rank(given, rank)
    return wanted == given


def _rank(kind: Any, order: list) -> int:
    return next(i for i, k in enumerate(order) if isinstance(kind, k))


def compile_kernel(dispatcher: Any, argtypes: tuple) -> Compiled:
    """PTX of the kernel for these types at sm_90, with line information; once per dispatcher and types."""
    cached = _compiled.setdefault(dispatcher, {})
    if argtypes not in cached:
        cached[argtypes] = _compile(dispatcher, argtypes)
    return cached[argtypes]


def _compile(dispatcher: Any, argtypes: tuple) -> Compiled:
    function, options = dispatcher.py_func, dispatcher.targetoptions
    for option, mend in (
        ("debug", "the emulator checks every access by itself; remove debug=True"),
        ("link", "the emulator runs numba's own code only; remove link=..."),
        ("extensions", "remove extensions=..."),
    ):
        if options.get(option):
            raise KernelError(f"{_place(function)}: {option} is not supported on the emulator; {mend}.")
    if options.get("device"):
        raise KernelError(
            f"{_place(function)}: {function.__name__} is a device function, which kernels call; it cannot be launched."
        )
    def to_library(lto: bool) -> Any:
        return _compile_pyfunc_with_fixup(
            function,
            argtypes,
            lineinfo=True,
            debug=False,
            device=False,
            abi="numba",
            fastmath=options.get("fastmath", False),
            opt=options.get("opt", True),
            cc=EMULATED_CC,
            launch_bounds=options.get("launch_bounds"),
            lto=lto,
        )[0]

    def compiled() -> bytes:
        with warnings.catch_warnings():  # of code typed at a prompt, which has no lines to show
            warnings.simplefilter("ignore", NumbaDebugInfoWarning)
            library = to_library(lto=False)
            # float16 operators are CUDA C++ that numba links; on a GPU it does so with LTO, too.
            code = _linked(to_library(lto=True)) if library._linking_files else library.get_asm_str(cc=EMULATED_CC)
        return code.encode()

    wanted = tuple(options.get(name) for name in ("fastmath", "opt", "launch_bounds"))
    content = identity(dispatcher, argtypes, (EMULATED_CC, *wanted))
    try:
        code = (cache.compiled(content, "ptx", compiled) if content else compiled()).decode()
    except KernelError:
        raise
    except Exception as error:  # numba raises what it likes, AssertionError and AttributeError too
        raise explained(error, function) from error
    (entry,) = ptx.entries(code)
    return Compiled(*_plain(code, entry, function.__name__), argtypes)


def _linked(library: Any) -> str:
    """PTX of a library together with the CUDA C++ that it calls, inlined by nvJitLink."""
    from cuda.bindings import nvjitlink
    from numba.cuda.cudadrv.linkable_code import LinkableCode

    # NVRTC marks the same flag with behavior 1 ("error"); numba's 2 ("warning") would not link with it.
    flag = '!{{ i32 {}, !"Debug Info Version"'
    library._llvm_strs = [text.replace(flag.format(2), flag.format(1)) for text in library.llvm_strs]
    modules = [library.get_ltoir(cc=EMULATED_CC)]
    for item in library._linking_files:
        source = LinkableCode.from_path_or_obj(item)
        if source.kind != "cu":
            raise KernelError(f"The emulator cannot link the {source.kind} code {source.name}.")
        modules.append(compile_ltoir(source.data, path=source.name))
    options = ["-arch=sm_90", "-lto", "-ptx", "-lineinfo"]
    handle = nvjitlink.create(len(options), options)
    try:
        for module in modules:
            nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, module, len(module), "module")
        nvjitlink.complete(handle)
        code = bytearray(nvjitlink.get_linked_ptx_size(handle))
        nvjitlink.get_linked_ptx(handle, code)
    finally:
        nvjitlink.destroy(handle)
    return code.rstrip(b"\0").decode()


def _plain(code: str, entry: str, name: str) -> tuple[str, str]:
    """PTX without the numbers that numba counts up in symbols: equal sources give equal texts, which caches use."""
    code = re.sub(r"^\.common \.global .*\b_ZN08NumbaEnv.*;\n", "", code, flags=re.MULTILINE)  # nobody reads them
    if not name.isascii() or name == "WARP_SZ" or re.search(rf"\.func\b[^;{{]*\b{name}\b", code):
        return code, entry
    return code.replace(entry, name), name


def flatten(kind: Any, value: Any, what: str) -> Iterator[Array | bytes]:
    """The parameters that numba makes of one argument of type `kind`."""
    if isinstance(kind, types.Array):
        array = as_array(value, what)
        if array is None:
            raise KernelError(f"{what} must be an array, not {value!r}.")
        items = int(np.prod(array.shape, dtype=np.int64))
        strides = getattr(value, "strides", None)  # numpy's, in bytes, may be no multiple of the item
        if not isinstance(strides, tuple):
            strides = tuple(s * array.itemsize for s in array.strides)
        yield from (_i64(0), _i64(0), _i64(items), _i64(array.itemsize), array)
        yield from map(_i64, (*array.shape, *strides))
    elif isinstance(kind, types.Record):
        yield as_array(value, what) or as_array(np.array([value]), what)  # a record of the host: a copy of it
    elif isinstance(kind, types.Boolean):
        yield struct.pack("<?", bool(value))
    elif isinstance(kind, types.Integer):
        size = kind.bitwidth // 8
        try:
            yield int(value).to_bytes(size, "little", signed=kind.signed)
        except OverflowError:
            raise KernelError(f"{what} is {value}, too large for {kind}.") from None
    elif isinstance(kind, (types.Float, types.Complex)):
        yield from (np.asarray(part, _float(kind)).tobytes() for part in _parts(kind, value))
    elif isinstance(kind, (types.NPDatetime, types.NPTimedelta)):
        yield _i64(int(value.view(np.int64)))
    elif isinstance(kind, types.BaseTuple):
        for item_kind, item in zip(kind, value, strict=True):
            yield from flatten(item_kind, item, what)
    elif isinstance(kind, types.EnumMember):
        yield from flatten(kind.dtype, value.value, what)
    else:
        raise KernelError(f"{what} is {value!r}, and numba passes no {kind} to a kernel.")


def _i64(value: int) -> bytes:
    return struct.pack("<q", value)


def _parts(kind: Any, value: Any) -> tuple:
    return (value.real, value.imag) if isinstance(kind, types.Complex) else (value,)


def _float(kind: Any) -> np.dtype:
    bits = kind.bitwidth // 2 if isinstance(kind, types.Complex) else kind.bitwidth
    return np.dtype(f"f{bits // 8}")


# --- numba's compile errors, readable ------------------------------------------------------------------

_NOISE = re.compile(
    r"Failed in |During: |Enable logging|- Resolution failure|Overload |- Of which|This error |\s*-+\^|"
    r"There are \d+|\s*Rejected|\s*File \"|\s*raised from|For more information|https?:|\(\d+\)$|>>>|\s*$|"
    r"This is not usually|To see Python|If you think|Please report|The error message is|Known signatures"
)


def explained(error: Exception, function: Any) -> KernelError:
    """A KernelError of one or two lines: file and line, numba's own sentence, and the source line."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    file = function.__code__.co_filename
    line = _line_compiled(error, file)
    own = [int(n) for f, n in re.findall(r'File "([^"]+)", line (\d+)', text) if _same_file(f, file)]
    if own:
        line = own[-1]
    what = next((s.strip() for s in text.splitlines() if not _NOISE.match(s)), type(error).__name__)
    call = re.search(r"^ *>>> (.*)$", text, re.MULTILINE)
    reason = re.search(r"^ *Numba(?:Type|Value)Error: (.*)$", text, re.MULTILINE)
    missing = re.search(r"name '(\w+)' is not defined|Untyped global name '(\w+)'", what)
    if constant := re.search(r"Function\(<function (shared|local)\.array", text):
        what = f"cuda.{constant[1]}.array takes a shape and a dtype that are constants"
    elif reason:
        what = reason[1]
    elif call and "No implementation of function" in text:
        what = f"numba has no {call[1]}"
    elif missing:
        line = line or _line_with(missing[1] or missing[2], function)
    elif "set_try_status" in text:
        what = "kernels cannot use try and except"
    elif "NRT required" in text:
        what = "it needs memory for a list, a dict or a new array, and kernels allocate none"
    elif "must have void return type" in what:
        line = line or _line_with(r"return +[^\s#].*", function)
        what = "a kernel returns nothing; write the result to an element of an array"
    where = f"{file}:{line}" if line else _place(function)
    source = linecache.getline(file, line).strip() if line else ""
    what = what.removesuffix(". Raised from None").rstrip(".:")
    sentence = f"{where}: {function.__name__} does not compile: {what}.{_meant(what, function)}"
    return KernelError(f"{sentence}\n    {source}" if source else sentence)


def _meant(what: str, function: Any) -> str:
    """Of a name that is not there, the one that is most like it, as a sentence; "" where none is."""
    if found := re.search(r"module '([\w.]+)' has no attribute '(\w+)'", what):
        name, known = found[2], dir(sys.modules.get(found[1]))
    elif found := re.search(r"name '(\w+)' is not defined", what):
        name, known = found[1], [*function.__code__.co_varnames, *function.__globals__]
    else:
        return ""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f" Did you mean {near[0]}?" if near else ""


def _line_compiled(error: BaseException, file: str) -> int | None:
    """The line of `file` that numba was at, off the innermost frame of it that holds a position in that file.

    The messages do not always say: numba-cuda adds positions to its own errors, and raises numba's as well.
    """
    line, traceback = None, error.__traceback__
    while traceback is not None:
        local = traceback.tb_frame.f_locals
        for loc in (local.get("loc"), *(getattr(local.get(n), "loc", None) for n in ("inst", "self", "expr"))):
            if getattr(loc, "filename", None) == file and getattr(loc, "line", None):
                line = loc.line
        traceback = traceback.tb_next
    if line is None and error.__context__ is not None:
        return _line_compiled(error.__context__, file)
    return line


def _line_with(name: str, function: Any) -> int | None:
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return None
    return next((first + i for i, line in enumerate(lines) if re.search(rf"\b{name}\b", line)), None)


def _same_file(shown: str, file: str) -> bool:
    return shown == file or file.endswith(shown.lstrip("./"))  # numba shows paths relative to the cwd


def _place(function: Any) -> str:
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno}"
