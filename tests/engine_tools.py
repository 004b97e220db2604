"""Compile kernels for the engine's tests and launch them without the recorder."""

from __future__ import annotations

import glob
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from labkit.emulator import Emulation, Launch, Pointer
from labkit.emulator.ptx import parse

INT = struct.Struct("<i")
FLOAT = struct.Struct("<f")


@cache
def nvrtc(source: str, *options: str, name: str = "kernel.cu") -> str:
    """CUDA C++ to PTX."""
    from cuda.bindings import nvrtc as lib

    def call(answer: tuple) -> tuple:
        assert answer[0] == 0, answer
        return answer[1:]

    (program,) = call(lib.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], []))
    import nvidia

    include = glob.glob(f"{list(nvidia.__path__)[0]}/cu13/include")[0]
    flags = [b"--gpu-architecture=compute_90", b"-lineinfo", f"-I{include}".encode(), f"-I{include}/cccl".encode()]
    flags += [o.encode() for o in options]
    if lib.nvrtcCompileProgram(program, len(flags), flags)[0]:
        (size,) = call(lib.nvrtcGetProgramLogSize(program))
        log = b" " * size
        lib.nvrtcGetProgramLog(program, log)
        raise AssertionError(log.decode())
    (size,) = call(lib.nvrtcGetPTXSize(program))
    text = b" " * size
    call(lib.nvrtcGetPTX(program, text))
    return text.decode()


def nvrtc_file(path: Path) -> str:
    """A file of CUDA C++ to PTX, whose lines name it."""
    return nvrtc(path.read_text(), name=str(path))


def numba_ptx(function: Callable, *arrays: np.ndarray | int | float) -> str:
    """A Python function to PTX, for arguments like these."""
    from numba import cuda, typeof

    signature = tuple(typeof(a) for a in arrays)
    return cuda.compile_ptx(function, signature, cc=(9, 0), lineinfo=True)[0]


def numba_params(emulation: Emulation, names: list[str], values: tuple) -> tuple:
    """Arrays as numba passes them: meminfo, parent, items, itemsize, data, shape, strides."""
    word = struct.Struct("<q").pack
    out: list = []
    for name, value in zip(names, values, strict=True):
        if isinstance(value, np.ndarray):
            out += [word(0), word(0), word(value.size), word(value.itemsize)]
            out.append(add(emulation, value, name))
            out += [word(n) for n in (*value.shape, *value.strides)]
        elif isinstance(value, float):
            out.append(struct.pack("<d", value))
        else:
            out.append(word(value))
    return tuple(out)


def add(emulation: Emulation, array: np.ndarray, name: str, misalign: int = 0) -> Pointer:
    """Map an array into the emulation's memory, in place."""
    number = emulation.memory.add(
        array.reshape(-1).view(np.uint8),
        name=name,
        dtype=array.dtype.str[1:],
        shape=array.shape,
        misalign=misalign,
    )
    return Pointer(number)


def run_numba(
    function: Callable, grid: tuple, block: tuple, *values: np.ndarray | int | float, **options: object
) -> Emulation:
    """Launch a numba kernel on arrays, in place; numbers are int64 or float64."""
    emulation = Emulation(**options)
    ptx = numba_ptx(function, *values)
    names = list(function.__code__.co_varnames[: len(values)])
    launch = Launch(ptx, parse(ptx).entries[0], three(grid), three(block), numba_params(emulation, names, values))
    emulation.run(launch)
    return emulation


def run_cuda(
    source: str,
    grid: tuple,
    block: tuple,
    *values: np.ndarray | bytes | Pointer | int,
    shared: int = 0,
    emulation: Emulation | None = None,
    **options: object,
) -> Emulation:
    """Launch the kernel `k` of a CUDA source on arrays, in place; ints are 32-bit."""
    emulation = emulation or Emulation(**options)
    params = []
    for i, value in enumerate(values):
        if isinstance(value, np.ndarray):
            value = add(emulation, value, "abcdefgh"[i])
        elif isinstance(value, int):
            value = INT.pack(value)
        params.append(value)
    emulation.run(Launch(nvrtc(source), "k", three(grid), three(block), tuple(params), shared=shared))
    return emulation


def three(extent: tuple | int) -> tuple[int, int, int]:
    extent = (extent,) if isinstance(extent, int) else tuple(extent)
    return (*extent, 1, 1)[:3]


def ptx_kernel(body: str, params: str = ".param .u64 a", declarations: str = "") -> str:
    """A hand-written kernel `k` around a body; %rd0 is the address of its array."""
    return f""".version 9.0
.target sm_90
.address_size 64
{declarations}
.visible .entry k({params})
{{
    .reg .pred %p<10>;
    .reg .b16 %h<10>;
    .reg .b32 %r<40>;
    .reg .b64 %rd<20>;
    .reg .f32 %f<20>;
    .reg .f64 %d<20>;
    ld.param.u64 %rd0, [a];
    mov.u32 %r0, %tid.x;
{body}
    ret;
}}
"""
