"""cp.async: copies from global to shared memory that land later than they are issued.

Memory changes at the latest moment that the hardware may choose, when the issuing thread waits for the copy, so a
kernel that reads too early finds what was there before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from labkit.emulator.compiler import Access, Place
    from labkit.emulator.engine import Mask

WORD = 4


@dataclass
class Copy:
    """One instruction's copies: `words` has one array per 4 bytes, an element per lane of the place's mask."""

    access: Access
    place: Place
    words: list[np.ndarray]
    group: np.ndarray  # of each lane, the number of commits before the copy


class Copies:
    """The copies under way in a chunk; each thread has its own groups."""

    def __init__(self, lanes: int) -> None:
        self.commits = np.zeros(lanes, np.int64)
        self.under_way: list[Copy] = []

    def issue(self, access: Access, place: Place, words: list[np.ndarray]) -> None:
        self.under_way.append(Copy(access, place, words, self.commits[place.mask.index]))

    def commit(self, mask: Mask) -> None:
        """End the current group of the mask's threads."""
        self.commits = self.commits + mask.where

    def landing(self, mask: Mask, newest: int | None) -> list[tuple[Copy, np.ndarray]]:
        """Take out what the mask's threads wait for: all groups but the `newest` ones, or (None) everything.

        Returns copies, each with the lanes of it that land, as bools over its mask's lanes.
        """
        found, kept = [], []
        for copy in self.under_way:
            lanes = copy.place.mask.index
            lands = mask.where[lanes]
            if newest is not None:
                lands = lands & (copy.group < self.commits[lanes] - newest)
            if lands.any():
                found.append((copy, lands))
            if not lands.all():
                kept.append(self._rest(copy, ~lands) if lands.any() else copy)
        self.under_way = kept
        return found

    def _rest(self, copy: Copy, stays: np.ndarray) -> Copy:
        return Copy(
            copy.access,
            copy.place.within(stays),
            [word[stays] for word in copy.words],
            copy.group[stays],
        )


def full_words(size: int, sizes: np.ndarray, word: int) -> np.ndarray:
    """Bit masks of the bytes of 4-byte word number `word` that a copy of `sizes` out of `size` bytes brings."""
    inside = np.clip(np.minimum(sizes, size).astype(np.int64) - WORD * word, 0, WORD)
    return ((np.uint64(1) << (8 * inside).astype(np.uint64)) - np.uint64(1)).astype(np.uint32)
