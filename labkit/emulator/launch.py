"""A kernel launch as data: what the recorder writes and the engine runs, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pointer:
    """An address inside buffer number `buffer` of a `Memory`, `offset` bytes from its start."""

    buffer: int
    offset: int = 0


@dataclass(frozen=True)
class Launch:
    """One launch of the PTX kernel `entry`.

    `params` holds one value per `.param` of the entry, in order: a `Pointer`, or the parameter's
    little-endian bytes in its exact size. `shared` is the dynamic shared memory in bytes.
    """

    ptx: str
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    params: tuple[Pointer | bytes, ...]
    shared: int = 0
    arch: str = "sm_90"
    max_registers: int | None = None
