"""What one block does, step by step: active lanes, elements read and written, what one warp loads and stores."""

from __future__ import annotations

import linecache
import math
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.emulator.declared import declared
from labkit.emulator.memory import WINDOW_BITS, itemsize
from labkit.emulator.ptx import SIZES
from labkit.errors import LabkitError

if TYPE_CHECKING:
    from labkit.emulator.engine import Machine
    from labkit.emulator.ptx import Instruction, Program

LANES = 32
STEPS = 200_000  # instructions of the block that are kept
ELEMENTS = 4_000_000  # distinct (phase, element) pairs that are kept
PENDING = 1 << 16  # accesses put aside before equal ones are counted together
SNAPSHOTS = 64 << 20  # bytes of copies of shared memory, where values are kept


@dataclass(frozen=True)
class Array:
    """An array that the block touches; `strides` in elements."""

    name: str
    space: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    start: int  # byte address, or offset inside shared memory

    def indices(self, elements: np.ndarray) -> tuple[np.ndarray, ...]:
        """Element numbers, counted in memory from the first, as one array of indices per dimension."""
        found: list = [np.zeros(len(elements), np.int64)] * len(self.shape)
        for k in sorted(range(len(self.shape)), key=lambda k: -self.strides[k]):
            if self.strides[k] > 0:
                found[k], elements = np.divmod(elements, self.strides[k])
        return tuple(found)


@dataclass
class Access:
    """A memory access of the chosen warp: 32 addresses (-1 where inactive) and the values, (lanes, elements each)."""

    step: int
    op: str
    space: str
    array: Array | None
    addresses: np.ndarray
    width: int
    dtype: np.dtype
    values: np.ndarray | None = None

    def label(self, lane: int) -> str:
        """`A[3, 4]`, the element that a lane touches."""
        at = int(self.addresses[lane])
        if self.array is None:
            return f"byte {at}"
        element = np.array([(at - self.array.start) // self.array.itemsize])
        return f"{self.array.name}[{', '.join(str(int(i[0])) for i in self.array.indices(element))}]"


class _Counts:
    """How often each element number occurs: equal ones are added up from time to time."""

    def __init__(self) -> None:
        self.elements = np.zeros(0, np.int64)
        self.counts = np.zeros(0, np.int64)
        self.pending: list[np.ndarray] = []
        self.waiting = 0

    def add(self, elements: np.ndarray) -> int:
        """Count these; gives by how many the distinct ones have grown."""
        self.pending.append(elements)
        self.waiting += len(elements)
        return self.fold() if self.waiting > PENDING else 0

    def fold(self) -> int:
        if not self.pending:
            return 0
        new, times = np.unique(np.concatenate(self.pending), return_counts=True)
        self.pending, self.waiting = [], 0
        both, where = np.unique(np.concatenate([self.elements, new]), return_inverse=True)
        counts = np.zeros(len(both), np.int64)
        np.add.at(counts, where, np.concatenate([self.counts, times]))
        grown = len(both) - len(self.elements)
        self.elements, self.counts = both, counts
        return grown


class Steps:
    """A recorder of block `block` in the first launch that has it: `Emulation(steps=Steps())`.

    A step is one PTX instruction executed by some warps of the block; a phase ends where a barrier does. At most
    `limit` steps are kept, and `notes` says where something was left out. With `warp`, the values that this warp loads
    and stores are kept too, and shared memory at each of its steps.
    """

    def __init__(self, block: tuple[int, int, int] = (0, 0, 0), *, warp: int | None = None, limit: int = STEPS) -> None:
        self.block = block
        self.warp = warp
        self.limit = limit
        self.program: Program | None = None
        self.launches = 0
        self.executed_steps = 0
        self.pcs: list[int] = []
        self.active: list[np.ndarray] = []  # of each step, the active lanes as bits, one uint32 per warp
        self.phases: list[int] = []
        self.accesses: list[Access] = []
        self.shared: list[tuple[int, np.ndarray]] = []  # (step, contents from there on), of the chosen warp
        self._arrays: dict[tuple[str, int], Array] = {}
        self._touched: dict[tuple[str, str, int], _Counts] = defaultdict(_Counts)
        self._elements = 0
        self._snapshots = 0
        self._store: Access | None = None

    # ---- what the engine calls

    def start(self, machine: Machine) -> bool:
        """A chunk of blocks starts; gives whether it has the block, so that its steps are to be told."""
        chunk, grid = machine.chunk, machine.launch.grid
        self._settle()
        self.launches += chunk.first_block == 0
        x, y, z = self.block
        number = x + grid[0] * (y + grid[1] * z) - chunk.first_block
        inside = all(0 <= k < n for k, n in zip(self.block, grid, strict=True))
        if self.program is not None or not inside or not 0 <= number < chunk.blocks:
            return False
        self.program = machine.program
        self.memory = machine.memory
        self.grid, self.threads = grid, machine.launch.block
        self.warps = chunk.warps_per_block
        if self.warp is not None and not 0 <= self.warp < self.warps:
            raise LabkitError(f"There is no warp {self.warp}: a block has warps 0 to {self.warps - 1} here.")
        self._inside = slice(number * chunk.stride, (number + 1) * chunk.stride)
        self._phase = np.zeros(chunk.stride, np.int64)
        self._masks: dict[int, tuple] = {}
        self._window = None
        if machine.shared is not None:
            self._window = machine.shared[number * machine.shared_stride :][: machine.shared_bytes]
        self._dynamic = machine.launch.shared
        self._names = declared(self.program, "shared")
        self._types: dict[str, np.dtype | None] = {}
        machine.counters = _Beside(self, machine.emulation.counters)
        return True

    def executed(self, pc: int, active: Any, pred_on: Any) -> None:
        """Instruction `pc` runs in the lanes `active`, and takes effect in `pred_on`."""
        if self._store is not None:
            self._settle()
        instr = self.program.instructions[pc]
        lanes = active if instr.op in ("bra", "brx", "ret", "exit") else pred_on
        known = self._masks.get(id(lanes))
        if known is None:
            if len(self._masks) > 4096:
                self._masks.clear()
            where = lanes.where[self._inside]
            bits = np.packbits(where.reshape(-1, LANES), axis=1, bitorder="little").view(np.uint32).ravel()
            known = self._masks[id(lanes)] = (lanes, where, bits, int(where.argmax()) if where.any() else None)
        _, where, bits, first = known
        if first is None:
            return
        self.executed_steps += 1
        if len(self.pcs) < self.limit:
            self.pcs.append(pc)
            self.active.append(bits)
            self.phases.append(int(self._phase[first]))
        if is_barrier(instr):
            self._phase = self._phase + where
        if self.warp is not None and bits[self.warp]:
            self._snapshot()

    def access(
        self, instr: Instruction, space: str, kind: str, addr: Any, mask: Any, width: int, chunk: Any
    ) -> None:
        """Called by the engine like `Counters.access`."""
        if space not in ("global", "shared"):
            return
        known = self._masks.get(id(mask))
        where = mask.where[self._inside] if known is None or known[0] is not mask else known[1]
        if not where.any():
            return
        addr = addr[self._inside] if np.ndim(addr) else np.full(len(where), addr)
        inside, phase = addr[where], self._phase[where]
        size = SIZES[instr.types[-1]]
        array = self._array(space, int(inside[0]), size)
        if array is not None and self._elements < ELEMENTS:
            numbers = (inside - array.start) // array.itemsize
            if space == "global" and ((inside >> WINDOW_BITS) != array.start >> WINDOW_BITS).any():
                self._apart(inside, phase, size, width, kind)
            else:
                self._touch(array, numbers, phase, max(width // array.itemsize, 1), kind)
        if self.warp is not None:
            self._value(space, kind, addr, where, width, instr)

    # ---- what has been recorded

    @property
    def kernel(self) -> str:
        return self.program.kernel

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out, one sentence each."""
        found = []
        if self.executed_steps > len(self.pcs):
            found.append(f"Only the first {len(self.pcs):,} of {self.executed_steps:,} steps were kept.")
        if self._elements >= ELEMENTS:
            found.append("The block touches so many elements that only the first ones were counted.")
        if self.launches > 1:
            found.append(f"Of {self.launches} launches, the first one with this block is shown.")
        if self._snapshots >= SNAPSHOTS:
            found.append("Shared memory is shown as it was at first: later contents were not kept.")
        return tuple(found)

    def finish(self) -> None:
        """The launches are over: let go of what only their run needed."""
        self._settle()
        for counts in self._touched.values():
            counts.fold()
        if self.program is not None:
            del self._masks, self._window, self.memory

    def instruction(self, step: int) -> Instruction:
        return self.program.instructions[self.pcs[step]]

    def text(self, line: int | None) -> str:
        """A line of the kernel's source, without its indentation."""
        return linecache.getline(self.program.file or "", line or 0).strip()

    @cached_property
    def lanes(self) -> np.ndarray:
        """Active lanes as bits, uint32 (steps, warps)."""
        return np.array(self.active, np.uint32).reshape(-1, self.warps)

    def of_warp(self, warp: int) -> np.ndarray:
        """The numbers of the steps in which a warp takes part; LabkitError where there is no such warp."""
        if not 0 <= warp < self.warps:
            raise LabkitError(f"There is no warp {warp}: the block has warps 0 to {self.warps - 1}.")
        return np.flatnonzero(self.lanes[:, warp])

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays that the block touches, by name."""
        return {array.name: array for array in self._arrays.values()}

    def array(self, name: str) -> Array:
        """An array by its name; LabkitError with those that there are."""
        if name not in self.arrays:
            known = ", ".join(self.arrays) or "no array at all"
            raise LabkitError(f"Block {self.block} touches no array {name!r}; it touches {known}.")
        return self.arrays[name]

    def touched(self, name: str, op: str) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Per phase, the elements of an array that the block reads (op "ld") or writes ("st"), and how often."""
        self.array(name)
        found = {}
        for (array, kind, phase), counts in sorted(self._touched.items()):
            if array == name and kind == op:
                counts.fold()
                found[phase] = counts.elements, counts.counts
        return found

    def grid_of(self, name: str, op: str, phase: int | None = None) -> np.ndarray:
        """How often the block reads or writes each element of an array, in its shape (all phases, or one)."""
        array = self.array(name)
        total = np.zeros(array.shape, np.int64)
        for k, (elements, counts) in self.touched(name, op).items():
            if phase is None or k == phase:
                np.add.at(total, array.indices(elements), counts)
        return total

    # ---- inside

    def _touch(self, array: Array, numbers: np.ndarray, phase: np.ndarray, each: int, kind: str) -> None:
        if each > 1:
            numbers = (numbers[:, None] + np.arange(each)).ravel()
            phase = np.repeat(phase, each)
        for op in {"ld": ("ld",), "st": ("st",)}.get(kind, ("ld", "st")):
            if phase[0] == phase[-1] and (phase == phase[0]).all():
                self._elements += self._touched[array.name, op, int(phase[0])].add(numbers)
            else:
                for k in np.unique(phase):
                    self._elements += self._touched[array.name, op, int(k)].add(numbers[phase == k])

    def _apart(self, addr: np.ndarray, phase: np.ndarray, size: int, width: int, kind: str) -> None:
        """Lanes of one instruction in several arrays."""
        for window in np.unique(addr >> WINDOW_BITS):
            mine = (addr >> WINDOW_BITS) == window
            array = self._array("global", int(addr[mine][0]), size)
            numbers = (addr[mine] - array.start) // array.itemsize
            self._touch(array, numbers, phase[mine], max(width // array.itemsize, 1), kind)

    def _array(self, space: str, at: int, size: int) -> Array | None:
        if space == "global":
            key = (space, at >> WINDOW_BITS)
            if key not in self._arrays:
                b = self.memory.find(at)
                if b is None:
                    return None
                self._arrays[key] = Array(b.name, space, b.shape, b.strides, itemsize(b.dtype), b.base)
            return self._arrays[key]
        for variable, start in self.program.shared.values():
            extent = variable.size or self._dynamic
            if not start <= at < start + max(extent, 1):
                continue
            if (space, start) not in self._arrays:
                known = self._names.get(variable.name)
                kind = self._declared_type(known.name) if known else None
                size = min(size, kind.itemsize) if kind is not None else size
                shape = known.shape if known and math.prod(known.shape) * size == extent else (max(extent // size, 1),)
                strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
                name = known.name if known else f"shared array at byte {start}"
                self._arrays[space, start] = Array(name, space, shape, strides, size, start)
            return self._arrays[space, start]
        return None

    def _value(
        self, space: str, kind: str, addr: np.ndarray, where: np.ndarray, width: int, instr: Instruction
    ) -> None:
        mine = slice(self.warp * LANES, (self.warp + 1) * LANES)
        on = where[mine]
        if not on.any() or len(self.pcs) >= self.limit:
            return
        addresses = np.where(on, addr[mine], -1)
        array = self._array(space, int(addresses[on][0]), SIZES[instr.types[-1]])
        access = Access(len(self.pcs) - 1, kind, space, array, addresses, width, self._dtype(space, array, instr))
        self.accesses.append(access)
        if kind == "ld":
            access.values = self._look(access)
        else:
            self._store = access  # memory has it once the instruction is over

    def _settle(self) -> None:
        if self._store is not None:
            self._store.values = self._look(self._store)
            self._store = None

    def _look(self, access: Access) -> np.ndarray:
        dtype = access.dtype
        each = max(access.width // dtype.itemsize, 1)
        out = np.zeros((LANES, each), dtype)
        for lane in np.flatnonzero(access.addresses >= 0):
            at = int(access.addresses[lane])
            data = self._window
            if access.space == "global":
                buffer = self.memory.find(at)
                data, at = buffer.data, at - buffer.base
            out[lane] = np.frombuffer(data[at : at + each * dtype.itemsize].tobytes(), dtype)
        return out

    def _snapshot(self) -> None:
        if self._window is None or self._snapshots >= SNAPSHOTS or len(self.pcs) >= self.limit:
            return
        if not self.shared or not np.array_equal(self.shared[-1][1], self._window):
            self.shared.append((len(self.pcs) - 1, self._window.copy()))
            self._snapshots += self._window.nbytes

    def _dtype(self, space: str, array: Array | None, instr: Instruction) -> np.dtype:
        """As what a value is shown: PTX often says no more than its size."""
        kind, size = instr.types[-1], SIZES[instr.types[-1]]
        if space == "global" and array is not None and array.itemsize <= size:
            name = self.memory.find(array.start).dtype
            return np.dtype(name) if name in np.sctypeDict else np.dtype(f"u{array.itemsize}")
        known = self._declared_type(array.name) if array is not None else None
        if known is not None and known.itemsize <= size:
            return known
        letter = {"f": "f", "s": "i"}.get(kind[0], "u") if kind not in ("bf16", "bf16x2", "f16x2") else "u"
        return np.dtype(f"{letter}{min(size, 8)}")

    def _declared_type(self, name: str) -> np.dtype | None:
        """The type of a shared array's elements, as far as the source's declaration tells: PTX knows only its size."""
        if name not in self._types:
            source = "".join(linecache.getlines(self.program.file or ""))
            name_ = re.escape(name)
            line = re.search(rf"^\s*{name_}\s*=.*shared\.array.*$|^.*__shared__.*\b{name_}\b.*$", source, re.M)
            found = None
            for pattern, dtype in _TYPES if line else ():
                if found is None and re.search(pattern, line[0]):
                    found = np.dtype(dtype)
            self._types[name] = found
        return self._types[name]


class _Beside:
    """Tells the recorder and, if there are any, the counters."""

    def __init__(self, steps: Steps, counters: Any) -> None:
        self.steps, self.counters = steps, counters

    def executed(self, pc: int, active: Any, pred_on: Any) -> None:
        self.steps.executed(pc, active, pred_on)
        if self.counters is not None:
            self.counters.executed(pc, active, pred_on)

    def access(self, *args: Any) -> None:
        self.steps.access(*args[:7])  # not where cp.async writes
        if self.counters is not None:
            self.counters.access(*args)


_TYPES = (
    (r"\b(float64|double)", "f8"), (r"\b(float32|float[234]?)\b", "f4"), (r"\b(float16|__half|half)\b", "f2"),
    (r"\bunsigned\b|\buint32", "u4"), (r"\b(int64|long)", "i8"), (r"\b(int32|int[234]?)\b", "i4"),
)  # fmt: skip


def is_barrier(instr: Instruction) -> bool:
    """Whether the instruction waits for other warps of the block."""
    return instr.op in ("bar", "barrier") and not {"warp", "arrive", "cluster"} & set(instr.mods)


@dataclass(frozen=True)
class Stretch:
    """What a warp does from `start` to `stop`: executes source line `line`, or (None) waits at a barrier."""

    warp: int
    start: int
    stop: int
    line: int | None
    lanes: int  # active lanes, at most


def schedule(steps: Steps) -> tuple[list[Stretch], list[int]]:
    """The block's warps side by side, and when its barriers open.

    Each warp executes one instruction per unit of time, and goes on at a barrier when the last one has come.
    """
    found: list[Stretch] = []
    opens: list[int] = []
    phases = np.array(steps.phases)
    start = 0
    for phase in range(int(phases.max(initial=-1)) + 1):
        inside = np.flatnonzero(phases == phase)
        lanes = steps.lanes[inside]
        ends = []
        for warp in range(steps.warps):
            now = start
            for step in inside[lanes[:, warp] != 0]:
                line, on = steps.instruction(step).line, int(steps.lanes[step, warp]).bit_count()
                last = found[-1] if found else None
                if last and (last.warp, last.stop, last.line, last.lanes) == (warp, now, line, on):
                    found[-1] = Stretch(warp, last.start, now + 1, line, on)
                else:
                    found.append(Stretch(warp, now, now + 1, line, on))
                now += 1
            ends.append(now)
        stop = max(ends)
        if is_barrier(steps.instruction(inside[-1])):
            waits = [w for w in range(steps.warps) if start < ends[w] < stop]
            found += [Stretch(w, ends[w], stop, None, 0) for w in waits]
            opens.append(stop)
        start = stop
    return found, opens
