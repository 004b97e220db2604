"""Shared memory's shadow: who touched each granule last, and was it ordered against this access.

Barriers order (`order.py`). Reads are logged and only entered when a write needs to know them, so stretches that only
read cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from labkit.emulator.order import Order


@dataclass(frozen=True)
class Conflict:
    """Two unordered accesses: chunk lanes, instruction numbers, kinds, and the granule."""

    lane: int
    other: int
    other_pc: int
    kind: str
    other_kind: str
    granule: int


class Shadow(Order):
    """The shadow of one chunk's shared memory; `granule` is the smallest access in bytes.

    `valid` are the threads that still run, as a bool array over the lanes; a block has `warps` warps.
    """

    def __init__(self, size: int, granule: int, valid: np.ndarray, warps: int) -> None:
        self.begin(len(valid), warps)
        self.granule = granule
        count = size // granule
        self.valid = valid
        self.oldest = 0  # what was done before this time comes before whatever is done now
        self.lowest = 0  # the same with threads that have exited
        self.last_write = -1
        self.last_read = -1
        self.write_time = np.full(count, -1, np.int64)
        self.writer = np.zeros(count, np.int64)
        self.write_pc = np.zeros(count, np.int64)
        self.write_atomic = np.zeros(count, bool)
        self.read_time = np.full(count, -1, np.int64)
        self.first_read_time = np.full(count, -1, np.int64)
        self.first_reader = np.zeros(count, np.int64)
        self.reader = np.zeros(count, np.int64)
        self.read_pc = np.zeros(count, np.int64)
        self.first_read_pc = np.zeros(count, np.int64)
        self.log: list[tuple] = []
        self.logged: set[tuple[int, int]] = set()
        self.written = np.zeros(count, bool)
        self.all_written = False

    def sync(self, lanes: np.ndarray | None) -> None:
        self.flush() if lanes is not None else self.forget()
        super().sync(lanes)
        if lanes is None:
            self.oldest = self.lowest = self.clock
        else:
            self._bounds()

    def sync_warp(self, lanes: np.ndarray) -> None:
        self.flush()
        super().sync_warp(lanes)

    def arrive(self, lanes: np.ndarray, number: int) -> None:
        self.flush()
        super().arrive(lanes, number)
        self._bounds()

    def sync_part(self, lanes: np.ndarray, number: int, blocks: np.ndarray) -> None:
        self.flush()
        super().sync_part(lanes, number, blocks)
        self._bounds()

    def _bounds(self) -> None:
        self.lowest = int(self.stamps.min())
        self.oldest = int(self.stamps[self.valid].min(initial=self.clock))
        if self.heard is not None:
            heard = self.heard.reshape(-1, self.warps)
            self.lowest = min(self.lowest, int(heard.min()))
            running = self.valid.reshape(-1, 32).any(axis=1)
            self.oldest = min(self.oldest, int(heard[running].min(initial=self.clock)))

    def forget(self) -> None:
        """All lanes meet: reads so far can conflict with nothing to come."""
        self.log.clear()
        self.logged.clear()

    def flush(self) -> None:
        """Enter the logged reads."""
        if self.log:
            self.last_read = self.clock
        for granules, lanes, pc in self.log:
            # Of the readers of a granule the last is known, and the first of those that it may not come after.
            time = self.first_read_time[granules]
            fresh = time < self.clock
            beside = self._open(time, self.first_reader[granules], lanes)
            if beside is not None:
                fresh &= ~beside
            at = granules[fresh][::-1]
            self.first_reader[at] = lanes[fresh][::-1]  # of one instruction's the lowest lane, below the highest
            self.first_read_pc[at] = pc
            self.first_read_time[at] = self.clock
            self.reader[granules] = lanes
            self.read_pc[granules] = pc
            self.read_time[granules] = self.clock
        self.forget()

    def read(
        self, granules: np.ndarray, lanes: np.ndarray, pc: int, *, atomic: bool = False
    ) -> Conflict | None:
        """A read; `granules` and `lanes` are arrays of one length, `atomic` a volatile read."""
        found = None
        if self.last_write >= self.oldest:
            found = self._against_write(granules, lanes, "reads", atomic=atomic)
        if atomic:
            return found
        key = (id(granules), pc)
        if key not in self.logged:
            self.logged.add(key)
            self.log.append((granules, lanes, pc))
            if len(self.log) > 64:
                self.flush()
        return found

    def probe(
        self,
        granules: np.ndarray,
        lanes: np.ndarray,
        kind: str,
        *,
        pc: int = -1,
        atomic: bool = False,
        same: np.ndarray | None = None,
    ) -> Conflict | None:
        """What a write would conflict with; nothing is entered."""
        found = None
        if self.last_write >= self.oldest:
            found = self._against_write(granules, lanes, kind, atomic=atomic, pc=pc, same=same)
        if self.log:
            self.flush()
        return found or self._against_read(granules, lanes, kind)

    def write(
        self,
        granules: np.ndarray,
        lanes: np.ndarray,
        pc: int,
        *,
        atomic: bool,
        kind: str = "writes",
        same: np.ndarray | None = None,
    ) -> Conflict | None:
        """A store or an atomic; `same` marks stores of the value that is there already."""
        found = self.probe(granules, lanes, kind, pc=pc, atomic=atomic, same=same)
        self.write_time[granules] = self.clock
        self.writer[granules] = lanes
        self.write_pc[granules] = pc
        self.write_atomic[granules] = atomic
        self.last_write = self.clock
        if not self.all_written:
            self.written[granules] = True
            self.all_written = bool(self.written.all())
        return found

    def _open(self, time: np.ndarray, other: np.ndarray, lanes: np.ndarray) -> np.ndarray | None:
        """What others did at `time` and no barrier orders before now. None: nothing."""
        if time.max(initial=-1) < self.lowest:
            return None
        return (time >= 0) & (other != lanes) & self.unordered(time, other, lanes)

    def _against_write(
        self,
        granules: np.ndarray,
        lanes: np.ndarray,
        kind: str,
        *,
        atomic: bool,
        pc: int = -1,
        same: np.ndarray | None = None,
    ) -> Conflict | None:
        other = self.writer[granules]
        bad = self._open(self.write_time[granules], other, lanes)
        if bad is None or not bad.any():
            return None
        if atomic:
            bad &= ~self.write_atomic[granules]
        if same is not None:
            bad &= ~(same & (self.write_pc[granules] == pc))
        return self._conflict(bad, granules, lanes, other, self.write_pc, kind, "writes")

    def _against_read(
        self, granules: np.ndarray, lanes: np.ndarray, kind: str
    ) -> Conflict | None:
        if self.last_read < self.lowest:
            return None
        for times, readers, pcs in (
            (self.read_time, self.reader, self.read_pc),
            (self.first_read_time, self.first_reader, self.first_read_pc),
        ):
            other = readers[granules]
            bad = self._open(times[granules], other, lanes)
            if bad is not None and bad.any():
                return self._conflict(bad, granules, lanes, other, pcs, kind, "reads")
        return None

    def _conflict(
        self,
        bad: np.ndarray,
        granules: np.ndarray,
        lanes: np.ndarray,
        other: np.ndarray,
        pcs: np.ndarray,
        kind: str,
        other_kind: str,
    ) -> Conflict | None:
        at = np.flatnonzero(bad)
        if not len(at):
            return None
        # Rather two threads of different warps, for whom nothing but a barrier will do.
        k = at[np.argmax(lanes[at] // 32 != other[at] // 32)]
        g = int(granules[k])
        return Conflict(int(lanes[k]), int(other[k]), int(pcs[g]), kind, other_kind, g)
