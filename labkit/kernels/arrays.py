"""Arrays of any kind (torch tensors, numpy arrays, numba device arrays) as memory with a shape."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.kernels.errors import KernelError


@dataclass(frozen=True)
class Array:
    """Where the elements of an array lie.

    address : of element [0, 0, ...].  start, end : addresses of the first byte of its elements and of the one
    behind the last.  storage : address where its allocation starts.  strides : in elements.
    dtype : numpy's name, or "bfloat16" and the float8 names of torch.  owner : keeps the memory alive.
    on_gpu : the addresses are a GPU's.
    """

    address: int
    start: int
    end: int
    storage: int
    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    owner: Any
    on_gpu: bool = False

    @property
    def contiguous(self) -> bool:
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size > 1 and stride != expected:
                return False
            expected *= size
        return True


def memory_at(address: int, size: int, owner: Any) -> np.ndarray:
    """`size` bytes of this process's memory as a writable uint8 array that keeps `owner` alive."""

    class Bytes:
        __array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}
        keep = owner

    return np.asarray(Bytes()) if size else np.empty(0, np.uint8)


def as_array(value: Any, what: str) -> Array | None:
    """`value` as an Array, or None where it is no array; KernelError, beginning with `what`, for strange ones."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunction():  # not the user's own look at it: see recorder._guard
            return _of_tensor(value, what)
    if isinstance(value, np.ndarray):
        return _of_numpy(value, what)
    if getattr(value, "__cuda_ndarray__", False):
        return _of_device_array(value)
    return None


def _extent(address: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    if 0 in shape:
        return address, address
    reach = [(n - 1) * s * itemsize for n, s in zip(shape, strides, strict=True)]
    return address + sum(r for r in reach if r < 0), address + sum(r for r in reach if r > 0) + itemsize


def _of_tensor(tensor: Any, what: str) -> Array:
    if tensor.layout is not sys.modules["torch"].strided:
        raise KernelError(f"{what} is a {tensor.layout} tensor; kernels take dense ones: call .to_dense().")
    if tensor.device.type not in ("cpu", "cuda"):
        raise KernelError(f"{what} is a tensor on {tensor.device}; kernels take tensors on the CPU or on CUDA.")
    if tensor.is_conj() or tensor.is_neg():
        raise KernelError(f"{what} is a lazily conjugated tensor; call .resolve_conj().resolve_neg().")
    tensor = tensor.detach()
    shape, strides, itemsize = tuple(tensor.shape), tuple(tensor.stride()), tensor.element_size()
    address = tensor.data_ptr()
    start, end = _extent(address, shape, strides, itemsize)
    storage = tensor.untyped_storage().data_ptr()
    name = str(tensor.dtype).removeprefix("torch.")
    on_gpu = tensor.device.type == "cuda"
    return Array(address, start, end, storage, name, itemsize, shape, strides, tensor, on_gpu)


def _of_numpy(array: np.ndarray, what: str) -> Array:
    if not array.flags.writeable:
        raise KernelError(f"{what} is a read-only array; pass a copy of it.")
    if array.dtype.hasobject:
        raise KernelError(f"{what} holds Python objects; kernels take numbers.")
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    storage = root.__array_interface__["data"][0]
    address = array.__array_interface__["data"][0]
    itemsize = array.dtype.itemsize
    # A stride need not be a multiple of the item (fields of records): count bytes for the extent.
    start, end = _extent(address, array.shape, array.strides, 1)
    end += itemsize - 1 if end > start else 0
    strides = tuple(s // itemsize if itemsize else 0 for s in array.strides)
    name = array.dtype.name if array.dtype.kind != "V" else array.dtype.str
    return Array(address, start, end, min(storage, start), name, itemsize, array.shape, strides, array)


def _of_device_array(array: Any) -> Array:
    """A numba device array: in host memory where numba.cuda is emulated (see numba_host)."""
    from labkit.kernels import gpu

    address = array.device_ctypes_pointer.value or 0
    itemsize = array.dtype.itemsize
    strides = tuple(s // itemsize if itemsize else 0 for s in array.strides)
    start, end = _extent(address, array.shape, strides, itemsize)
    storage = start - start % 256  # allocations are aligned to 256 bytes
    on_gpu = gpu.available()
    name = array.dtype.name if array.dtype.kind != "V" else array.dtype.str
    return Array(address, start, end, storage, name, itemsize, array.shape, strides, array, on_gpu)
