"""How a launch's instructions spread over its blocks: those of the busiest one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from labkit.emulator.engine import Chunk, Mask

KEPT = 4096  # masks, before they are folded into the blocks' sums


class Spread:
    """Instructions of warps, block by block of the chunk that runs; `busiest` is the most that any block has run."""

    def __init__(self) -> None:
        self.busiest = 0

    def start(self, chunk: Chunk) -> None:
        """These blocks run next."""
        self._rows = chunk.blocks, chunk.warps_per_block, -1
        self._blocks = np.zeros(chunk.blocks, np.int64)
        self._ran: dict[Mask, int] = {}

    def add(self, mask: Mask, instructions: int) -> None:
        """The warps of these threads have run so many instructions."""
        self._ran[mask] = self._ran.get(mask, 0) + instructions
        if len(self._ran) > KEPT:
            self._fold()

    def finish(self) -> None:
        """The chunk is over."""
        self._fold()
        self.busiest = max(self.busiest, int(self._blocks.max()))

    def _fold(self) -> None:
        for mask, instructions in self._ran.items():
            self._blocks += instructions * mask.where.reshape(self._rows).any(axis=2).sum(axis=1)
        self._ran.clear()
