"""Which accesses of a block come before which others, by the barriers between them.

A barrier raises a clock and stamps it on the threads that take part; bar.warp.sync does so too, with stamps that count
between threads of one warp only. Two accesses are ordered if both threads have been stamped since the earlier one.
Where barriers take whole blocks, that is all. Once one takes part of a block (`bar.sync 1, 64`), two threads may be
stamped and never have met. From then on warps keep vector clocks, and the later thread's warp must have heard, by a
chain of barriers, of what the earlier one's did. `bar.arrive` tells, and hears nothing.
"""

from __future__ import annotations

import numpy as np


class Order:
    """The barriers of one chunk of blocks, each of `warps` warps."""

    clock = 1

    def begin(self, lanes: int, warps: int) -> None:
        self.warps = warps
        self.stamps = np.zeros(lanes, np.int64)
        self.warp_stamps = np.zeros(lanes, np.int64)
        # [block, warp, other]: what `other` did before this time comes before what `warp` does now. None: as stamped.
        self.heard: np.ndarray | None = None
        self.told: dict[int, np.ndarray] = {}  # by barrier, what those who arrived had heard, [block, other]

    def sync(self, lanes: np.ndarray | None) -> None:
        """A barrier of whole blocks (None: all)."""
        self.clock += 1
        if lanes is None:
            self.stamps = np.full(len(self.stamps), self.clock)
            self.heard = None
            return
        self.stamps = np.where(lanes, self.clock, self.stamps)
        if self.heard is not None:
            self.heard[lanes.reshape(len(self.heard), -1).any(axis=1)] = self.clock

    def sync_warp(self, lanes: np.ndarray) -> None:
        """`bar.warp.sync`: order `lanes` against each other within their warps."""
        self.clock += 1
        self.warp_stamps = np.where(lanes, self.clock, self.warp_stamps)

    def arrive(self, lanes: np.ndarray, number: int) -> None:
        """`bar.arrive` at barrier `number`."""
        _, news = self._meet(lanes)
        before = self.told.get(number)
        self.told[number] = news if before is None else np.maximum(before, news)

    def sync_part(self, lanes: np.ndarray, number: int, blocks: np.ndarray) -> None:
        """In these blocks (bools) barrier `number` opens for `lanes`, which hear of each other and of who arrived."""
        member, news = self._meet(lanes)
        if number in self.told:
            news = np.maximum(news, self.told[number])
            self.told[number] = np.where(blocks[:, None], 0, self.told[number])
        self.heard = np.where(member[..., None], np.maximum(self.heard, news[:, None]), self.heard)

    def _meet(self, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Stamp the lanes; gives which warps these are, [block, warp], and what they know together, [block, other]."""
        warps = (-1, self.warps, 32)
        if self.heard is None:
            self.heard = np.repeat(self.stamps.reshape(warps).max(axis=2)[..., None], self.warps, axis=2)
        self.clock += 1
        self.stamps = np.where(lanes, self.clock, self.stamps)
        member = lanes.reshape(warps).any(axis=2)
        known = np.where(member[..., None], self.heard, 0).max(axis=1)
        return member, np.where(member, self.clock, known)

    def until(self, lanes: np.ndarray, others: np.ndarray | int) -> np.ndarray:
        """The times before which what `others` did comes before what `lanes` of their blocks do now."""
        stamps = self.stamps[lanes]
        if self.heard is None:
            return stamps
        return np.minimum(stamps, self.heard.reshape(-1, self.warps)[lanes // 32, others // 32 % self.warps])

    def unordered(self, time: np.ndarray, others: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """Whether no barrier stands between what `others` did at `time` and what `lanes` of their blocks do now."""
        apart = (time >= self.until(lanes, others)) | (time >= self.stamps[others])
        behind = (time >= self.warp_stamps[lanes]) | (time >= self.warp_stamps[others])
        return apart & ((lanes // 32 != others // 32) | behind)
