"""Theoretical occupancy: how many blocks of a kernel, and so how many warps, a multiprocessor can hold at once.

A block stays on one multiprocessor from its beginning to its end, and a further one is taken in only if its threads,
registers and shared memory are free as a whole. So the scarcest of them decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from labkit.errors import LabkitError
from labkit.models.devices import limits

WARP = 32


@dataclass(frozen=True)
class Occupancy:
    """How a kernel fills a multiprocessor.

    blocks, warps: resident at once.  fraction: of the most warps there could be.  limits: for each resource, the blocks
    that it alone would allow (None where the kernel uses none of it).
    """

    blocks: int
    warps: int
    fraction: float
    limits: dict[str, int | None]

    @property
    def limiter(self) -> str:
        """What runs out first: "registers", "shared memory", "warps" or "blocks"; several are joined by "and"."""
        return " and ".join(name for name, allowed in self.limits.items() if allowed == self.blocks)

    def __repr__(self) -> str:
        blocks = f"{self.blocks} block{'s' if self.blocks != 1 else ''}"
        return f"{blocks} of {self.warps // self.blocks} warps per multiprocessor, {self.fraction:.1%}: {self.limiter}"


def occupancy(threads: int, registers: int, shared: int = 0, arch: str = "sm_90") -> Occupancy:
    """The theoretical occupancy of a kernel; the formulas are those of NVIDIA's cuda_occupancy.h.

    threads : per block.  registers : per thread (`launch__registers_per_thread`).  shared : bytes per block, static and
    dynamic together.  arch : a key of labkit.models.devices.LIMITS.
    Raises LabkitError where no such block can run at all, naming what it has too much of.
    """
    has = limits(arch)
    for value, least, most, what in (
        (threads, 1, has.threads_per_block, "threads per block"),
        (registers, 0, has.registers_per_thread, "registers per thread"),
        (shared, 0, has.shared_per_block, "bytes of shared memory per block"),
    ):
        if not least <= value <= most:
            raise LabkitError(f"A block on {arch} has {least} to {most:,} {what}, not {value:,}.")
    warps = _up(threads, WARP) // WARP
    per_warp = _up(registers * WARP, has.register_portion)
    by_registers = has.registers // has.parts // per_warp * has.parts // warps if registers else None
    by_shared = None
    if shared:
        by_shared = has.shared // _up(shared + has.shared_reserved, has.shared_portion)
    allowed_by = {
        "registers": by_registers,
        "shared memory": by_shared,
        "warps": has.warps // warps,
        "blocks": has.blocks,
    }
    blocks = min(allowed for allowed in allowed_by.values() if allowed is not None)
    if not blocks:
        raise LabkitError(
            f"A block of {threads} threads with {registers} registers each needs {warps * per_warp:,} registers, "
            f"and a multiprocessor has {has.registers:,}."
        )
    return Occupancy(blocks, blocks * warps, blocks * warps / has.warps, allowed_by)


def _up(value: int, portion: int) -> int:
    return -(-value // portion) * portion
