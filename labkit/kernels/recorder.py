"""Launches as data: kernels launched inside `emulating()` run on the emulator, inside `recording()` they are kept.

Both turn `kernel[grid, block](...)` and `// launch` lines into `labkit.emulator.launch.Launch` records whose
pointers name buffers; which tensors share memory is read off their addresses.
"""

from __future__ import annotations

import base64
import contextlib
import json
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.emulator.launch import Launch, Pointer
from labkit.kernels.arrays import Array, as_array, memory_at
from labkit.kernels.errors import KernelError

if TYPE_CHECKING:
    from labkit.emulator.engine import Emulation, Modules
    from labkit.kernels.fresh import Fresh

MAX_THREADS = 1024  # per block, on every GPU that the labs speak of
MAX_SHARED = 227 * 1024  # dynamic shared memory per block on sm_90
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)

_session: ContextVar[Session | None] = ContextVar("labkit_session", default=None)
_without: Session | None = None  # see `watch`


def current() -> Session | None:
    """The session that launches go to here: the innermost `emulating()` or `recording()`, or None."""
    return _session.get()


class Session:
    """Turns launches into records. Subclasses say what happens to a buffer and to a record."""

    def __init__(self, names: Mapping[str, Any] | None = None) -> None:
        self._named = [(a, name) for name, t in (names or {}).items() if (a := as_array(t, name)) is not None]
        self._placed: list[tuple[int, int, int]] = []  # start, end, number
        self._owners: list[Any] = []  # while they live, no other array takes their addresses

    def launch(
        self,
        ptx: str,
        entry: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        args: Sequence[Array | bytes],
        *,
        shared: int = 0,
        arch: str = "sm_90",
        max_registers: int | None = None,
        cluster: tuple[int, int, int] = (1, 1, 1),
        names: Sequence[str] | None = None,
    ) -> None:
        """One launch. `names` are the kernel's parameter names, for arrays that `names=` does not name."""
        check_size(grid, block, shared)
        arrays = [(a, names[i] if names else None) for i, a in enumerate(args) if isinstance(a, Array)]
        self._place(arrays)
        params = tuple(self._pointer(a) if isinstance(a, Array) else a for a in args)
        record = Launch(
            ptx, entry, grid, block, params, shared=int(shared), arch=arch, max_registers=max_registers
        )
        self.accept(record, cluster)

    def accept(self, record: Launch, cluster: tuple[int, int, int]) -> None:
        raise NotImplementedError

    def add(self, array: Array, start: int, end: int, name: str | None) -> int:
        """A new buffer of the bytes from `start` to `end`, described by `array`; its number."""
        raise NotImplementedError

    def _place(self, arrays: list[tuple[Array, str | None]]) -> None:
        """A buffer for every array: arrays that overlap share one, over all that they cover together."""
        groups: list[list[tuple[Array, str | None]]] = []
        end = None
        for array, name in sorted(arrays, key=lambda pair: (pair[0].start, -pair[0].end)):
            if end is None or array.start >= end:
                groups.append([])
                end = array.end
            groups[-1].append((array, name))
            end = max(end, array.end)
        for group in groups:
            start, end = group[0][0].start, max(array.end for array, _ in group)
            if self._find(start, end) is None:
                array, name = max(group, key=lambda pair: pair[0].end - pair[0].start)
                number = self.add(array, start, end, self._name(array) or name)
                self._placed.append((start, end, number))
                self._owners.append([array.owner for array, _ in group])

    def _name(self, array: Array) -> str | None:
        for named, name in self._named:
            if (named.start, named.end) == (array.start, array.end):  # of a part the indices would mislead
                return name
        return None

    def _find(self, start: int, end: int) -> tuple[int, int] | None:
        for low, high, number in self._placed:
            if low <= start and end <= high:
                return number, low
        return None

    def _pointer(self, array: Array) -> Pointer:
        found = self._find(array.start, array.end)
        assert found is not None
        number, low = found
        return Pointer(number, array.address - low)


def check_size(grid: tuple[int, ...], block: tuple[int, ...], shared: int) -> None:
    """KernelError where no GPU would accept such a launch."""
    threads = block[0] * block[1] * block[2]
    if min(*grid, *block) < 1:
        raise KernelError(f"A GPU refuses to launch with a size below 1: grid {grid}, block {block}.")
    if threads > MAX_THREADS:
        raise KernelError(f"The block {block} has {threads} threads; a GPU takes at most {MAX_THREADS}.")
    for what, size, limit in (("grid", grid, MAX_GRID), ("block", block, MAX_BLOCK)):
        if any(s > m for s, m in zip(size, limit, strict=True)):
            raise KernelError(f"The {what} {size} is too large; a GPU takes at most {limit}.")
    if not 0 <= shared <= MAX_SHARED:
        raise KernelError(
            f"The launch asks for {shared} bytes of dynamic shared memory; a block has 0 to {MAX_SHARED}."
        )


def _misalign(array: Array, start: int) -> int:
    return (start - array.storage) % 256  # an allocation starts at a multiple of 256 on a GPU


_emulations: weakref.WeakKeyDictionary[Any, tuple[list, list]] = weakref.WeakKeyDictionary()


class Emulating(Session):
    """Runs each launch on `emulation`, on the tensors' own memory."""

    def __init__(
        self, emulation: Emulation, names: Mapping[str, Any] | None = None, fresh: Fresh | None = None
    ) -> None:
        super().__init__(names)
        self.emulation = emulation
        self.fresh = fresh
        self._told: set[int] = set()
        # What earlier sessions placed on this emulation is where it was.
        self._placed, self._owners = _emulations.setdefault(emulation, ([], []))

    def add(self, array: Array, start: int, end: int, name: str | None) -> int:
        if array.on_gpu:
            raise KernelError(f"The emulator takes tensors on the CPU, and {name or 'one'} is on the GPU; call .cpu().")
        whole = (start, end) == (array.start, array.end)
        shape, strides, dtype = array.shape, array.strides, array.dtype
        if not whole or any(s < 0 for s in strides):
            shape, strides = ((end - start) // array.itemsize,), None
        return self.emulation.memory.add(
            memory_at(start, end - start, array.owner),
            name=name,
            dtype=dtype,
            shape=shape,
            strides=strides,
            misalign=_misalign(array, start),
        )

    def accept(self, record: Launch, cluster: tuple[int, int, int]) -> None:
        if cluster != (1, 1, 1):
            raise KernelError("The emulator does not run thread block clusters; run this kernel on a GPU.")
        if self.fresh is not None:
            self.fresh.mark(self.emulation.memory, self._placed, self._told)
        self.emulation.run(record)


@contextlib.contextmanager
def entered(session: Session) -> Iterator[None]:
    """Inside, launches go to `session`."""
    from labkit.kernels import numba_host

    numba_host.install()
    token = _session.set(session)
    try:
        yield
    finally:
        _session.reset(token)


@contextlib.contextmanager
def emulating(
    emulation: Emulation, names: Mapping[str, Any] | None = None, *, garbage: Iterable[Any] | None = None
) -> Iterator[Emulation]:
    """Inside, numba and CUDA C++ launches run on `emulation`, on a machine with a GPU too.

    names : tensors by the names that messages and counters shall use, else the kernel's parameter names.
    garbage : tensors that nobody has written yet. With it, be it empty, reads of what neither torch nor a kernel has
        written are faults, in tensors that `new_empty` and its like make inside too.
    Raises KernelFault where a kernel strays, KernelError where it cannot be compiled or launched.
    """
    if garbage is None:
        with entered(Emulating(emulation, names)):
            yield emulation
        return
    from labkit.kernels.fresh import Fresh

    with entered(Emulating(emulation, names, fresh := Fresh(garbage))), fresh:
        yield emulation


@contextlib.contextmanager
def session_or_emulator(gpu: bool) -> Iterator[Session | None]:
    """The current session; without one, None where there is a GPU and else an emulation of this launch alone."""
    session = current()
    if session is not None or gpu:
        yield session
        return
    from labkit.emulator.engine import Emulation

    yield _without or Emulating(Emulation(modules=modules))


modules: Modules = {}  # of this process, where each launch is an emulation of its own


def watch(session: Session | None) -> None:
    """Let the launches of this process that stand in no session go to `session`, where there is no GPU; None ends it.

    For profiles of whole programs: it holds in every thread, and a session inside comes first, as always.
    """
    global _without
    _without = session


# --- recording -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordedBuffer:
    """An array that launches use; `data` is its bytes when first used, `misalign` its start modulo 256.

    fresh : nobody had written it by then, so that a kernel must not read it before one writes it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    misalign: int
    data: np.ndarray = field(repr=False)
    fresh: bool = False

    @property
    def nbytes(self) -> int:
        return len(self.data)


@dataclass
class Recording:
    """Launches in order, and the buffers that their pointers number."""

    launches: list[Launch] = field(default_factory=list)
    buffers: list[RecordedBuffer] = field(default_factory=list)
    clusters: list[tuple[int, int, int]] = field(default_factory=list)

    def save(self, folder: str | Path) -> None:
        """Write `recording.json` and one `buffer<i>.bin` per buffer into `folder`, made if need be."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for i, buffer in enumerate(self.buffers):
            buffer.data.tofile(folder / f"buffer{i}.bin")
        (folder / "recording.json").write_text(json.dumps(self.describe()))

    def describe(self) -> dict[str, Any]:
        """All but the buffers' bytes, as `recording.json` holds it."""
        sources = list(dict.fromkeys(launch.ptx for launch in self.launches))
        return {
            "version": 1,
            "ptx": sources,
            "launches": [
                {
                    "ptx": sources.index(launch.ptx),
                    "entry": launch.entry,
                    "grid": launch.grid,
                    "block": launch.block,
                    "shared": launch.shared,
                    "arch": launch.arch,
                    "max_registers": launch.max_registers,
                    "cluster": cluster,
                    "params": [
                        {"buffer": p.buffer, "offset": p.offset}
                        if isinstance(p, Pointer)
                        else {"bytes": base64.b64encode(p).decode()}
                        for p in launch.params
                    ],
                }
                for launch, cluster in zip(self.launches, self.clusters, strict=True)
            ],
            "buffers": [
                {
                    "name": b.name, "dtype": b.dtype, "shape": b.shape, "strides": b.strides,
                    "misalign": b.misalign, "nbytes": b.nbytes, "fresh": b.fresh,
                }
                for b in self.buffers
            ],
        }  # fmt: skip

    @classmethod
    def load(cls, folder: str | Path) -> Recording:
        """What `save` wrote. Raises KernelError where it is not that, whoever wrote it."""
        folder = Path(folder)
        try:
            described = json.loads((folder / "recording.json").read_text())
            return cls.of(described, lambda i: np.fromfile(folder / f"buffer{i}.bin", np.uint8))
        except (OSError, ValueError, RecursionError, KernelError) as error:
            raise KernelError(f"{folder} holds no recording of labkit's: {error!r}.") from error

    @classmethod
    def of(cls, described: Any, data_of: Callable[[int], np.ndarray]) -> Recording:
        """What `describe` gave, with the bytes of each buffer. Raises KernelError where it is not that."""
        try:
            if described["version"] != 1:
                raise ValueError("of another version")
            recording = cls()
            for i, b in enumerate(described["buffers"]):
                data = data_of(i)
                if len(data) != b["nbytes"] or not 0 <= int(b["misalign"]) < 256:
                    raise ValueError(f"buffer {i} does not fit its description")
                strides = None if b["strides"] is None else _ints(b["strides"])
                name, dtype, shape = str(b["name"]), str(b["dtype"]), _ints(b["shape"])
                fresh = bool(b.get("fresh", False))
                recording.buffers.append(RecordedBuffer(name, dtype, shape, strides, int(b["misalign"]), data, fresh))
            for r in described["launches"]:
                registers = r["max_registers"]
                recording.launches.append(
                    Launch(
                        str(described["ptx"][r["ptx"]]),
                        str(r["entry"]),
                        _dim3(r["grid"]),
                        _dim3(r["block"]),
                        tuple(_param(p, len(recording.buffers)) for p in r["params"]),
                        shared=int(r["shared"]),
                        arch=str(r["arch"]),
                        max_registers=None if registers is None else int(registers),
                    )
                )
                check_size(*(_dim3(r[k]) for k in ("grid", "block")), int(r["shared"]))
                recording.clusters.append(_dim3(r["cluster"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise KernelError(f"This is no recording of labkit's: {error!r}.") from error
        return recording

    def run(self, emulation: Emulation) -> list[np.ndarray]:
        """Run every launch on `emulation`; returns the buffers' bytes after it (copies of the recorded ones)."""
        data = [b.data.copy() for b in self.buffers]
        numbers = [
            emulation.memory.add(
                d, name=b.name, dtype=b.dtype, shape=b.shape, strides=b.strides, misalign=b.misalign
            )
            for b, d in zip(self.buffers, data, strict=True)
        ]
        for number, buffer in zip(numbers, self.buffers, strict=True):
            if buffer.fresh:
                emulation.memory.buffers[number].forget()
        for launch in self.launches:
            params = tuple(
                Pointer(numbers[p.buffer], p.offset) if isinstance(p, Pointer) else p for p in launch.params
            )
            emulation.run(
                Launch(
                    launch.ptx, launch.entry, launch.grid, launch.block, params,
                    launch.shared, launch.arch, launch.max_registers,
                )
            )  # fmt: skip
        return data


def _ints(values: Any) -> tuple[int, ...]:
    if not all(type(v) is int for v in values):
        raise ValueError("integers expected")
    return tuple(values)


def _dim3(values: Any) -> tuple[int, int, int]:
    if len(_ints(values)) != 3:
        raise ValueError("three sizes expected")
    return tuple(values)


def _param(described: dict, buffers: int) -> Pointer | bytes:
    if "bytes" in described:
        return base64.b64decode(described["bytes"])
    number, offset = _ints((described["buffer"], described["offset"]))
    if not 0 <= number < buffers:
        raise ValueError(f"there is no buffer {number}")
    return Pointer(number, offset)


class _Recording(Session):
    def __init__(
        self, recording: Recording, names: Mapping[str, Any] | None, fresh: Fresh | None = None
    ) -> None:
        super().__init__(names)
        self.recording = recording
        self.fresh = fresh
        self._used: set[int] = set()
        self._on_gpu: set[int] = set()
        self._outputs: set[int] = set()  # buffers that held garbage at the start
        for array, name in self._named if fresh is not None else ():
            self._place([(array, name)])
        self._inputs = {number for _, _, number in self._placed} - self._outputs

    def add(self, array: Array, start: int, end: int, name: str | None) -> int:
        buffers = self.recording.buffers
        shape, strides = array.shape, array.strides
        if (start, end) != (array.start, array.end) or any(s < 0 for s in strides):
            shape, strides = ((end - start) // array.itemsize,), None
        data = _bytes(start, end, array.on_gpu)
        fresh = self.fresh is not None and (start, end) in self.fresh.ranges
        name = name or f"array{len(buffers)}"
        if fresh:
            self._outputs.add(len(buffers))
        if array.on_gpu:
            self._on_gpu.add(len(buffers))
        buffers.append(RecordedBuffer(name, array.dtype, shape, strides, _misalign(array, start), data, fresh))
        return len(buffers) - 1

    def accept(self, record: Launch, cluster: tuple[int, int, int]) -> None:
        used = {param.buffer for param in record.params if isinstance(param, Pointer)}
        for start, end, number in self._placed:
            if number in self._outputs & (used - self._used) and (start, end) not in self.fresh.ranges:
                # The host has written it, after it was placed and before this launch.
                data = _bytes(start, end, number in self._on_gpu)
                self.recording.buffers[number] = replace(self.recording.buffers[number], data=data, fresh=False)
        self._used |= used
        self.recording.launches.append(record)
        self.recording.clusters.append(cluster)

    def touches(self, start: int, end: int) -> bool:
        """Whether an input, or what a recorded launch uses, lies between these addresses."""
        return any(
            low < end and start < high and (number in self._used or number in self._inputs)
            for low, high, number in self._placed
        )

    def touches_tensor(self, value: Any) -> bool:
        array = as_array(value, "a tensor")
        return array is not None and self.touches(array.start, array.end)


def refuse_look(start: int, end: int) -> None:
    """KernelError where launches are being recorded and one of them uses memory between these addresses."""
    session = current()
    if isinstance(session, _Recording) and session.touches(start, end):
        raise KernelError(_REFUSED.format("A copy"))


def _bytes(start: int, end: int, on_gpu: bool) -> np.ndarray:
    if on_gpu:
        return _gpu_bytes(start, end)
    held = memory_at(start, end - start, None)
    # Of zeros no copy is taken: pages that nobody has written take no memory, here as there.
    return held.copy() if _any(held) else np.zeros(len(held), np.uint8)


def _any(data: np.ndarray) -> bool:
    """Whether one of these bytes is not zero."""
    whole = len(data) // 8 * 8
    return bool(data[:whole].view(np.uint64).any() or data[whole:].any())


def _gpu_bytes(start: int, end: int) -> np.ndarray:
    from labkit.kernels import gpu

    data = np.empty(end - start, np.uint8)
    gpu.current_context()
    gpu.call("cuCtxSynchronize")
    if len(data):
        gpu.call("cuMemcpyDtoH", data.ctypes.data, start, len(data))
    return data


@contextlib.contextmanager
def recording(
    names: Mapping[str, Any] | None = None, *, garbage: Iterable[Any] | None = None
) -> Iterator[Recording]:
    """Inside, launches are only recorded: nothing runs, and tensors keep their values.

    So host code inside must not look at, or change, a tensor that a launch has used: torch operations, `.item()`,
    `.numpy()`, printing and `copy_to_host` raise KernelError then. Bare numpy arrays cannot be watched.
    names : as for `emulating`.
    garbage : as for `emulating`; with it, the tensors of `names` are the first buffers, in their order, used or not.
    """
    record = Recording()
    if garbage is None:
        session = _Recording(record, names)
        with entered(session), _guard(session):
            yield record
        return
    from labkit.kernels.fresh import Fresh

    session = _Recording(record, names, fresh := Fresh(garbage))
    with entered(session), _guard(session), fresh:
        yield record


# Functions of torch that read and write no element.
HARMLESS = frozenset(
    """__get__ __len__ __getitem__ __hash__ size stride dim ndimension numel nelement element_size data_ptr
    storage_offset is_contiguous is_floating_point is_complex is_signed get_device new_empty new_zeros new_ones
    new_full new_empty_strided empty_like zeros_like ones_like full_like view view_as transpose t permute
    movedim swapaxes unsqueeze squeeze expand narrow select unbind split chunk as_strided unfold diagonal
    detach""".split()
)
_PERHAPS_VIEWS = frozenset("reshape contiguous flatten to type float double half bfloat16".split())


_REFUSED = (
    "{} reaches the values of a tensor that a kernel launched before uses, or of an input, but launches are being "
    "recorded here, not run; do this in a kernel."
)


def _guard(session: _Recording) -> contextlib.AbstractContextManager:
    """While entered, torch functions that reach elements of a tensor that a recorded launch used raise."""
    try:
        from torch import Tensor
        from torch.overrides import TorchFunctionMode
    except ImportError:
        return contextlib.nullcontext()

    class Guard(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(func, "__name__", "")
            tensors = [v for v in flat((args, kwargs or {})) if isinstance(v, Tensor)]
            touched = name not in HARMLESS and any(session.touches_tensor(t) for t in tensors)
            if touched and name not in _PERHAPS_VIEWS:
                raise KernelError(_REFUSED.format(f"`{name}`"))
            result = func(*args, **(kwargs or {}))
            if touched and not session.touches_tensor(result):  # a copy
                raise KernelError(_REFUSED.format(f"`{name}`"))
            return result

    return Guard()


def flat(value: Any) -> Iterator[Any]:
    """What stands in tuples, lists and values of dicts, however deep."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from flat(item)
    elif isinstance(value, dict):
        yield from flat(list(value.values()))
    else:
        yield value
