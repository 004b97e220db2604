"""`labkit doctor`: what works on this machine, and what to do about what does not."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

TOOLKIT = "13.0"  # the release of NVIDIA's compilers that pyproject.toml pins
OLDEST_DRIVER = 13_000  # the CUDA version that runs TOOLKIT's output, as cuDriverGetVersion counts
INSTALL = "run `make lab` (or: pip install -c constraints.txt -e .)"


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    state : "ok", "missing" (the labs need it) or "optional" (not here; the labs do without).
    mend  : what to do about it; empty where there is nothing to do.
    """

    name: str
    state: str
    detail: str
    mend: str = ""


class _Missing(Exception):
    """Why a check failed, and the mend."""

    def __init__(self, detail: str, mend: str = ""):
        super().__init__(detail)
        self.mend = mend


class _Optional(_Missing):
    """The same for what the labs do without."""


def examine() -> list[Finding]:
    """Try everything that the labs use, in a few seconds; a failed check never stops the others."""
    return [_examined(*check) for check in _CHECKS]


def healthy(findings: list[Finding]) -> bool:
    """Whether the labs can be done here."""
    return all(finding.state != "missing" for finding in findings)


def report(findings: list[Finding]) -> str:
    """The findings as text, one line each, and a last line that sums up."""
    width = max(len(finding.name) for finding in findings)
    lines = []
    for f in findings:
        lines.append(f"{f.state:8}  {f.name:{width}}  {f.detail}")
        if f.mend:
            lines.append(f"{'':8}  {'':{width}}  -> {f.mend}")
    missing = [f.name for f in findings if f.state == "missing"]
    if missing:
        lines.append(f"The labs cannot be done here yet; missing: {', '.join(missing)}.")
    elif next((f.state for f in findings if f.name == "GPU and driver"), "") == "ok":
        lines.append("The labs can be done here, with the GPU.")
    else:
        lines.append("The labs can be done here, on the emulator.")
    return "\n".join(lines)


def _examined(name: str, check: Callable[[], str], unless: str, mend: str) -> Finding:
    """What `check` says: its return if all is well; `unless` is the state if it breaks."""
    try:
        return Finding(name, "ok", check())
    except _Optional as found:
        return Finding(name, "optional", str(found), found.mend)
    except _Missing as found:
        return Finding(name, "missing", str(found), found.mend)
    except Exception as error:  # a broken installation fails in any way it likes
        detail = f"{type(error).__name__}: {error}".splitlines()[0]
        return Finding(name, unless, detail, mend)


def _python() -> str:
    return f"{sys.version.split()[0]} at {sys.executable}"


def _labkit() -> str:
    from labkit.errors import LabkitError
    from labkit.root import root

    try:
        return f"{metadata.version('labkit')}, labs in {root() / 'labs'}"
    except LabkitError as error:
        raise _Missing(str(error), "change into the project's folder") from None


def _gpu() -> str:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise _Optional("no NVIDIA driver; kernels run on the emulator") from None
    status = cuda.cuInit(0)
    count = ctypes.c_int()
    if status or cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        raise _Optional(
            f"a driver ({_driver_release()}), but no GPU that it can use (cuInit gives {status})",
            "see whether nvidia-smi lists one; until then kernels run on the emulator",
        )
    version = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    names = []
    for device in range(count.value):
        name = ctypes.create_string_buffer(100)
        major, minor = ctypes.c_int(), ctypes.c_int()
        cuda.cuDeviceGetName(name, len(name), device)
        cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device)  # compute capability, major
        cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)  # and minor
        names.append(f"{name.value.decode()} (sm_{major.value}{minor.value})")
    detail = f"{', '.join(names)}, driver {_driver_release()}"
    if version.value < OLDEST_DRIVER:
        raise _Optional(
            f"{detail}, which is too old for CUDA {TOOLKIT}",
            "update the driver to 580 or newer; until then set LABKIT_DEVICE=emulator",
        )
    if os.environ.get("LABKIT_DEVICE") == "emulator":
        raise _Optional(
            f"{detail}, left out by LABKIT_DEVICE=emulator", "unset LABKIT_DEVICE to use it"
        )
    return detail


def _driver_release() -> str:
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return "of unknown release"
    release = ctypes.create_string_buffer(80)
    if nvml.nvmlInit_v2() or nvml.nvmlSystemGetDriverVersion(release, len(release)):
        return "of unknown release"
    return release.value.decode()


def _torch() -> str:
    import torch

    if _have_gpu() and not torch.cuda.is_available():
        raise _Missing(
            f"PyTorch {torch.__version__} does not see the GPU",
            "reinstall it with CUDA: `make clean`, then `make lab TORCH_INDEX=`",
        )
    return f"{torch.__version__}, {'with' if torch.version.cuda else 'without'} CUDA"


def _numba_cuda() -> str:
    import numba
    from numba import cuda

    def double(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] *= 2

    ptx, _ = cuda.compile_ptx(double, numba.void(numba.float32[:]), cc=(9, 0))
    _same_toolkit("NVVM", _compiler(ptx))
    return f"numba-cuda {metadata.version('numba-cuda')}; NVVM {_compiler(ptx)} compiles"


def _nvrtc() -> str:
    ptx = _nvrtc_ptx()
    _same_toolkit("NVRTC", _compiler(ptx))
    return f"NVRTC {_compiler(ptx)} compiles"


def _nvrtc_ptx() -> str:
    """PTX of a small kernel, straight from NVRTC, since labkit.kernels caches."""
    from cuda.bindings import nvrtc

    source = b'extern "C" __global__ void one(float* x) { *x = 1; }'
    _, program = nvrtc.nvrtcCreateProgram(source, b"one.cu", 0, None, None)
    (status,) = nvrtc.nvrtcCompileProgram(program, 1, [b"-arch=compute_90"])
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise _Missing(f"NVRTC does not compile ({status.name})", INSTALL)
    _, size = nvrtc.nvrtcGetPTXSize(program)
    ptx = bytearray(size)
    nvrtc.nvrtcGetPTX(program, ptx)
    nvrtc.nvrtcDestroyProgram(program)
    return ptx.rstrip(b"\0").decode()


def _compiler(ptx: str) -> str:
    found = re.search(r"release (\d+\.\d+)", ptx)
    return found[1] if found else "of unknown release"


def _same_toolkit(what: str, release: str) -> None:
    if release != TOOLKIT:
        raise _Missing(f"{what} is {release}, and the labs are made for {TOOLKIT}", INSTALL)


def _nvjitlink() -> str:
    from cuda.bindings import nvjitlink

    release = ".".join(map(str, nvjitlink.version()))
    _same_toolkit("nvJitLink", release)
    ptx = _nvrtc_ptx().encode()
    handle = nvjitlink.create(1, ["-arch=sm_90"])
    nvjitlink.add_data(handle, nvjitlink.InputType.PTX, ptx, len(ptx), "one")
    nvjitlink.complete(handle)
    cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
    nvjitlink.get_linked_cubin(handle, cubin)
    nvjitlink.destroy(handle)
    return f"nvJitLink {release} (ptxas) assembles {len(cubin):,} bytes"


def _nvdisasm() -> str:
    return _tool("nvdisasm")


def _ptxas() -> str:
    return _tool("ptxas")


def _tool(name: str) -> str:
    from labkit.emulator.sass import find

    path = find(name)
    if not path:
        raise _Missing(f"{name} is not installed", INSTALL)
    return _version_of([path, "--version"])


def _nvcc() -> str:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise _Optional("not on PATH; NVRTC compiles the CUDA C++ of the labs")
    return f"{_version_of([nvcc, '--version'])} at {nvcc}"


def _ncu() -> str:
    ncu = shutil.which("ncu")
    if ncu is None and not _have_gpu():
        raise _Optional("not on PATH; it needs a GPU, and the emulator counts in its place")
    if ncu is None:
        raise _Optional("not on PATH", "install NVIDIA Nsight Compute to read the GPU's counters")
    found = f"{_version_of([ncu, '--version'])} at {ncu}"
    if not _have_gpu():
        raise _Optional(f"{found}; it needs a GPU, and the emulator counts in its place")
    if not _may_count():
        raise _Optional(
            f"{found}, but the driver keeps the counters to root",
            "load the driver's module with NVreg_RestrictProfilingToAdminUsers=0 "
            "(https://developer.nvidia.com/ERR_NVGPUCTRPERM)",
        )
    return f"{found}, and it may read the counters"


def _may_count(params: Path = Path("/proc/driver/nvidia/params")) -> bool:
    """Whether the driver lets this user read the GPU's counters."""
    return not (
        os.geteuid() and params.exists() and "RmProfilingAdminOnly: 1" in params.read_text()
    )


def _version_of(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    found = re.search(r"V(\d[\d.]+)|[Vv]ersion (\d[\d.]+)", done.stdout)
    return next(filter(None, found.groups())) if found else "of unknown version"


def _emulator() -> str:
    import numpy as np

    import labkit

    kernel = labkit.cuda_kernel(
        'extern "C" __global__ void add(float* c, const float* a, const float* b, int n) {\n'
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) c[i] = a[i] + b[i];\n"
        "}\n",
        "add",
    )
    n = 1000
    a, b = np.random.default_rng(0).random((2, n), dtype=np.float32)
    c = np.full(n, np.nan, dtype=np.float32)
    labkit.emulate(kernel, (n + 255) // 256, 256, (c, a, b, n))
    if not np.array_equal(c, a + b):
        raise _Missing("a sum of two vectors came out wrong", "report this as a bug of labkit")
    return f"adds two vectors of {n:,} right"


def _jupyterlab() -> str:
    # Importing it would take as long as all the other checks.
    return f"{metadata.version('jupyterlab')}, with ipykernel {metadata.version('ipykernel')}"


def _have_gpu() -> bool:
    from labkit.kernels import gpu

    return gpu.available()


_CHECKS = (
    ("Python", _python, "missing", INSTALL),
    ("labkit", _labkit, "missing", INSTALL),
    ("GPU and driver", _gpu, "optional", "mend the driver; until then set LABKIT_DEVICE=emulator"),
    ("PyTorch", _torch, "missing", INSTALL),
    ("numba-cuda", _numba_cuda, "missing", INSTALL),
    ("NVRTC", _nvrtc, "missing", INSTALL),
    ("nvJitLink", _nvjitlink, "missing", INSTALL),
    ("ptxas", _ptxas, "missing", INSTALL),
    ("nvdisasm", _nvdisasm, "missing", INSTALL),
    ("nvcc", _nvcc, "optional", "mend the nvcc on PATH, or remove it"),
    ("ncu", _ncu, "optional", "mend the ncu on PATH, or remove it"),
    ("emulator", _emulator, "missing", "report this as a bug of labkit"),
    ("JupyterLab", _jupyterlab, "missing", INSTALL),
)
