"""Global memory of an emulated device: numpy arrays used in place, each at its own address.

Buffer i begins at virtual address (i + 1) << 36, so an index that runs off one array by less than
64 GiB never lands in another.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

WINDOW_BITS = 36
SHARED_WINDOW = 1 << 60
LOCAL_WINDOW = 1 << 61
PARAM_WINDOW = 1 << 62


def itemsize(dtype: str) -> int:
    """Bytes per element of a dtype name, numpy's or torch's bfloat16 and float8 kinds."""
    if dtype == "bfloat16":
        return 2
    if dtype.startswith("float8"):
        return 1
    return np.dtype(dtype).itemsize


@dataclass
class Buffer:
    """One array on the device; `data` is its bytes (uint8, one dimension), `strides` in elements.

    `symbol` is True for a module's own `.global` and `.const` variables. `initialized` is None, or a buffer of as
    many bytes at the same address, 1 where something has been written.
    """

    data: np.ndarray
    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    base: int
    symbol: bool = False
    initialized: Buffer | None = field(default=None, repr=False)
    views: dict = field(default_factory=dict, repr=False)

    def forget(self) -> None:
        """Nothing has been written here yet: new memory."""
        blank = np.zeros(len(self.data), np.uint8)
        self.initialized = Buffer(blank, self.name, "u1", blank.shape, (1,), self.base)

    @property
    def label(self) -> str:
        """`A[33, 17]`: the array's name and shape."""
        return f"{self.name}[{', '.join(map(str, self.shape))}]"

    def index(self, offset: int) -> tuple[int, ...] | None:
        """The index of the element at byte `offset`.

        Beyond either end the first index runs on, as C's indexing would (A[33, 4] of 33 rows).
        None where the strides are not those of a dense row-major array and none is found.
        """
        element = offset // itemsize(self.dtype)
        order = sorted(range(len(self.shape)), key=lambda k: -self.strides[k])
        index = [0] * len(self.shape)
        for k in order:
            stride = self.strides[k]
            if stride <= 0:
                continue
            index[k], element = divmod(element, stride)
        return tuple(index) if element == 0 and self.shape else None

    def view(self, dtype: np.dtype) -> tuple[np.ndarray, int]:
        """The elements of `dtype` at aligned addresses, in place, and the first one's address."""
        found = self.views.get(dtype)
        if found is None:
            size = dtype.itemsize
            start = -self.base % size
            count = max(len(self.data) - start, 0) // size
            found = self.data[start : start + count * size].view(dtype), self.base + start
            self.views[dtype] = found
        return found


class Memory:
    """The buffers of one emulated device."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []

    def add(
        self,
        array: np.ndarray,
        *,
        name: str | None = None,
        dtype: str = "u1",
        shape: tuple[int, ...] | None = None,
        strides: tuple[int, ...] | None = None,
        misalign: int = 0,
        symbol: bool = False,
    ) -> int:
        """Map the bytes of `array` (uint8, one dimension, used in place); returns its number.

        `shape` and `strides` (in elements; default dense row-major) are only for messages and
        pictures. `misalign` (0 to 255 bytes) is where the bytes start against 256-byte alignment.
        """
        if array.dtype != np.uint8 or array.ndim != 1:
            raise ValueError("Memory.add takes the bytes of an array: uint8, one dimension")
        if not 0 <= misalign < 256:
            raise ValueError(f"misalign is {misalign}; it must be 0 to 255 bytes")
        number = len(self.buffers)
        if shape is None:
            shape = (len(array) // itemsize(dtype),)
        if strides is None:
            steps = [1]
            for extent in reversed(shape[1:]):
                steps.append(steps[-1] * max(extent, 1))
            strides = tuple(reversed(steps))[: len(shape)]
        self.buffers.append(
            Buffer(
                array,
                name or f"array{number}",
                dtype,
                tuple(shape),
                tuple(strides),
                ((number + 1) << WINDOW_BITS) + misalign,
                symbol,
            )
        )
        return number

    def find(self, address: int) -> Buffer | None:
        """The buffer that `address` lies in or, if in none, nearest after or before."""
        address = int(address)
        number = (address >> WINDOW_BITS) - 1
        # Just below a buffer is the upper half of the window before it.
        if address & (1 << (WINDOW_BITS - 1)):
            number += 1
        return self.buffers[number] if 0 <= number < len(self.buffers) else None

    def describe(self, address: int) -> str:
        """`A[3, 4]` inside an array, else how far outside of the nearest one."""
        address = int(address)
        buffer = self.find(address)
        if buffer is None:
            return f"address {address:#x}, in no array"
        offset = address - buffer.base
        size = len(buffer.data)
        if 0 <= offset < size:
            index = buffer.index(offset)
            if index is None:
                return f"byte {offset} of {buffer.label}"
            return f"{buffer.name}[{', '.join(map(str, index))}]"
        if offset < 0:
            return f"{-offset} bytes before the start of {buffer.label}"
        return f"{offset - size} bytes past the end of {buffer.label}"
