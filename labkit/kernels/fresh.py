"""Tensors on which nothing has written yet: what `new_empty` and its like give, until torch or a kernel fills them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from labkit.kernels.arrays import as_array

if TYPE_CHECKING:
    from labkit.emulator.memory import Memory

_EMPTY = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided")


class Fresh(TorchFunctionMode):
    """While entered, notes the tensors that torch makes without filling them; `tensors` hold garbage from the start.

    A function of torch that may touch the elements of such a tensor, to read or to write, ends the suspicion.
    """

    def __init__(self, tensors: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.ranges: set[tuple[int, int]] = set()
        for tensor in tensors:
            self._note(tensor)

    def _note(self, tensor: Any) -> None:
        array = as_array(tensor, "a tensor") if isinstance(tensor, Tensor) else None
        if array is not None and array.end > array.start:
            self.ranges.add((array.start, array.end))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from labkit.kernels.recorder import HARMLESS, flat

        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        result = func(*args, **kwargs)
        if name in _EMPTY:
            self._note(result)
        elif name not in HARMLESS and self.ranges:
            for value in flat((args, kwargs)):
                if isinstance(value, Tensor):
                    self._touched(value)
        return result

    def _touched(self, tensor: Tensor) -> None:
        array = as_array(tensor, "a tensor")
        if array is not None:
            self.ranges = {(a, b) for a, b in self.ranges if b <= array.start or array.end <= a}

    def mark(self, memory: Memory, placed: Iterable[tuple[int, int, int]], known: set[int]) -> None:
        """Tell a memory which of its buffers are fresh: of `placed`, (start, end, number) each; `known` were told."""
        for start, end, number in placed:
            buffer = memory.buffers[number]
            if (start, end) not in self.ranges:
                buffer.initialized = None
            elif number not in known:
                buffer.forget()
            known.add(number)
