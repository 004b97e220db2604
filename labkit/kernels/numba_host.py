"""Plain numba.cuda programs on the emulator, where there is no GPU.

`install()` patches numba.cuda once it is imported, or now if it is there already. On a machine with a GPU only
launches inside `emulating()` and `recording()` change. Without one (or with LABKIT_DEVICE=emulator):

- launches, eager signatures and `forall` run on the emulator, to completion, before they return;
- `to_device`, `device_array` and the rest keep "device" arrays in host memory;
- `cuda.is_available()` is True, and `get_current_device()` is an emulated device of compute capability 9.0, so
  that programs which ask first go on (`labkit.kernels.gpu.available()` tells the difference);
- streams and events are there and hold nothing up; the time between two events is a LabkitError, for the emulator
  has no clock.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.abc
import importlib.util
import itertools
import os
import sys
import threading
from typing import Any

import numpy as np

from labkit.errors import LabkitError
from labkit.kernels import gpu, recorder

_MODULE = "numba.cuda"


def install() -> None:
    """Patch numba.cuda now if it is imported, else as soon as it is."""
    if _MODULE in sys.modules:
        _patch()
    elif not any(isinstance(finder, _Hook) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Hook())


class _Hook(importlib.abc.MetaPathFinder):
    """Lets the other finders find numba.cuda and patches it when it has been executed."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                _patch()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_lines = False


def keep_lines() -> None:
    """From now on numba's kernels keep line information on a GPU too, so that profilers can name lines."""
    global _lines
    _lines = True


@functools.cache
def _patch() -> None:
    """Route launches through the current session; without a GPU, put the emulated driver under numba's."""
    from numba.cuda import dispatcher
    from numba.cuda.core import config

    config.CUDA_LOW_OCCUPANCY_WARNINGS = False  # checks and pictures are small on purpose
    # numba looks for new intrinsics before it types a kernel: lk.cuda's must not arrive while it does.
    importlib.import_module("labkit.kernels.intrinsics")
    kernels = dispatcher.CUDADispatcher
    on_gpu = gpu.available()
    call = kernels.call

    @functools.wraps(call)
    def call_or_record(self: Any, args: tuple, launch_config: Any) -> None:
        with recorder.session_or_emulator(on_gpu) as session:
            if session is None:
                call(self, args, launch_config)
                return
            from labkit.kernels import numba_launch

            numba_launch.launch(self, args, launch_config, session)

    compile_device = kernels.compile_device

    @functools.wraps(compile_device)
    def compile_device_with_lines(self: Any, *args: Any, **kwargs: Any) -> Any:
        if recorder.current() is not None or not on_gpu:
            self.targetoptions["lineinfo"] = True  # so that faults inside it have a source line
        return compile_device(self, *args, **kwargs)

    init = kernels.__init__

    @functools.wraps(init)
    def init_with_lines(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if _lines and not self.targetoptions.get("debug"):
            self.targetoptions["lineinfo"] = True

    kernels.__init__ = init_with_lines
    kernels.call = call_or_record
    kernels.compile_device = compile_device_with_lines
    if not on_gpu:
        _emulate_driver(dispatcher)


def _emulate_driver(dispatcher: Any) -> None:
    from numba.cuda.core import sigutils
    from numba.cuda.cudadrv import driver

    kernels = dispatcher.CUDADispatcher

    def compile_eagerly(self: Any, signature: Any) -> None:
        """@cuda.jit("void(float32[:])") and lists of such: compile now, and let launches choose among them."""
        from labkit.kernels import numba_launch

        argtypes, _ = sigutils.normalize_signature(signature)
        self.overloads[tuple(argtypes)] = numba_launch.compile_kernel(self, tuple(argtypes))

    def run_for_all(self: Any, *args: Any) -> None:
        if self.ntasks:
            block = self.thread_per_block or MAX_BLOCK
            grid = (self.ntasks + block - 1) // block
            self.dispatcher[grid, block, self.stream, self.sharedmem](*args)

    kernels.compile = compile_eagerly
    dispatcher.ForAll.__call__ = run_for_all

    class EmulatedDevice(driver.Device):
        """What a program may ask of the device that the emulator stands for; nothing here was measured."""

        def __init__(self) -> None:
            self.id = 0
            self.compute_capability = (9, 0)
            self.name = "labkit emulator (sm_90)"
            self.uuid = "GPU-00000000-0000-0000-0000-000000000000"
            self.primary_context = None

        def __getattr__(self, attribute: str) -> Any:
            if attribute in ATTRIBUTES:
                return ATTRIBUTES[attribute]
            if attribute.isupper():
                raise LabkitError(f"The emulator has no {attribute}; ask a real GPU for it.")
            raise AttributeError(attribute)

        def get_primary_context(self) -> Any:
            if self.primary_context is None:
                self.primary_context = driver.Context(self, _EmulatedDriver.CONTEXT)
            return self.primary_context

    def add_callback(self: Any, callback: Any, arg: Any = None) -> None:
        callback(self, 0, arg)  # all that the stream holds has run already

    driver.Stream.add_callback = add_callback
    driver._logger = driver.make_logger()  # numba makes it when it starts the driver, which it never does here
    real = driver.driver
    real.is_initialized, real.initialization_error = True, None
    emulated = _EmulatedDriver()
    for name in dir(emulated):
        if name.startswith("cu"):
            setattr(real, name, getattr(emulated, name))
    real.devices[0] = EmulatedDevice()


MAX_BLOCK = 1024

# Limits and sizes that NVIDIA documents for compute capability 9.0 (CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability"); the SM count is that of the H100 and H200 SXM.
ATTRIBUTES = {
    "MULTIPROCESSOR_COUNT": 132,
    "WARP_SIZE": 32,
    "MAX_THREADS_PER_BLOCK": MAX_BLOCK,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
    "MAX_BLOCK_DIM_X": 1024,
    "MAX_BLOCK_DIM_Y": 1024,
    "MAX_BLOCK_DIM_Z": 64,
    "MAX_GRID_DIM_X": 2**31 - 1,
    "MAX_GRID_DIM_Y": 65535,
    "MAX_GRID_DIM_Z": 65535,
    "MAX_SHARED_MEMORY_PER_BLOCK": 48 * 1024,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 * 1024,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 228 * 1024,
    "MAX_REGISTERS_PER_BLOCK": 65536,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "TOTAL_CONSTANT_MEMORY": 64 * 1024,
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "CAN_MAP_HOST_MEMORY": 1,
    "UNIFIED_ADDRESSING": 1,
    "CONCURRENT_KERNELS": 1,
    "INTEGRATED": 0,
    "KERNEL_EXEC_TIMEOUT": 0,
    "TCC_DRIVER": 0,
    "SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO": 2,
    "PCI_DOMAIN_ID": 0,
    "PCI_BUS_ID": 0,
    "PCI_DEVICE_ID": 0,
}


class _EmulatedDriver:
    """The functions of the driver API that numba.cuda calls, on host memory, returning what numba's wrappers do."""

    CONTEXT = 1

    def __init__(self) -> None:
        self._memory: dict[int, np.ndarray] = {}
        self._handles = itertools.count(16)  # 0, 1 and 2 are the default streams
        self._thread = threading.local()  # each thread has a stack of contexts

    # Memory: "device" memory is host memory, aligned as on a GPU.

    def _allocate(self, size: int) -> int:
        block = np.empty(int(size) + 256, np.uint8)
        address = -(-block.__array_interface__["data"][0] // 256) * 256
        self._memory[address] = block
        return address

    def cuMemAlloc(self, size: int) -> int:
        return self._allocate(size)

    def cuMemAllocManaged(self, size: int, flags: int) -> int:
        return self._allocate(size)

    def cuMemHostAlloc(self, size: int, flags: int) -> int:
        return self._allocate(size)

    def cuMemFree(self, pointer: Any) -> None:
        self._memory.pop(int(pointer), None)

    cuMemFreeHost = cuMemFree

    def cuMemHostRegister(self, pointer: int, size: int, flags: int) -> None:
        pass

    def cuMemHostUnregister(self, pointer: int) -> None:
        pass

    def cuMemHostGetDevicePointer(self, pointer: int, flags: int) -> int:
        return pointer

    def cuMemGetAddressRange(self, pointer: Any) -> tuple[int, int]:
        for start, block in self._memory.items():
            if start <= int(pointer) < start + len(block) - 256:
                return start, len(block) - 256
        raise LabkitError("This memory is none that numba.cuda allocated on the emulator.")

    def cuPointerGetAttribute(self, attribute: Any, pointer: Any) -> int:
        return int(pointer)

    def cuMemGetInfo(self) -> tuple[int, int]:
        page = os.sysconf("SC_PAGE_SIZE")  # of this machine: that is where the arrays are
        return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page

    def cuMemcpyHtoD(self, to: Any, source: Any, size: int, stream: Any = 0) -> None:
        recorder.refuse_look(int(to), int(to) + size)
        ctypes.memmove(int(to), int(source), size)

    def cuMemcpyDtoH(self, to: Any, source: Any, size: int, stream: Any = 0) -> None:
        recorder.refuse_look(int(source), int(source) + size)
        ctypes.memmove(int(to), int(source), size)

    def cuMemcpyDtoD(self, to: Any, source: Any, size: int, stream: Any = 0) -> None:
        recorder.refuse_look(int(source), int(source) + size)
        recorder.refuse_look(int(to), int(to) + size)
        ctypes.memmove(int(to), int(source), size)

    def cuMemsetD8(self, to: Any, value: int, size: int, stream: Any = 0) -> None:
        recorder.refuse_look(int(to), int(to) + size)
        ctypes.memset(int(to), value, size)

    cuMemcpyHtoDAsync, cuMemcpyDtoHAsync, cuMemcpyDtoDAsync = cuMemcpyHtoD, cuMemcpyDtoH, cuMemcpyDtoD
    cuMemsetD8Async = cuMemsetD8

    # Device and context: one of each.

    def cuInit(self, flags: int) -> None:
        pass

    def cuDriverGetVersion(self) -> int:
        return 13000

    def cuDeviceGetCount(self) -> int:
        return 1

    def _contexts(self) -> list[int]:
        return self._thread.__dict__.setdefault("contexts", [])

    def cuCtxGetCurrent(self) -> int:
        return self._contexts()[-1] if self._contexts() else 0

    def cuCtxGetDevice(self) -> int:
        return 0

    def cuCtxPushCurrent(self, context: Any) -> None:
        self._contexts().append(context)

    def cuCtxPopCurrent(self) -> int:
        return self._contexts().pop()

    def cuCtxSynchronize(self) -> None:
        pass

    def cuDevicePrimaryCtxRelease(self, device: int) -> None:
        pass

    def cuDevicePrimaryCtxReset(self, device: int) -> None:
        pass

    def cuDeviceCanAccessPeer(self, device: Any, peer: Any) -> int:
        return 0

    def cuProfilerStart(self) -> None:
        pass

    def cuProfilerStop(self) -> None:
        pass

    # Streams and events: everything has happened by the time a call returns.

    def cuStreamCreate(self, flags: int) -> int:
        return next(self._handles)

    def cuEventCreate(self, flags: int) -> int:
        return next(self._handles)

    def cuStreamDestroy(self, handle: Any) -> None:
        pass

    cuEventDestroy = cuStreamSynchronize = cuEventSynchronize = cuEventQuery = cuStreamDestroy

    def cuEventRecord(self, event: Any, stream: Any) -> None:
        pass

    def cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> None:
        pass

    def cuEventElapsedTime(self, start: Any, end: Any) -> float:
        raise LabkitError("The emulator has no clock: time between events is measured on a GPU; count with a profile.")
