"""CUDA C++ kernels on a real GPU, through the driver, on torch's current stream."""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from labkit.kernels.arrays import Array
from labkit.kernels.errors import KernelError

if TYPE_CHECKING:
    from labkit.kernels.cuda import CudaKernel


@functools.cache
def available() -> bool:
    """Whether this process has a GPU to run on: a driver with a device, and not LABKIT_DEVICE=emulator."""
    return count() > 0


@functools.cache
def count() -> int:
    """How many GPUs this process may use; 0 without a driver, or with LABKIT_DEVICE=emulator."""
    if os.environ.get("LABKIT_DEVICE") == "emulator":
        return 0
    try:
        libcuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    found = ctypes.c_int()
    return found.value if libcuda.cuInit(0) == 0 and libcuda.cuDeviceGetCount(ctypes.byref(found)) == 0 else 0


def call(function: str, *args: Any) -> Any:
    """A function of the driver API; its one value, or a tuple of several. KernelError in one sentence if it fails."""
    from cuda.bindings import driver

    status, *values = getattr(driver, function)(*args)
    if status != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(status)
        raise KernelError(f"{function} failed: {text.decode() if text else status}.")
    return values[0] if len(values) == 1 else tuple(values)


def current_context() -> int:
    """The current context of the thread as a number; makes the first device's primary context current if none is."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.current_stream()  # torch starts its context here
    call("cuInit", 0)
    context = call("cuCtxGetCurrent")
    if not int(context):
        context = call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", 0))
        call("cuCtxSetCurrent", context)
    return int(context)


def device_arch() -> str:
    """The architecture of the current context's device, such as "sm_90"."""
    from cuda.bindings import driver

    current_context()
    device = call("cuCtxGetDevice")
    attribute = driver.CUdevice_attribute
    major, minor = (
        call("cuDeviceGetAttribute", name, device)
        for name in (
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    return f"sm_{major}{minor}"


@functools.lru_cache(maxsize=256)
def _module(context: int, code: bytes, max_registers: int | None) -> Any:
    """`code` (PTX or machine code) in the context, which must be current: all its kernels share its variables."""
    from cuda.bindings import driver

    option = driver.CUjit_option
    options = {option.CU_JIT_GENERATE_LINE_INFO: 1}
    if max_registers:
        options[option.CU_JIT_MAX_REGISTERS] = max_registers
    image = code if code.startswith(b"\x7fELF") else code.rstrip(b"\0") + b"\0"
    return call("cuModuleLoadDataEx", image, len(options), list(options), list(options.values()))


def launch_code(
    code: bytes,
    entry: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    params: Sequence[bytes],
    *,
    shared: int = 0,
    stream: int = 0,
    cluster: tuple[int, int, int] = (1, 1, 1),
    max_registers: int | None = None,
) -> None:
    """Launch `entry` of PTX or machine code in the current context; `params` are the parameters' own bytes.

    Raises KernelError in one sentence where the driver refuses.
    """
    from cuda.bindings import driver

    function = call("cuModuleGetFunction", _module(current_context(), code, max_registers), entry.encode())
    attribute = driver.CUfunction_attribute
    fixed = call("cuFuncGetAttribute", attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function) if shared else 0
    if fixed + shared > 48 * 1024:  # beyond this a kernel has to opt in
        call("cuFuncSetAttribute", function, attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
    values = [ctypes.create_string_buffer(p, len(p)) for p in params]
    pointers = (ctypes.c_void_p * max(len(values), 1))(*(ctypes.addressof(v) for v in values))
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes = shared
    config.hStream = driver.CUstream(stream)
    if cluster != (1, 1, 1):
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        value = driver.CUlaunchAttributeValue()
        value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = cluster
        attribute.value = value
        config.attrs = [attribute]
        config.numAttrs = 1
    call("cuLaunchKernelEx", config, function, ctypes.addressof(pointers), 0)


def launch(
    kernel: CudaKernel,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    stream: Any,
    shared: int,
    args: Sequence[Any],
) -> None:
    """Launch a CUDA C++ kernel on tensors on the GPU, on `stream` or else torch's current one."""
    arch = kernel.arch or device_arch()
    ptx = kernel.ptx(arch)
    params = []
    for value in kernel.arguments(args, ptx):
        if isinstance(value, Array):
            if not value.on_gpu:
                raise KernelError(f"{kernel.name} runs on the GPU, but a tensor is on the CPU; call .cuda() on it.")
            value = struct.pack("<Q", value.address)
        params.append(value)
    code = kernel.cubin(arch)
    handle = _stream(stream)
    launch_code(
        code, kernel.entry(ptx), grid, block, params,
        shared=shared, stream=handle, cluster=kernel.cluster,
    )  # fmt: skip


def _stream(stream: Any) -> int:
    """The handle of a torch or numba stream, a number, or for 0 torch's current stream."""
    if stream is None or (isinstance(stream, int) and stream == 0):
        torch = sys.modules.get("torch")
        return torch.cuda.current_stream().cuda_stream if torch is not None and torch.cuda.is_available() else 0
    for attribute in ("cuda_stream", "handle"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    return int(stream)
