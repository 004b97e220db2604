"""Global memory under watch: races between blocks and within one, and reads of what nobody has written.

Blocks of a launch are ordered by nothing but flags: a thread fences what it (or, before a barrier, its block) has
written and then updates a flag; a thread of another block reads that flag, and with it what came before, and so do
the threads that pass a barrier after it. Within a block barriers order as for shared memory (`order.py`).

Only buffers that the launch may write are watched for races, and only those with unwritten bytes for their reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from labkit.emulator.memory import WINDOW_BITS, Buffer
from labkit.emulator.order import Order
from labkit.emulator.provenance import UNKNOWN, provenance
from labkit.emulator.ptx import SIZES

if TYPE_CHECKING:
    from labkit.emulator.compiler import Access, Place
    from labkit.emulator.engine import Machine, Mask

LARGEST = 1 << 25  # granules of a buffer beyond which its races are not looked for
DIRECT = 8  # flags, and updates of each, that are asked for whole blocks before the search
PATIENCE = 4_000  # steps of a search through chains of flags; a longer one counts as order


class Table:
    """The shadow of one buffer: of each granule, its last write and its last two readers; threads by launch-wide
    numbers, times by the watch's clock.
    """

    def __init__(self, count: int) -> None:
        self.written = self.was_read = False
        self.write_time = np.full(count, -1, np.int64)
        self.writer = np.zeros(count, np.int64)
        self.write_pc = np.zeros(count, np.int32)
        self.write_atomic = np.zeros(count, bool)
        self.read_time = np.full((2, count), -1, np.int64)
        self.reader = np.full((2, count), -1, np.int64)
        self.read_pc = np.zeros((2, count), np.int32)
        self.flag = np.zeros(count, bool)

    def read(self, granules: np.ndarray, threads: np.ndarray, pc: int, time: int) -> None:
        """Enter a read: the last reader, and the last other one."""
        self.was_read = True
        before, before_time, before_pc = (a[0][granules] for a in (self.reader, self.read_time, self.read_pc))
        self.reader[0][granules] = threads
        now = self.reader[0][granules]
        new = before != now
        at = granules[new]
        self.reader[1][at], self.read_time[1][at], self.read_pc[1][at] = before[new], before_time[new], before_pc[new]
        beside = threads != now
        if beside.any():
            at = granules[beside][::-1]  # of one instruction's the lowest thread, beside the highest
            self.reader[1][at], self.read_time[1][at], self.read_pc[1][at] = threads[beside][::-1], time, pc
        self.read_time[0][granules] = time
        self.read_pc[0][granules] = pc


@dataclass(frozen=True)
class Spot:
    """The part of a place that lies in one buffer, an entry per granule."""

    buffer: Buffer
    table: Table | None
    granules: np.ndarray
    lanes: np.ndarray
    each: int  # granules per lane
    which: np.ndarray | None  # of the place's mask's lanes, those that point here; None: all


@dataclass(frozen=True)
class Clash:
    """Two unordered accesses: chunk lane, the other thread's launch-wide number, its instruction, and where."""

    lane: int
    other: int
    other_pc: int
    other_kind: str
    address: int


@dataclass(frozen=True)
class Release:
    """A thread's update of a flag after a fence; `known` is how many flags its block had read by then, and `until` as
    in `Watch._until`.
    """

    thread: int
    time: int
    until: tuple[int, ...]
    warp_stamp: int
    fence: int
    known: int


@dataclass(frozen=True)
class Acquire:
    """A thread has read a flag that had been updated `count` times."""

    flag: tuple[int, int]
    count: int
    thread: int
    time: int


class Watch(Order):
    """Of one launch."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.origins = provenance(machine.program)
        widths = [
            SIZES[i.types[-1]]
            for i in machine.program.instructions
            if i.op in ("ld", "ldu", "st", "atom", "red") and i.types and not {"shared", "local", "param"} & set(i.mods)
        ]
        if any(i.op == "cp" for i in machine.program.instructions):
            widths.append(4)
        self.shift = min(widths, default=4).bit_length() - 1
        self.tables: dict[int, Table] = {}
        self.watched = self._watched()
        self.allowed: set[tuple[int, int]] = set()
        self.base = 0
        self.stride = 1
        self.fences: np.ndarray | None = None
        self.flags: dict[tuple[int, int], list[Release]] = {}
        self.acquired: dict[int, list[Acquire]] = {}
        self.known: dict[tuple[int, int], tuple[int, int]] = {}

    def _watched(self) -> set[int] | None:
        """Numbers of the buffers that the launch may write; None for all."""
        found: set[int] = set()
        for origin in self.origins.writes:
            buffers = self.buffers_of(origin)
            if not buffers:
                return None
            found |= buffers
        return found

    def buffers_of(self, origin: frozenset) -> set[int]:
        """The buffers that pointers of an origin are given for; empty where that is not known."""
        from labkit.emulator.launch import Pointer

        machine = self.machine
        found = set()
        for source in origin:
            if isinstance(source, str):
                variable = machine.program.module.variables.get(source)
                if variable is None or variable.space not in ("global", "const"):
                    return set()
                found.add((machine.emulation.symbol(machine.program, variable) >> WINDOW_BITS) - 1)
            elif source != UNKNOWN:
                value = machine.launch.params[source]
                if isinstance(value, Pointer):
                    found.add(value.buffer)
                elif len(value) > 8:
                    return set()  # a structure, perhaps with pointers in it
        return found

    # ---- time

    def start(self, first_block: int, stride: int, lanes: int) -> None:
        """A chunk of blocks begins."""
        self.stride = stride
        self.base = first_block * stride
        self.clock += 1
        self.begin(lanes, stride // 32)

    def fence(self, mask: Mask) -> None:
        """`__threadfence()`."""
        if self.fences is None:
            x, y, z = self.machine.launch.grid
            self.fences = np.full(x * y * z * self.stride, -1, np.int64)
        self.clock += 1
        self.fences[self.base + mask.index] = self.clock

    # ---- where

    def spots(self, access: Access, place: Place) -> tuple[Spot, ...]:
        """The watched parts of a place."""
        mask, address = place.mask, place.address
        first = int(address if np.ndim(address) == 0 else address[mask.index[0]])
        if place.view is not None:
            number = (first >> WINDOW_BITS) - 1
            self._permitted(access, place, number)
            if not self._matters(number):
                return ()
            numbers = None
        lanes = mask.index
        address = np.broadcast_to(address, (self.machine.chunk.lanes,))[lanes]
        if place.view is not None:
            return (self._spot(access, number, address, lanes, None),)
        found = []
        numbers = (address >> WINDOW_BITS) - 1
        for number in np.unique(numbers).tolist():
            self._permitted(access, place, number)
            if self._matters(number):
                which = numbers == number
                found.append(self._spot(access, number, address[which], lanes[which], which))
        return tuple(found)

    def _matters(self, number: int) -> bool:
        buffer = self.machine.memory.buffers[number]
        return self.watched is None or number in self.watched or buffer.initialized is not None

    def _spot(
        self, access: Access, number: int, address: np.ndarray, lanes: np.ndarray, which: np.ndarray | None
    ) -> Spot:
        buffer = self.machine.memory.buffers[number]
        table = None
        if self.watched is None or number in self.watched:
            table = self.tables.get(number)
            count = (len(buffer.data) + buffer.base % 256 >> self.shift) + 1
            if table is None and count <= LARGEST:
                table = self.tables[number] = Table(count)
        granules = (address - (buffer.base & ~255)) >> self.shift
        each = max(access.width >> self.shift, 1)
        if each > 1:
            granules = (granules[:, None] + np.arange(each)).ravel()
            lanes = np.repeat(lanes, each)
        return Spot(buffer, table, granules, lanes, each, which)

    def _permitted(self, access: Access, place: Place, number: int) -> None:
        """Raise where a pointer to one array has run into another."""
        key = (access.pc, number)
        if key in self.allowed:
            return
        origin = self.origins.origins.get(access.pc, frozenset([UNKNOWN]))
        buffers = self.buffers_of(origin) if UNKNOWN not in origin else set()
        if not buffers or number in buffers:
            self.allowed.add(key)
            return
        m = self.machine
        address = np.broadcast_to(place.address, (m.chunk.lanes,))
        lane = next(int(k) for k in place.mask.index if (int(address[k]) >> WINDOW_BITS) - 1 == number)
        who, buffer = m.who(lane), m.memory.buffers[number]
        own = " or ".join(m.memory.buffers[k].label for k in sorted(buffers))
        raise m.fault(
            "out_of_bounds",
            f"thread {who['thread']} of block {who['block']} {access.verb} {m.memory.describe(int(address[lane]))}"
            f" through a pointer to {own}, of which it is no part",
            "Check the index against the array's shape before the access.",
            pc=access.pc,
            address=int(address[lane]),
            array=buffer.name,
            index=buffer.index(int(address[lane]) - buffer.base),
            **who,
        )

    # ---- what the engine calls

    def read(self, access: Access, place: Place) -> None:
        """A load; a volatile or acquiring one reads flags too."""
        for spot in self._spots(access, place):
            self.initialized(access, place, spot)
            if spot.table is None:
                continue
            threads = self.base + spot.lanes
            if access.volatile and self.flags:
                for k in np.flatnonzero(spot.table.flag[spot.granules])[:: spot.each].tolist():
                    self.acquire(spot, k)
            if spot.table.written:
                clash = self.against_write(spot, threads, atomic=access.volatile)
                if clash:
                    self.found(access, clash)
            if not access.volatile:
                spot.table.read(spot.granules, threads, access.pc, self.clock)

    def write(self, access: Access, place: Place, values: list | None) -> None:
        """A store of `values` (arrays over the mask's lanes or numbers), or an atomic (None), before it is done."""
        atomic = values is None or access.volatile
        for spot in self._spots(access, place):
            if values is None and access.kind in ("atom", "red"):
                self.initialized(access, place, spot)
            if spot.buffer.initialized is not None:
                self.mark(access, place, spot)
            table = spot.table
            if table is None:
                continue
            threads = self.base + spot.lanes
            if atomic and self.fences is not None:
                self.update_flags(access, spot)
            same = None if atomic else lambda spot=spot: self._same(access, place, spot, values)
            clash = None
            if table.written:
                clash = self.against_write(spot, threads, atomic=atomic, pc=access.pc, same=same)
            if table.was_read and clash is None:
                clash = self.against_read(spot, threads)
            table.written = True
            table.write_time[spot.granules] = self.clock
            table.writer[spot.granules] = threads
            table.write_pc[spot.granules] = access.pc
            table.write_atomic[spot.granules] = atomic
            if clash is None and not atomic:
                clash = self._twice(access, spot, threads, values)
            if clash:
                self.found(access, clash)

    def _spots(self, access: Access, place: Place) -> tuple[Spot, ...]:
        if place.watched is None:
            place.watched = self.spots(access, place)
        return place.watched

    # ---- unwritten memory

    def _marks(self, access: Access, place: Place, spot: Spot) -> tuple[np.ndarray, np.ndarray]:
        """Of each lane's elements, whether their bytes are written: a view of them, and indices into it."""
        element = min(access.element, 8)
        view, origin = spot.buffer.initialized.view(np.dtype(f"u{element}"))
        lanes = spot.lanes[:: spot.each]
        address = np.broadcast_to(place.address, (self.machine.chunk.lanes,))[lanes]
        index = (address - origin) // element
        return view, (index[:, None] + np.arange(access.width // element)).ravel()

    def initialized(self, access: Access, place: Place, spot: Spot) -> None:
        buffer = spot.buffer
        if buffer.initialized is None or place.initialized:
            return
        view, index = self._marks(access, place, spot)
        whole = np.frombuffer(b"\x01" * view.itemsize, view.dtype)[0]
        blank = view[index] != whole
        if not blank.any():
            place.initialized = len(place.watched) == 1
            return
        k = int(np.argmax(blank))
        m = self.machine
        lane = int(spot.lanes[:: spot.each][k * len(spot.lanes) // spot.each // len(index)])
        who = m.who(lane)
        address = int(index[k]) * view.itemsize + spot.buffer.initialized.view(view.dtype)[1]
        exchange = access.kind in ("atom", "red") and "exch" in access.instruction.mods
        if exchange:
            return
        raise m.fault(
            "uninitialized",
            f"thread {who['thread']} of block {who['block']} {access.verb} {m.memory.describe(address)}, which nothing"
            " has written",
            "New memory holds garbage: write every element before it is read, zeros too"
            + (", or let the host fill it." if access.kind == "ld" else " (an atomic adds to what is there)."),
            pc=access.pc,
            address=address,
            array=buffer.name,
            index=buffer.index(address - buffer.base),
            **who,
        )

    def mark(self, access: Access, place: Place, spot: Spot) -> None:
        view, index = self._marks(access, place, spot)
        view[index] = np.frombuffer(b"\x01" * view.itemsize, view.dtype)[0]

    # ---- races

    def _open(self, spot: Spot, threads: np.ndarray, other: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Neither the same thread nor ordered by barriers."""
        bad = (time >= 0) & (other != threads)
        if not bad.any():
            return bad
        at = np.flatnonzero(bad)
        mine, lanes, theirs, time = threads[at], spot.lanes[at], other[at], time[at]
        inside = mine // self.stride == theirs // self.stride
        local = np.where(inside, theirs - self.base, lanes)
        bad[at] = ~inside | self.unordered(time, local, lanes)
        return bad

    def _by_flags(self, bad: np.ndarray, threads: np.ndarray, other: np.ndarray, time: np.ndarray) -> np.ndarray:
        """What is still open once flags are asked."""
        if self.fences is None or not self.acquired or not bad.any():
            return bad
        bad = self._by_direct_flags(bad, threads, other, time)
        if not bad.any():
            return bad
        at = np.flatnonzero(bad)
        pairs = np.stack((other[at], threads[at]), axis=1)
        unique, back = np.unique(pairs, axis=0, return_inverse=True)
        latest = np.full(len(unique), -1, np.int64)
        np.maximum.at(latest, back.ravel(), time[at])
        fine = np.array([self.ordered(int(u), int(v), int(t)) for (u, v), t in zip(unique, latest, strict=True)])
        bad = bad.copy()
        bad[at] = ~fine[back.ravel()]
        return bad

    def _by_direct_flags(
        self, bad: np.ndarray, threads: np.ndarray, other: np.ndarray, time: np.ndarray
    ) -> np.ndarray:
        """The most frequent order, for whole blocks at once: barrier, fence, flag; then flag, barrier, access."""
        bad = bad.copy()
        at = np.flatnonzero(bad)
        first, then, time = other[at], threads[at], time[at]
        lanes, fence = then - self.base, self.fences[first]
        blocks, warps = first // self.stride, first % self.stride // 32
        for block in np.unique(then // self.stride).tolist():
            mine = then // self.stride == block
            for read in self.acquired.get(block, ())[-DIRECT:]:
                aware = mine & (self.until(lanes, read.thread - self.base) > read.time)
                for release in self.flags[read.flag][: read.count][-DIRECT:]:
                    fine = aware & mine & (blocks == release.thread // self.stride)
                    fine &= (time < np.array(release.until)[warps]) & ((release.fence > time) | (fence > time))
                    bad[at[fine]] = False
                    mine &= ~fine
                if not mine.any():
                    break
        return bad

    def against_write(
        self, spot: Spot, threads: np.ndarray, *, atomic: bool, pc: int = -1, same: object = None
    ) -> Clash | None:
        table = spot.table
        other, time = table.writer[spot.granules], table.write_time[spot.granules]
        bad = self._open(spot, threads, other, time)
        if atomic:
            bad &= ~table.write_atomic[spot.granules]
        if same is not None and bad.any():
            bad &= ~(same() & (table.write_pc[spot.granules] == pc))
        bad = self._by_flags(bad, threads, other, time)
        return self._clash(bad, spot, other, table.write_pc, "writes") if bad.any() else None

    def against_read(self, spot: Spot, threads: np.ndarray) -> Clash | None:
        table = spot.table
        for k in range(2):
            other, time = table.reader[k][spot.granules], table.read_time[k][spot.granules]
            bad = self._by_flags(self._open(spot, threads, other, time), threads, other, time)
            if bad.any():
                return self._clash(bad, spot, other, table.read_pc[k], "reads")
        return None

    def _clash(self, bad: np.ndarray, spot: Spot, other: np.ndarray, pcs: np.ndarray, kind: str) -> Clash:
        at = np.flatnonzero(bad)
        k = int(at[np.argmax((self.base + spot.lanes[at]) // 32 != other[at] // 32)])
        g = int(spot.granules[k])
        address = (spot.buffer.base & ~255) + (g << self.shift)
        return Clash(int(spot.lanes[k]), int(other[k]), int(pcs[g]), kind, address)

    def _values(self, spot: Spot, place: Place, value: object) -> np.ndarray:
        """A stored value per lane of the spot."""
        value = np.broadcast_to(value, (place.mask.threads,))
        return value if spot.which is None else value[spot.which]

    def _same(self, access: Access, place: Place, spot: Spot, values: list) -> np.ndarray:
        """Stores of the value that is there already, per granule."""
        view, origin = spot.buffer.view(access.dtype)
        address = np.broadcast_to(place.address, (self.machine.chunk.lanes,))[spot.lanes[:: spot.each]]
        index = (address - origin) // access.element
        equal = np.ones(len(index), bool)
        for k, value in enumerate(values):
            equal &= _bits(view[index + k]) == _bits(self._values(spot, place, value))
        return np.repeat(equal, spot.each)

    def _twice(self, access: Access, spot: Spot, threads: np.ndarray, values: list) -> Clash | None:
        """Several threads of one instruction store different values to one place."""
        winner = spot.table.writer[spot.granules]
        if (winner == threads).all():
            return None
        order = np.argsort(spot.granules, kind="stable")
        g = spot.granules[order]
        k = order // spot.each
        equal = np.ones(len(g) - 1, bool)
        count = len(spot.granules) // spot.each
        for value in values:
            if np.ndim(value) and len(value) != count:
                value = np.asarray(value)[spot.which]
            v = _bits(np.broadcast_to(value, (count,)))[k]
            equal &= v[1:] == v[:-1]
        bad = (g[1:] == g[:-1]) & ~equal
        if not bad.any():
            return None
        j = int(np.argmax(bad))
        address = (spot.buffer.base & ~255) + (int(g[j]) << self.shift)
        mine, theirs = order[j + 1], order[j]
        return Clash(int(spot.lanes[mine]), int(threads[theirs]), access.pc, "writes", address)

    # ---- flags

    def update_flags(self, access: Access, spot: Spot) -> None:
        """Threads update flags, one after the other as `atomic` does: those that have fenced release what they wrote,
        and an atomic whose result is used reads what others released before it.
        """
        fenced = self.fences[self.base + spot.lanes] >= 0
        spot.table.flag[spot.granules[fenced]] = True
        for k in np.flatnonzero(spot.table.flag[spot.granules])[:: spot.each].tolist():
            if access.kind == "atom":
                self.acquire(spot, k)
            if fenced[k]:
                self.release(spot, k)

    def release(self, spot: Spot, k: int) -> None:
        """The thread of entry `k` updates a flag after a fence."""
        lane = int(spot.lanes[k])
        thread = self.base + lane
        made = self.flags.setdefault((spot.buffer.base, int(spot.granules[k])), [])
        new = Release(
            thread, self.clock, self._until(lane), int(self.warp_stamps[lane]), int(self.fences[thread]),
            len(self.acquired.get(thread // self.stride, ())),
        )  # fmt: skip
        last = made[-1] if made else None
        if last is None or (last.thread, last.until, last.fence, last.known) != (
            new.thread, new.until, new.fence, new.known,
        ):  # fmt: skip
            made.append(new)  # else it spins

    def acquire(self, spot: Spot, k: int) -> None:
        """The thread of entry `k` reads a flag, and with it what was released there before."""
        flag = (spot.buffer.base, int(spot.granules[k]))
        count = len(self.flags.get(flag, ()))
        if not count:
            return
        thread = self.base + int(spot.lanes[k])
        read = self.acquired.setdefault(thread // self.stride, [])
        if not any(a.flag == flag and a.count == count and a.thread == thread for a in read[-4:]):
            read.append(Acquire(flag, count, thread, self.clock))

    def _until(self, lane: int) -> tuple[int, ...]:
        """By warp of the lane's block, the time before which what that warp did comes before what the lane does now."""
        if self.heard is None:
            return (int(self.stamps[lane]),) * self.warps
        others = lane // self.stride * self.stride + 32 * np.arange(self.warps)
        return tuple(self.until(np.full(self.warps, lane), others).tolist())

    def ordered(self, first: int, then: int, time: int) -> bool:
        """Whether what thread `first` did at `time` comes before what thread `then` does now."""
        read = self.acquired.get(then // self.stride, ())
        seen = self.known.get((first, then))
        if seen and seen[0] <= len(read) and seen[1] >= time:
            return True
        lane = then - self.base
        now = (self._until(lane), int(self.warp_stamps[lane]))
        self.budget = PATIENCE
        if self._reaches(first, time, then, *now, len(read), set()):
            self.known[first, then] = (len(read), time)
            return True
        return False

    def _reaches(
        self, first: int, time: int, thread: int, until: tuple[int, ...], warp_stamp: int, known: int, visited: set
    ) -> bool:
        """Search back through the flags that `thread` had learned of."""
        later = []
        for read in self.acquired.get(thread // self.stride, ())[:known]:
            mine = read.thread == thread or until[read.thread % self.stride // 32] > read.time
            if not (mine or (read.thread // 32 == thread // 32 and warp_stamp > read.time)):
                continue
            for release in self.flags[read.flag][: read.count]:
                self.budget -= 1
                if self.budget < 0:
                    return True
                if self._released(release, first, time):
                    return True
                if release.known and release not in visited:
                    visited.add(release)
                    later.append(release)
        return any(
            self._reaches(first, time, r.thread, r.until, r.warp_stamp, r.known, visited) for r in later
        )

    def _released(self, release: Release, first: int, time: int) -> bool:
        if release.thread // self.stride != first // self.stride:
            return False
        before = (
            (release.thread == first and time <= release.time)
            or time < release.until[first % self.stride // 32]
            or (release.thread // 32 == first // 32 and time < release.warp_stamp)
        )
        return before and (release.fence > time or int(self.fences[first]) > time)

    # ---- reports

    def found(self, access: Access, clash: Clash) -> None:
        m = self.machine
        who, other = m.who(clash.lane), m.who(clash.other - self.base)
        buffer = m.memory.find(clash.address)
        where = m.memory.describe(clash.address)
        line = m.program.instructions[clash.other_pc].line
        block = "" if other["block"] == who["block"] else f" of block {other['block']}"
        if block:
            how, mend = "and nothing orders the two blocks", self._mend(access, clash)
        else:
            how, mend = "with no barrier between", m.barrier_mend(access.pc, clash.other_pc, clash.lane,
                                                                  clash.other - self.base)  # fmt: skip
        m.raise_race(
            m.fault(
                "race",
                f"thread {who['thread']} of block {who['block']} {access.verb} {where}, which thread {other['thread']}"
                f"{block} {clash.other_kind} at line {line}, {how}",
                mend,
                pc=access.pc,
                other_line=line,
                other_pc=clash.other_pc,
                other_thread=other["thread"],
                other_block=other["block"],
                address=clash.address,
                array=buffer.name if buffer else None,
                index=buffer.index(clash.address - buffer.base) if buffer else None,
                **who,
            ),
            clash.lane,
        )

    def _mend(self, access: Access, clash: Clash) -> str:
        numba = self.machine.language == "numba"
        program = self.machine.program.instructions
        if any(i.op in ("atom", "red") for i in program) and "reads" in (access.verb, clash.other_kind) or self.flags:
            fence = "cuda.threadfence()" if numba else "__threadfence()"
            barrier = "cuda.syncthreads()" if numba else "__syncthreads()"
            return (
                f"If a flag is to order them, put {fence} between the write and an atomic update of the flag, and read"
                f" the flag by an atomic, with {barrier} before other threads go on; else use two launches."
            )
        add = "cuda.atomic.add" if numba else "atomicAdd"
        if access.kind == "ld" or clash.other_kind == "reads":
            return "Blocks run in any order: read and write different arrays, or do it in two launches."
        return f"Blocks run in any order: give every element to one block, or add with {add}."


def _bits(values: object) -> np.ndarray:
    values = np.asarray(values)
    return values.view(f"u{values.dtype.itemsize}") if values.dtype.kind == "f" else values


class LocalWatch:
    """Which bytes of the local memory of a chunk's threads have been written."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.written = Buffer(np.zeros(len(machine.local), np.uint8), "local", "u1", (), (), 0)

    def _marks(self, access: Access, place: Place) -> tuple[np.ndarray, np.ndarray]:
        view, _ = self.written.view(np.dtype(f"u{access.element}"))
        index = np.broadcast_to(place.index, (self.machine.chunk.lanes,))[place.mask.index]
        return view, index

    def read(self, access: Access, place: Place) -> None:
        if place.initialized:
            return
        view, index = self._marks(access, place)
        blank = np.zeros(len(index), bool)
        for k in range(access.count):
            blank |= view[index + k] == 0
        if not blank.any():
            place.initialized = True
            return
        m = self.machine
        lane = int(place.mask.index[np.argmax(blank)])
        offset = int(np.broadcast_to(place.address, (m.chunk.lanes,))[lane]) & ((1 << 60) - 1)
        who = m.who(lane)
        name, index, spot, _ = m.variable("local", offset, access.element)
        raise m.fault(
            "uninitialized",
            f"thread {who['thread']} of block {who['block']} reads {spot}, which it has not written",
            "A local array starts with garbage: write every element that is read, zeros too.",
            pc=access.pc,
            address=offset,
            array=name or "local",
            index=index,
            **who,
        )

    def write(self, access: Access, place: Place) -> None:
        view, index = self._marks(access, place)
        ones = np.frombuffer(b"\x01" * view.itemsize, view.dtype)[0]
        for k in range(access.count):
            view[index + k] = ones
