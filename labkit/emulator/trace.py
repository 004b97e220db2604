"""Which lane touched which address: the memory accesses of one chosen warp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.emulator.declared import declared

if TYPE_CHECKING:
    from labkit.emulator.launch import Launch
    from labkit.emulator.memory import Memory
    from labkit.emulator.ptx import Instruction, Program

LANES = 32


@dataclass(frozen=True)
class Access:
    """One memory instruction of one warp, executed once.

    `addresses` are 32 byte addresses (offsets inside shared or local memory), -1 for lanes that
    are inactive; `array` is the array's name, `indices` the index of each lane's element (None
    where inactive or unknown); `text` is the PTX.
    """

    kernel: str
    file: str | None
    line: int | None
    op: str
    space: str
    width: int
    array: str | None
    addresses: tuple[int, ...]
    indices: tuple[tuple[int, ...] | None, ...]
    occurrence: int
    text: str

    @property
    def lanes(self) -> tuple[int, ...]:
        """The active lanes."""
        return tuple(n for n, address in enumerate(self.addresses) if address >= 0)

    @property
    def sectors(self) -> tuple[int, ...]:
        """The distinct 32-byte sectors of a global access, ascending."""
        return tuple(sorted({self.addresses[n] // 32 for n in self.lanes}))

    @property
    def banks(self) -> tuple[int | None, ...]:
        """The bank (0 to 31) that holds each lane's first word of a shared access."""
        return tuple(a // 4 % 32 if a >= 0 else None for a in self.addresses)


class Trace:
    """The first `occurrences` executions of each memory instruction by warp `warp` of block `block`.

    block: (x, y, z); after the run `accesses` holds them in the order of execution.
    """

    def __init__(
        self, block: tuple[int, int, int] = (0, 0, 0), warp: int = 0, occurrences: int = 1
    ) -> None:
        self.block = block
        self.warp = warp
        self.occurrences = occurrences
        self.accesses: list[Access] = []

    def begin(self, launch: Launch, program: Program, memory: Memory) -> None:
        """A launch of `program` starts; `memory` names the arrays."""
        x, y, z = self.block
        self._block = x + launch.grid[0] * (y + launch.grid[1] * z)
        self._program = program
        self._memory = memory
        self._count: dict[int, int] = {}

    def wants(self, pcs: list[int], mask: Any, chunk: Any) -> bool:
        """Whether the traced warp is among the mask's and has yet to be seen at one of these instructions."""
        if not 0 <= self._block - chunk.first_block < chunk.blocks or self.warp >= chunk.warps_per_block:
            return False
        if all(self._count.get(pc, 0) >= self.occurrences for pc in pcs):
            return False
        first = ((self._block - chunk.first_block) * chunk.warps_per_block + self.warp) * LANES
        bits = chunk.valid if mask.bits is None else mask.bits
        return bool(bits[first : first + LANES].any())

    def access(
        self, instr: Instruction, space: str, kind: str, addr: Any, mask: Any, width: int, chunk: Any
    ) -> None:
        """Called by the engine like `Counters.access`."""
        if not 0 <= self._block - chunk.first_block < chunk.blocks:
            return
        seen = self._count.get(instr.index, 0)
        if seen >= self.occurrences or space not in ("global", "shared", "local"):
            return
        first = ((self._block - chunk.first_block) * chunk.warps_per_block + self.warp) * LANES
        bits = chunk.valid if mask.bits is None else mask.bits
        active = bits[first : first + LANES]
        if self.warp >= chunk.warps_per_block or not active.any():
            return
        self._count[instr.index] = seen + 1
        lanes = addr[first : first + LANES] if np.ndim(addr) else np.full(LANES, addr)
        addresses = tuple(int(a) if on else -1 for a, on in zip(lanes, active, strict=True))
        array, indices = self._name(space, addresses)
        self.accesses.append(
            Access(
                self._program.kernel,
                instr.file,
                instr.line,
                kind,
                space,
                width,
                array,
                addresses,
                indices,
                seen,
                instr.text,
            )
        )

    def _name(
        self, space: str, addresses: tuple[int, ...]
    ) -> tuple[str | None, tuple[tuple[int, ...] | None, ...]]:
        inside = [a for a in addresses if a >= 0]
        if space == "global":
            buffer = self._memory.find(inside[0])
            if buffer is None:
                return None, (None,) * LANES
            return buffer.name, tuple(
                buffer.index(a - buffer.base) if a >= 0 else None for a in addresses
            )
        names = declared(self._program, space)
        variables = self._program.shared if space == "shared" else self._program.local
        for variable, start in variables.values():
            if start <= inside[0] < start + max(variable.size, 1) or (
                variable.dynamic and inside[0] >= start
            ):
                known = names.get(variable.name)
                return known.name if known else variable.name, (None,) * LANES
        return None, (None,) * LANES

