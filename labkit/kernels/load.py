"""Load a kernel file, numba.cuda or CUDA C++, as one function `launch(out, *inputs, **options)`."""

from __future__ import annotations

import inspect
import linecache
import os
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.errors import LabkitError
from labkit.kernels import cuda, numba_host
from labkit.kernels.errors import KernelError

LANGUAGES = {".py": "numba", ".cu": "cuda"}


@dataclass(frozen=True)
class Signature:
    """The argument names of a problem.

    dims : for each dimension, where it is read off: {"M": ("A", 0)}.  options : their defaults.
    """

    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    dims: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Kernel:
    """A loaded kernel file. `launch(out, *inputs, **options)`; `out` is a tensor or a tuple of tensors."""

    path: Path | None
    language: str
    launch: Callable[..., None]


def load(
    path: str | Path,
    *,
    language: str | None = None,
    names: Signature | None = None,
    defines: Sequence[str] = (),
    arch: str | None = None,
) -> Kernel:
    """Load the kernel file `path` afresh.

    language : "numba" or "cuda", by default told by the suffix (.py, .cu).
    names : the problem's argument names; launch lines of CUDA C++ use them, and `launch`'s arity is checked.
    defines, arch : specialize CUDA C++.
    Raises KernelError, in one sentence with file and line: no such file, a syntax error, a module that raises,
    no `launch`, wrong parameters of `launch`, C++ that does not compile, a launch line that cannot be read.
    Errors inside `launch` are KernelError too, with the line of the file.
    """
    path = Path(path).absolute()
    language = language or LANGUAGES.get(path.suffix)
    if language not in LANGUAGES.values():
        raise KernelError(f"{path} is neither .py (numba) nor .cu (CUDA C++).")
    try:
        source = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise KernelError(
            f"{path} does not exist; write it, or make it with the notebook's `%%kernel` cell."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise KernelError(f"{path} cannot be read as text: {error}.") from None
    if language == "numba":
        return Kernel(path, language, _load_numba(path, source, names))
    return Kernel(path, language, _load_cuda(path, source, names, tuple(defines), arch))


def launchable(kernel: Any) -> None:
    """KernelError where `kernel[grid, block](...)` launches nothing."""
    if not hasattr(kernel, "__getitem__"):
        name = getattr(kernel, "__name__", repr(kernel))
        raise KernelError(f"{name} cannot be launched: put @cuda.jit above it, or make it with lk.cuda_kernel.")


# --- numba ---------------------------------------------------------------------------------------------

def _load_numba(path: Path, source: str, names: Signature | None) -> Callable[..., None]:
    numba_host.install()
    linecache.checkcache(str(path))
    try:
        code = compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else str(path)
        raise KernelError(f"{where}: {error.msg}.") from error
    except ValueError as error:  # Python 3.11 on null bytes
        raise KernelError(f"{path}: {error}.") from error
    module = types.ModuleType(f"labkit_kernel_{path.stem}")
    module.__file__ = str(path)
    with _errors_of(path):
        exec(code, module.__dict__)
    launch = module.__dict__.get("launch")
    if not callable(launch):
        raise KernelError(
            f"{path} has no function launch; end it with one, `def {_expected(names)}:`, that launches the kernel."
        )
    if names:
        try:
            options = dict(names.options)
            inspect.signature(launch).bind(None, *names.inputs, **options)
        except TypeError:
            line = launch.__code__.co_firstlineno if hasattr(launch, "__code__") else None
            where = f"{path}:{line}" if line else str(path)
            raise KernelError(
                f"{where}: launch{inspect.signature(launch)} must take ({_expected(names).split('(', 1)[1]}."
            ) from None

    def run(out: Any, *inputs: Any, **options: Any) -> None:
        with _errors_of(path):
            launch(out, *inputs, **options)

    return run


def _expected(names: Signature | None) -> str:
    if names is None:
        return "launch(out, *inputs)"
    out = names.outputs[0] if len(names.outputs) == 1 else "out"
    options = [f"{name}={value!r}" for name, value in names.options.items()]
    return f"launch({', '.join([out, *names.inputs, *options])})"


_LABKIT = str(Path(__file__).parents[1]) + os.sep
_MENDS = (  # of what Python and numba say without a mend
    ("'function' object is not subscriptable", "Put @cuda.jit above a function that is to be launched."),
    ("(grid|block)dim must be .* integers", "Divide with //, which gives an integer."),
)


class _errors_of:
    """Errors that arise in the file inside become KernelErrors that point at its line."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if not isinstance(error, Exception) and kind is not SystemExit:
            return
        line, ours = None, False
        while traceback is not None:
            file = traceback.tb_frame.f_code.co_filename
            if file == self.path:
                line, ours = traceback.tb_lineno, False
            elif file.startswith(_LABKIT) and file != __file__:
                ours = True
            traceback = traceback.tb_next
        if isinstance(error, LabkitError):
            text = str(error)
            if line is None or f"{os.path.basename(self.path)}" in text or getattr(error, "kind", None):
                return  # it names its place already
            raise KernelError(f"{self.path}:{line}: {text}") from error
        if ours:
            return  # a bug of labkit's, not of the file's
        what = " ".join(str(error).split()) or "no message"
        where = f"{self.path}:{line}" if line else self.path
        mend = next((f" {mend}" for pattern, mend in _MENDS if re.search(pattern, what)), "")
        raise KernelError(f"{where}: {type(error).__name__}: {what.rstrip('.')}.{mend}") from error


# --- CUDA C++ ------------------------------------------------------------------------------------------


def _load_cuda(
    path: Path, source: str, names: Signature | None, defines: tuple[str, ...], arch: str | None
) -> Callable[..., None]:
    header = cuda.parse_header(source, str(path))
    if names is None:
        raise KernelError(f"{path}: a launch line needs names for its arguments; pass names=Signature(...).")
    tensors, numbers = {*names.outputs, *names.inputs}, {*names.dims, *names.options}
    cuda.check_names(header, str(path), defines, tensors, numbers)
    plans: dict[tuple, cuda.Plan] = {}
    some = {line.kernel: f"<{line.template[1][0]}>" if line.template else "" for line in header.launches}
    instances = tuple(name + value for name, value in some.items() if value)
    for name, value in some.items():  # what does not compile is said at once
        kernel = cuda.CudaKernel(source, name + value, str(path), defines, arch, instances=instances)
        kernel.entry(kernel.ptx())

    def run(out: Any, *inputs: Any, **options: Any) -> None:
        outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        if len(outs) != len(names.outputs) or len(inputs) != len(names.inputs):
            raise KernelError(f"{path}: call {_expected(names)}.")
        # A dimension may be given too, where an option (a transposed operand) changes what a shape means.
        strange = [name for name in options if name not in (*names.options, *names.dims)]
        if strange:
            raise KernelError(f"{path}: there is no option {strange[0]}; call {_expected(names)}.")
        tensors = dict(zip((*names.outputs, *names.inputs), (*outs, *inputs), strict=True))
        for name, tensor in tensors.items():
            if not tensor.is_contiguous():
                raise KernelError(
                    f"{path}: {name} has the strides {tuple(tensor.stride())}, and launch lines pass bare pointers; "
                    "call .contiguous() on it."
                )
        numbers = {dim: tensors[t].shape[axis] for dim, (t, axis) in names.dims.items()}
        numbers.update({**names.options, **options})
        key = tuple(numbers.items())
        if key not in plans:  # evaluated once for each set of numbers, for it takes longer than a launch
            plans[key] = cuda.plan(
                header, source, tensors, numbers, path=str(path), defines=defines, arch=arch
            )
        cuda.run_plan(plans[key], tensors, outs[0])

    return run
