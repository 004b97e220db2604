"""CUDA C++ kernels: compiled by NVRTC, launched as `kernel[grid, block](*args)` or by `// launch` lines."""

from __future__ import annotations

import functools
import importlib
import linecache
import os
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit import cache
from labkit.kernels import expressions, ptx
from labkit.kernels.arrays import Array, as_array
from labkit.kernels.errors import KernelError

EMULATED_ARCH = "sm_90"  # what the emulator runs, and what a kernel is compiled for where there is no GPU


# --- compiling -----------------------------------------------------------------------------------------


def compile_ptx(
    source: str, *, arch: str = EMULATED_ARCH, defines: Sequence[str] = (), path: str = "kernel.cu",
    instances: Sequence[str] = (),
) -> str:  # fmt: skip
    """The PTX that NVRTC makes of `source` for `arch` ("sm_90", "sm_90a"), with line information.

    defines : "NAME" or "NAME=VALUE".  path : what the line information and the errors call the source.
    instances : template kernels to make, such as "scale<4>".
    Raises KernelError with file, line and the compiler's sentence. Results are cached on disk.
    """
    return _compile(source, path, tuple(defines), arch.replace("sm_", "compute_"), "ptx", tuple(instances)).decode()


def compile_cubin(
    source: str, *, arch: str, defines: Sequence[str] = (), path: str = "kernel.cu", instances: Sequence[str] = ()
) -> bytes:
    """The machine code of `source` for `arch` ("sm_90"); otherwise as `compile_ptx`."""
    return _compile(source, path, tuple(defines), arch, "cubin", tuple(instances))


def compile_ltoir(source: str, *, path: str) -> bytes:
    """The device functions of `source` for link-time optimization at the emulator's architecture."""
    return _compile(source, path, (), EMULATED_ARCH.replace("sm_", "compute_"), "ltoir")


@functools.lru_cache(maxsize=256)
def _compile(
    source: str, path: str, defines: tuple[str, ...], arch: str, kind: str, instances: tuple[str, ...] = ()
) -> bytes:
    parts = (source, path, defines, arch, instances, _nvrtc_version())
    return cache.compiled(parts, kind, lambda: _nvrtc(source, path, defines, arch, kind, instances))


def _nvrtc_module() -> Any:
    try:
        return importlib.import_module("cuda.bindings.nvrtc")
    except ImportError as error:
        raise KernelError(
            f"CUDA C++ needs NVRTC, which does not load here ({error}); run `labkit doctor`."
        ) from error


def _nvrtc_version() -> tuple[int, int]:
    try:
        _, major, minor = _nvrtc_module().nvrtcVersion()
    except RuntimeError as error:  # raised by cuda.bindings where libnvrtc is missing
        raise KernelError(
            f"CUDA C++ needs NVRTC, which does not load here ({error}); run `labkit doctor`."
        ) from error
    return major, minor


@functools.cache
def include_dirs() -> tuple[str, ...]:
    """The header folders of NVIDIA's wheels, and those of an installed toolkit for what is missing there."""
    try:
        roots = [Path(p) for p in importlib.import_module("nvidia").__path__]
    except ImportError:
        roots = []
    found = [inc for root in roots for inc in sorted(root.glob("*/include"))]
    if not all(any((inc / header).exists() for inc in found) for header in ("cuda_fp16.h", "crt/mma.h")):
        found.append(Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include")
    found += [inc / "cccl" for inc in found]
    return tuple(str(inc) for inc in found if inc.is_dir())


def _nvrtc(
    source: str, path: str, defines: tuple[str, ...], arch: str, kind: str, instances: tuple[str, ...]
) -> bytes:
    nvrtc = _nvrtc_module()
    options = [f"--gpu-architecture={arch}", "-std=c++17"]
    options += ["-dlto", "-rdc=true"] if kind == "ltoir" else ["-lineinfo"]
    options += [f"-D{define}" for define in defines]
    options += [f"--include-path={inc}" for inc in include_dirs()]
    encoded = [option.encode() for option in options]
    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), path.encode(), 0, [], []))
    try:
        for instance in instances:
            _checked(nvrtc.nvrtcAddNameExpression(program, instance.encode()))
        (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
            _checked(nvrtc.nvrtcGetProgramLog(program, log))
            raise KernelError(_first_error(log.rstrip(b"\0 \n").decode(errors="replace"), path, instances))
        size, get = {
            "ptx": (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX),
            "cubin": (nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN),
            "ltoir": (nvrtc.nvrtcGetLTOIRSize, nvrtc.nvrtcGetLTOIR),
        }[kind]
        code = bytearray(_checked(size(program)))
        _checked(get(program, code))
        if kind != "ptx":
            return bytes(code)
        symbols = {i: _checked(nvrtc.nvrtcGetLoweredName(program, i.encode())).decode() for i in instances}
        return bytes(code.rstrip(b"\0")) + "".join(f"// {i} is {s}\n" for i, s in symbols.items()).encode()
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _checked(result: tuple) -> Any:
    status, *values = result
    if status != 0:
        raise KernelError(f"NVRTC failed: {status.name}; run `labkit doctor`.")
    return values[0] if values else None


def _first_error(log: str, path: str, instances: Sequence[str] = ()) -> str:
    """One sentence of NVRTC's log: `file:line: what is wrong`, and how many more there are."""
    errors = re.findall(r"^(.*?)\((\d+)\): (?:catastrophic )?error\s*(?:#\S+)?: (.*)$", log, re.MULTILINE)
    if not errors:
        return f"{path}: NVRTC refuses this source: {log.splitlines()[0] if log else 'no reason given'}."
    file, line, what = errors[0]
    what = what.strip().rstrip(".")
    if file == "__nv_name_map":  # NVRTC's own list of `instances`: those behind the first error follow from it
        return f"{path}: there is no kernel {' or '.join(instances)}: {what}."
    more = f" ({len(errors) - 1} more error{'s' * (len(errors) > 2)} after it)" if len(errors) > 1 else ""
    mend = ""
    if re.search(r'source file "(?:\w+|(?:assert|float|limits|math|std\w+|string)\.h)"', what):
        mend = (
            " NVRTC, which compiles kernels, has none of the host's headers: leave the line out (assert and float "
            "functions need none), or take one of <cuda/std/...>, such as <cuda/std/cstdint>."
        )
    return f"{file}:{line}: {what}.{mend}{more}"


# --- the parameters of a kernel ------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameter:
    """One parameter as the source declares it; `type` without const, restrict and the star."""

    name: str
    type: str
    pointer: bool


_INTEGERS = {  # C type -> signed?
    "char": True, "signed char": True, "short": True, "int": True, "long": True, "long long": True,
    "int8_t": True, "int16_t": True, "int32_t": True, "int64_t": True, "ptrdiff_t": True,
    "unsigned char": False, "unsigned short": False, "unsigned": False, "unsigned int": False,
    "unsigned long": False, "unsigned long long": False, "uint8_t": False, "uint16_t": False,
    "uint32_t": False, "uint64_t": False, "size_t": False, "bool": False,
}  # fmt: skip
_DTYPES = {  # what a pointer to this type may point to
    "float": "float32", "double": "float64", "half": "float16", "__half": "float16",
    "__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16", "int": "int32", "int32_t": "int32",
    "long long": "int64", "int64_t": "int64", "long": "int64", "short": "int16", "int16_t": "int16",
    "signed char": "int8", "int8_t": "int8", "bool": "bool", "float4": "float32", "float2": "float32",
    "half2": "float16", "__half2": "float16", "__nv_bfloat162": "bfloat16", "double2": "float64",
}  # fmt: skip


def without_comments(source: str) -> str:
    """The source with its comments blanked, line by line."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), source, flags=re.DOTALL)


@functools.lru_cache(maxsize=256)
def parameters(source: str, name: str) -> tuple[Parameter, ...] | None:
    """The parameters of the `__global__` function `name`, or None where the text does not show them plainly."""
    found = re.search(
        rf"__global__\b[^;{{]*?\b{re.escape(name)}\s*\(([^)]*)\)", without_comments(source), re.DOTALL
    )
    if not found:
        return None
    result = []
    for text in found[1].split(",") if found[1].strip() else []:
        pointer = "*" in text or "[" in text
        words = re.findall(r"\w+", re.sub(r"\[.*?\]", "", text))
        words = [w for w in words if w not in ("const", "volatile", "__restrict__", "__grid_constant__", "std")]
        if len(words) < 2:
            return None
        result.append(Parameter(words[-1], " ".join(words[:-1]), pointer))
    return tuple(result)


def pack(value: Any, param: ptx.Param, declared: Parameter | None, what: str) -> Array | bytes:
    """An argument as the PTX parameter takes it: little-endian bytes of its size, or the array behind a pointer.

    Raises KernelError in one sentence that begins with `what` where kind, dtype or range do not fit.
    """
    array = as_array(value, what)
    if array is not None:
        if param.size != 8 or param.kind not in "ub" or (declared and not declared.pointer):
            takes = f"a {declared.type}" if declared else f"{param.size} bytes by value"
            raise KernelError(f"{what} takes {takes}, not a tensor; pass a number.")
        wanted = _DTYPES.get(declared.type) if declared else None
        if wanted and wanted != array.dtype:
            raise KernelError(f"{what} is a pointer to {declared.type}, but the tensor holds {array.dtype}.")
        return array
    if declared and declared.pointer:
        raise KernelError(f"{what} is a pointer to {declared.type}; pass a tensor or an array, not {value!r}.")
    if isinstance(value, bytes):
        if len(value) != param.size:
            raise KernelError(f"{what} takes {param.size} bytes, not {len(value)}.")
        return value
    if hasattr(value, "item"):  # numpy scalars
        value = value.item()
    kind = declared.type if declared else None
    if kind in ("half", "__half", "nv_bfloat16", "__nv_bfloat16") and isinstance(value, (int, float)):
        return _half(float(value), "b" in kind)
    if param.kind == "f":
        if not isinstance(value, (int, float)):
            raise KernelError(f"{what} takes a floating-point number, not {value!r}.")
        try:
            return struct.pack("<f" if param.size == 4 else "<d", value)
        except OverflowError:
            raise KernelError(f"{what} takes a {8 * param.size}-bit float; {value!r} is too large.") from None
    if param.kind == "b":
        raise KernelError(f"{what} takes a structure of {param.size} bytes; pass it as bytes.")
    if not isinstance(value, int):
        raise KernelError(f"{what} takes an integer, not {value!r}.")
    bits, signed = 8 * param.size, _INTEGERS.get(kind or "")
    low = 0 if signed is False else -(1 << (bits - 1))
    high = (1 << (bits - 1) if signed else 1 << bits) - 1
    if kind == "bool":
        high = 1
    if not low <= value <= high:
        raise KernelError(f"{what} takes {kind or f'{bits}-bit integers'}, {low} to {high}, not {value}.")
    return (value % (1 << bits)).to_bytes(param.size, "little")


def _half(value: float, bfloat16: bool) -> bytes:
    if not bfloat16:
        return struct.pack("<e", value)
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 & 0xFFFF).to_bytes(2, "little")


# --- kernels -------------------------------------------------------------------------------------------


def as_dim3(value: Any, what: str) -> tuple[int, int, int]:
    """A grid or a block as three positive integers; KernelError otherwise."""
    sizes = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(sizes) <= 3 or not all(hasattr(s, "__index__") for s in sizes):
        raise KernelError(f"{what} must be one to three integers, not {value!r}.")
    sizes = tuple(s.__index__() for s in sizes)
    if min(sizes) < 1:
        raise KernelError(f"{what} is {sizes}: a GPU refuses to launch with a size below 1.")
    return (*sizes, 1, 1)[:3]  # type: ignore[return-value]


@dataclass(frozen=True)
class CudaKernel:
    """One `extern "C" __global__` function of a CUDA C++ source, or a template's instance; made by `cuda_kernel`.

    `name` is as C++ spells it, "scale" or "scale<4>"; `instances` are the templates' that share its module.
    `kernel[grid, block, stream=0, shared=0](*args)` launches it: on the GPU, or on the emulator where there is
    none and inside `emulating()`. Arguments are torch tensors or numpy arrays (written in place), and numbers.
    """

    source: str
    name: str
    path: str
    defines: tuple[str, ...] = ()
    arch: str | None = None
    cluster: tuple[int, int, int] = (1, 1, 1)
    instances: tuple[str, ...] = ()

    @property
    def parameters(self) -> tuple[Parameter, ...] | None:
        return parameters(self.source, self.name.partition("<")[0])

    def ptx(self, arch: str | None = None) -> str:
        """The PTX for `arch`, by default the kernel's own or the emulator's."""
        return compile_ptx(
            self.source, arch=arch or self.arch or EMULATED_ARCH, defines=self.defines, path=self.path,
            instances=self.instances,
        )  # fmt: skip

    def cubin(self, arch: str) -> bytes:
        """The machine code for `arch`."""
        return compile_cubin(
            self.source, arch=arch, defines=self.defines, path=self.path, instances=self.instances
        )

    def entry(self, code: str) -> str:
        """The symbol of this kernel in its PTX; KernelError with the kernels that there are."""
        there = ptx.entries(code)
        if self.name in there:
            return self.name
        if instance := re.search(rf"^// {re.escape(self.name)} is (\S+)$", code, re.MULTILINE):
            return instance[1]
        mangled = [e for e in there if e.startswith(f"_Z{len(self.name)}{self.name}")]
        if len(mangled) == 1:
            return mangled[0]
        if re.search(rf"template\s*<[^;{{}}]*__global__[^;{{}}]*\b{re.escape(self.name)}\s*\(", self.source):
            raise KernelError(f"{self.path}: {self.name} is a template; name an instance, such as {self.name}<4>.")
        kernels = ", ".join(there) or "none"
        raise KernelError(f'{self.path}: no extern "C" __global__ kernel is called {self.name}; there is {kernels}.')

    def arguments(self, args: Sequence[Any], code: str) -> list[Array | bytes]:
        """`args` packed for the entry's parameters."""
        params = ptx.entries(code)[self.entry(code)]
        declared = self.parameters
        if declared is not None and len(declared) != len(params):
            declared = None
        if len(args) != len(params):
            names = f" ({', '.join(p.name for p in declared)})" if declared else ""
            raise KernelError(
                f"{self.path}: {self.name} takes {len(params)} argument{'s' * (len(params) != 1)}{names}, "
                f"not {len(args)}."
            )
        return [
            pack(value, param, d, f"{self.path}: {self.name}'s parameter {d.name if d else i + 1}")
            for i, (value, param, d) in enumerate(
                zip(args, params, declared or [None] * len(params), strict=True)
            )
        ]

    def __getitem__(self, config: tuple) -> Callable[..., None]:
        if not isinstance(config, tuple) or not 2 <= len(config) <= 4:
            raise KernelError(f"Launch as {self.name}[grid, block, stream, shared](...); grid and block are needed.")
        grid, block = as_dim3(config[0], "The grid"), as_dim3(config[1], "The block")
        stream, shared = (*config[2:], 0, 0)[:2] if len(config) < 4 else config[2:]
        return functools.partial(self._launch, grid, block, stream, shared)

    def __call__(self, *args: Any) -> None:
        raise KernelError(f"Launch as {self.name}[grid, block](...): a kernel needs a grid and a block.")

    def _launch(self, grid: tuple, block: tuple, stream: Any, shared: int, *args: Any) -> None:
        from labkit.kernels import gpu, recorder

        with recorder.session_or_emulator(gpu.available()) as session:
            if session is None:
                gpu.launch(self, grid, block, stream, shared, args)
                return
            code = self.ptx()
            declared = self.parameters
            session.launch(
                code,
                self.entry(code),
                grid,
                block,
                self.arguments(args, code),
                shared=shared,
                arch=self.arch or EMULATED_ARCH,
                cluster=self.cluster,
                names=[p.name for p in declared] if declared and len(declared) == len(args) else None,
            )


def cuda_kernel(
    source: str, name: str, *, defines: Sequence[str] = (), arch: str | None = None, path: str | None = None
) -> CudaKernel:
    """The kernel `name` of a CUDA C++ source text, compiled here and now.

    name : as C++ spells it; of a template with its arguments, "scale<4>".
    defines : "NAME" or "NAME=VALUE".  arch : such as "sm_90a", by default the device's own.
    path : the file that errors point at.  Raises KernelError where the source does not compile or has no such kernel.
    """
    plain, template, _ = name.partition("<")
    instances = (name,) if template else ()
    kernel = CudaKernel(source, name, path or f"{plain}.cu", tuple(defines), arch, instances=instances)
    ptx = kernel.ptx()
    kernel.entry(ptx)
    if path is None:
        _keep_lines(source, ptx, f"{plain}.cu")
    return kernel


def _keep_lines(source: str, ptx: str, path: str) -> None:
    """Let messages and pictures quote a source that is in no file, under the name that its PTX gives it."""
    for named in re.findall(r'\.file\s+\d+\s+"([^"]+)"', ptx):
        if os.path.basename(named) == path:
            linecache.cache[named] = (len(source), None, source.splitlines(keepends=True), named)


# --- launch lines --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LaunchLine:
    """`// launch NAME<<<grid, block, shared>>>(args)` with its expressions parsed.

    Of a template, `NAME<D: 32, 64>`: `template` is the number that chooses, and the values that there are.
    """

    line: int
    kernel: str
    grid: tuple[Any, ...]
    block: tuple[Any, ...]
    shared: Any | None
    args: tuple[Any, ...]
    cluster: tuple[Any, ...] | None = None
    template: tuple[str, tuple[int, ...]] | None = None


@dataclass(frozen=True)
class Workspace:
    """`// workspace NAME DTYPE (shape)`: a tensor made for one call."""

    line: int
    name: str
    dtype: str
    shape: tuple[Any, ...]


@dataclass(frozen=True)
class Header:
    """The launch lines of a CUDA C++ file, in order, and its integer constants as texts."""

    launches: tuple[LaunchLine, ...]
    workspaces: tuple[Workspace, ...]
    constants: dict[str, tuple[int, str]] = field(default_factory=dict)


_DIRECTIVE = re.compile(
    r"\s*//\s*(launch\s+\w+\s*(<[^<>]*>)?\s*<<<|workspace\s+\w+\s+\w+\s*\(|cluster\s*\(|tensormap\s+\w+)"
)
_LAUNCH = re.compile(r"launch\s+(\w+)\s*(<[^<>]*>)?\s*<<<(.*)>>>\s*\((.*)\)\s*;?", re.DOTALL)
_TEMPLATE = re.compile(r"<\s*(\w+)\s*:\s*(\d+(?:\s*,\s*\d+)*)\s*>")
_WORKSPACE = re.compile(r"workspace\s+(\w+)\s+(\w+)\s*\((.*)\)", re.DOTALL)
_CLUSTER = re.compile(r"cluster\s*\((.*)\)", re.DOTALL)
_CONSTANT = re.compile(
    r"^[ \t]*(?:#[ \t]*define[ \t]+(\w+)[ \t]+(.+?)"
    r"|(?:static[ \t]+)?const(?:expr)?[ \t]+(?:unsigned[ \t]+)?(?:int|unsigned|size_t)"
    r"[ \t]+(\w+)[ \t]*=[ \t]*([^;]+);.*)[ \t]*$",
    re.MULTILINE,
)
WORKSPACE_DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64")


def parse_header(source: str, path: str) -> Header:
    """The launch lines of `source`; KernelError, with the line, where one cannot be read or none is there."""
    launches: list[LaunchLine] = []
    workspaces: list[Workspace] = []
    cluster = None
    lines = source.splitlines()
    for number, line in enumerate(lines, 1):
        if not _DIRECTIVE.match(line):
            continue
        where, text = f"{path}:{number}", line.split("//", 1)[1].strip()
        following = number  # a launch may go on in the comment lines below it
        while text.count("(") > text.count(")") and following < len(lines):
            if not (more := re.fullmatch(r"\s*//(.*)", lines[following])):
                break
            text, following = f"{text} {more[1].strip()}", following + 1
        if text.startswith("tensormap"):
            raise KernelError(f"{where}: `// tensormap` lines are not supported yet.")
        if text.startswith("launch") and (found := _LAUNCH.fullmatch(text)):
            config = expressions.parse(found[3], where)
            if not 2 <= len(config) <= 3:
                raise KernelError(f"{where}: write `{found[1]}<<<grid, block, shared bytes>>>(...)`.")
            grid, block = (tuple(c.elts) if hasattr(c, "elts") else (c,) for c in config[:2])
            shared = config[2] if len(config) == 3 else None
            args = tuple(expressions.parse(found[4], where))
            template = None
            if found[2]:
                if not (values := _TEMPLATE.fullmatch(found[2])):
                    raise KernelError(f"{where}: write a template's launch as `{found[1]}<D: 32, 64><<<...`.")
                template = values[1], tuple(map(int, values[2].split(",")))
            launches.append(LaunchLine(number, found[1], grid, block, shared, args, cluster, template))
            cluster = None
        elif text.startswith("workspace") and (found := _WORKSPACE.fullmatch(text)):
            if found[2] not in WORKSPACE_DTYPES:
                raise KernelError(f"{where}: {found[2]} is no dtype; there are {', '.join(WORKSPACE_DTYPES)}.")
            workspaces.append(Workspace(number, found[1], found[2], tuple(expressions.parse(found[3], where))))
        elif text.startswith("cluster") and (found := _CLUSTER.fullmatch(text)):
            cluster = tuple(expressions.parse(found[1], where))  # of the next launch line
        else:
            raise KernelError(f"{where}: cannot read `// {text}`.")
    if not launches:
        raise KernelError(
            f"{path} has no launch line; write one in its header, "
            "such as `// launch NAME<<<((N+255)/256), (256), 0>>>(C, A, N)`."
        )
    return Header(tuple(launches), tuple(workspaces), _constants(source))


def _constants(source: str) -> dict[str, tuple[int, str]]:
    """The integer constants of a file: name -> line and text. One declaration may have several."""
    constants = {}
    for found in _CONSTANT.finditer(without_comments(source)):
        line = source.count("\n", 0, found.start()) + 1
        if found[1]:
            constants[found[1]] = (line, found[2].strip())
            continue
        for declared in re.split(r",(?=\s*\w+\s*=)", f"{found[3]} = {found[4]}"):
            name, _, text = declared.partition("=")
            constants[name.strip()] = (line, text.strip())
    return constants


def check_names(header: Header, path: str, defines: Sequence[str], tensors: set[str], numbers: set[str]) -> None:
    """KernelError where a launch line uses a name that is no tensor, number, definition or constant."""
    tensors = tensors | {workspace.name for workspace in header.workspaces}
    numbers = numbers | set(header.constants) | {define.partition("=")[0] for define in defines}
    for line in (*header.workspaces, *header.launches):
        where = f"{path}:{line.line}"
        args = line.args if isinstance(line, LaunchLine) else ()
        used = [node for node in args if expressions.text_of(node) not in tensors]
        if isinstance(line, LaunchLine):
            used += [*line.grid, *line.block, *(line.cluster or ()), *([line.shared] if line.shared else [])]
        else:
            used += line.shape
        chosen = [line.template[0]] if isinstance(line, LaunchLine) and line.template else []
        for name in (*chosen, *(name for node in used for name in expressions.names(node))):
            if name not in numbers:
                known = ", ".join(sorted(tensors | numbers))
                raise KernelError(f"{where}: nothing is called {name}; there is {known}.")


class Names:
    """What the names in launch lines mean: numbers given, then -D definitions, then the file's own constants."""

    def __init__(self, header: Header, path: str, defines: Sequence[str], numbers: Mapping[str, Any]) -> None:
        self.path, self.constants, self.numbers = path, header.constants, dict(numbers)
        for define in defines:
            name, _, text = define.partition("=")
            self.constants = {**self.constants, name: (0, text or "1")}
        self._open: set[str] = set()

    def __call__(self, name: str) -> Any:
        if name in self.numbers:
            return self.numbers[name]
        line, text = self.constants[name]
        if name in self._open:
            raise KeyError(name)  # defined by itself
        self._open.add(name)
        try:
            where = f"{self.path}:{line}" if line else f"{self.path}, -D{name}"
            (node,) = expressions.parse(text, where)
            return expressions.evaluate(node, self, where)
        except ValueError:
            raise KeyError(name) from None
        finally:
            self._open.discard(name)

    def integer(self, node: Any, line: int) -> int:
        where = f"{self.path}:{line}"
        value = expressions.evaluate(node, self, where)
        if not isinstance(value, int):
            raise KernelError(f"{where}: `{expressions.text_of(node)}` is {value}, not an integer.")
        return value

    def integers(self, nodes: Sequence[Any], line: int) -> tuple[int, ...]:
        return tuple(self.integer(node, line) for node in nodes)


@dataclass(frozen=True)
class Plan:
    """The launches of a file for certain numbers: all expressions evaluated.

    workspaces : name, dtype, shape.  launches : kernel, grid, block, shared bytes, and arguments, of which those in
    `Plan.Tensor` are tensors by name.
    """

    workspaces: tuple[tuple[str, str, tuple[int, ...]], ...]
    launches: tuple[tuple[CudaKernel, tuple, tuple, int, tuple[Any, ...]], ...]

    class Tensor(str):
        """The name of a tensor, to tell it from a value."""


def plan(
    header: Header,
    source: str,
    tensors: Iterable[str],
    numbers: Mapping[str, Any],
    *,
    path: str,
    defines: Sequence[str] = (),
    arch: str | None = None,
) -> Plan:
    """Evaluate a header's lines. tensors : names that launch lines use.  numbers : dimensions and options."""
    names = Names(header, path, defines, numbers)
    workspaces, launches = [], []
    for workspace in header.workspaces:
        shape = names.integers(workspace.shape, workspace.line)
        if min(shape, default=1) < 0:
            raise KernelError(f"{path}:{workspace.line}: workspace {workspace.name} has the shape {shape}.")
        workspaces.append((workspace.name, workspace.dtype, shape))
    known = {*tensors, *(workspace.name for workspace in header.workspaces)}
    spelled = [_instance(line, names) for line in header.launches]
    instances = tuple(dict.fromkeys(s for s, line in zip(spelled, header.launches, strict=True) if line.template))
    for line, name in zip(header.launches, spelled, strict=True):
        where = f"{path}:{line.line}"
        texts = [expressions.text_of(node) for node in line.args]
        args = tuple(
            Plan.Tensor(text) if text in known else expressions.evaluate(node, names, where)
            for text, node in zip(texts, line.args, strict=True)
        )
        grid = as_dim3(names.integers(line.grid, line.line), f"{where}: the grid")
        block = as_dim3(names.integers(line.block, line.line), f"{where}: the block")
        shared = names.integer(line.shared, line.line) if line.shared is not None else 0
        cluster = (1, 1, 1)
        if line.cluster:
            cluster = as_dim3(names.integers(line.cluster, line.line), f"{where}: the cluster")
        kernel = CudaKernel(source, name, path, tuple(defines), arch, cluster, instances)
        launches.append((kernel, grid, block, shared, args))
    return Plan(tuple(workspaces), tuple(launches))


def _instance(line: LaunchLine, names: Names) -> str:
    """The kernel of a line as C++ spells it."""
    if line.template is None:
        return line.kernel
    name, values = line.template
    where = f"{names.path}:{line.line}"
    value = names.integer(expressions.parse(name, where)[0], line.line)
    if value not in values:
        *some, last = map(str, values)
        there = f"{', '.join(some)} or {last}" if some else last
        raise KernelError(f"{where}: {line.kernel} is made for {name} = {there}, not {value}.")
    return f"{line.kernel}<{value}>"


def run_plan(plan: Plan, tensors: Mapping[str, Any], out: Any) -> None:
    """Make the workspaces, on the device of `out`, and do the launches, in order."""
    import torch

    tensors = dict(tensors)
    for name, dtype, shape in plan.workspaces:
        tensors[name] = out.new_empty(shape, dtype=getattr(torch, dtype))
    for kernel, grid, block, shared, args in plan.launches:
        kernel[grid, block, 0, shared](*(tensors[arg] if isinstance(arg, Plan.Tensor) else arg for arg in args))
