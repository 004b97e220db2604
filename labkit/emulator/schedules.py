"""Other orders of threads: one thread, warp or block is late at an instruction, until no other can go on without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from labkit.emulator.engine import Machine, Mask
    from labkit.emulator.faults import KernelFault


@dataclass(frozen=True)
class Delay:
    """`who` ("thread", "warp" or "block") of `thread` in `block` is late at instruction `pc` of the kernel `entry`."""

    entry: str
    pc: int
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    who: str
    line: int | None = None

    def __str__(self) -> str:
        late = {
            "thread": f"thread {self.thread} of block {self.block}",
            "warp": f"the warp of thread {self.thread} of block {self.block}",
            "block": f"block {self.block}",
        }[self.who]
        return f"with {late} late at line {self.line}" if self.line else f"with {late} late"

    def lanes(self, m: Machine) -> np.ndarray:
        """The late ones among the threads of the machine's chunk."""
        late = np.zeros(m.chunk.lanes, bool)
        gx, gy, _ = m.launch.grid
        x, y, _ = m.launch.block
        number = self.block[0] + gx * (self.block[1] + gy * self.block[2]) - m.chunk.first_block
        if 0 <= number < m.chunk.blocks:
            first = number * m.chunk.stride
            lane = self.thread[0] + x * (self.thread[1] + y * self.thread[2])
            start, count = {"thread": (lane, 1), "warp": (lane // 32 * 32, 32), "block": (0, m.chunk.stride)}[self.who]
            late[first + start : first + start + count] = True
        return late


def delays(race: KernelFault) -> Iterator[Delay]:
    """Orders in which the earlier access of a race comes after the later one."""
    if race.other_pc is None or race.entry is None:
        return
    for who in ("warp", "thread", "block"):
        yield Delay(race.entry, race.other_pc, race.other_block, race.other_thread, who, race.other_line)


def delayed(steps: list[Callable], delay: Delay) -> list[Callable]:
    """A program's steps, with one that holds the late threads back."""
    inner = steps[delay.pc]

    def step(m: Machine, mask: Mask) -> int | None:
        if m.held.free == delay.pc:
            m.held.free = None
            return inner(m, mask)
        late = m.narrow(mask, delay.lanes(m))
        if not late.threads:
            return inner(m, mask)
        m.held.late.add(delay.pc)
        if late is not mask:
            m.push(delay.pc, m.without(mask, late))
        m.held.hold(delay.pc, late)
        return -1

    return [*steps[: delay.pc], step, *steps[delay.pc + 1 :]]
