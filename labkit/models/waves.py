"""Tiles and waves: why the time of a matrix product goes up in steps.

C is cut into tiles, one block each. `sms * resident` blocks run at once, a wave; the next wave begins when they end.
So time goes with ceil(tiles / (sms * resident)), however little is left for the last wave (the tail), and a tile that
hangs over the edge of C costs as much as a whole one. Times here are in units of one tile's time at that N; all
efficiencies are fractions of what the same tile reaches where nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from labkit.errors import LabkitError
from labkit.problems.problem import Question

TILE = (256, 128)  # rows and columns of C per block, as in the rung fixed_tile
FINE_TILE = (64, 64)  # as in the rung stream_k
FIRST, LAST, STEP = 1024, 4608, 8  # the sizes that are looked at
THRESHOLD = 0.15  # a drop of more than this is a cliff


@dataclass(frozen=True)
class Waves:
    """How the tiles of an N x N product fall into waves on `sms` multiprocessors with `resident` blocks each."""

    N: int
    sms: int
    tile: tuple[int, int]
    resident: int
    tiles: int

    @property
    def slots(self) -> int:
        """Blocks that run at once."""
        return self.sms * self.resident

    @property
    def waves(self) -> int:
        return -(-self.tiles // self.slots)

    @property
    def tail(self) -> int:
        """Tiles in the last wave, 1 to `slots`."""
        return self.tiles - (self.waves - 1) * self.slots

    @property
    def tile_efficiency(self) -> float:
        """Elements of C over those that the tiles cover: what tile quantization leaves."""
        return self.N**2 / (self.tiles * self.tile[0] * self.tile[1])

    @property
    def wave_efficiency(self) -> float:
        """Tiles over the places for them in all waves: what wave quantization leaves."""
        return self.tiles / (self.waves * self.slots)

    @property
    def efficiency(self) -> float:
        return self.tile_efficiency * self.wave_efficiency


@dataclass(frozen=True)
class Drop:
    """From `before` to `N`, throughput changes by these factors; their product is 1 - drop."""

    before: int
    N: int
    tile_factor: float
    wave_factor: float

    @property
    def drop(self) -> float:
        """The fraction of the throughput that is lost; negative where it rises."""
        return 1 - self.tile_factor * self.wave_factor


def waves(N: int, sms: int, tile: tuple[int, int] = TILE, resident: int = 1) -> Waves:
    """Tiles and waves of C[N, N]; LabkitError unless all sizes are integers of at least 1."""
    for name, value in (("N", N), ("the number of SMs", sms), ("a tile's side", min(tile)), ("resident", resident)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise LabkitError(f"{name} must be an integer of at least 1, not {value!r}.")
    return Waves(N, sms, tile, resident, -(-N // tile[0]) * -(-N // tile[1]))


def curve(
    sizes: Iterable[int], sms: int, tile: tuple[int, int] = TILE, resident: int = 1, *, even: bool = False
) -> list[float]:
    """Efficiency at each N; `even` for work that is divided evenly over the SMs, which leaves the tiles' part."""
    found = (waves(N, sms, tile, resident) for N in sizes)
    return [w.tile_efficiency if even else w.efficiency for w in found]


def change(before: int, N: int, sms: int, tile: tuple[int, int] = TILE, resident: int = 1) -> Drop:
    """What tiles and waves do to the throughput between two sizes."""
    a, b = (waves(n, sms, tile, resident) for n in (before, N))
    return Drop(before, N, b.tile_efficiency / a.tile_efficiency, b.wave_efficiency / a.wave_efficiency)


def cliffs(
    sms: int,
    tile: tuple[int, int] = TILE,
    resident: int = 1,
    *,
    first: int = FIRST,
    last: int = LAST,
    step: int = STEP,
    threshold: float = THRESHOLD,
) -> list[Drop]:
    """The sizes at which throughput drops by more than `threshold` against the size `step` below."""
    drops = (change(N - step, N, sms, tile, resident) for N in range(first + step, last + 1, step))
    return [drop for drop in drops if drop.drop > threshold]


@dataclass(frozen=True)
class Interval:
    """One tile on one SM: `start` and `end` in tile times (with several resident, each slot runs for itself)."""

    sm: int
    slot: int
    tile: int
    wave: int
    start: float
    end: float


def schedule(N: int, sms: int, tile: tuple[int, int] = TILE, resident: int = 1) -> list[Interval]:
    """Which SM computes which tile when: blocks go out in order, each to the place that is free first."""
    w = waves(N, sms, tile, resident)
    return [
        Interval(t % sms, t % w.slots // sms, t, t // w.slots, float(t // w.slots), float(t // w.slots + 1))
        for t in range(w.tiles)
    ]


def divisibility(N: int, most: int = 32) -> int:
    """The largest power of two, up to `most`, that divides N."""
    return min(N & -N, most)


def _next_cliff(above: int, sms: int) -> int:
    return next(drop.N for drop in cliffs(sms) if drop.N > above)


QUESTIONS = {
    "cliff/row_alignment_1794": Question(
        "A bf16 matrix of 1794 columns begins at an address that 256 divides. What is the largest access, in bytes "
        "(a power of two), that is aligned at the beginning of every row?",
        lambda: divisibility(2 * 1794),
        "bytes",
        "A row is 3588 bytes long, and 4 is the largest power of two that divides that.",
        0,
    ),
    "cliff/tiles_1792": Question(
        "C has 1792 x 1792 elements, and every block computes a tile of 256 rows and 128 columns. How many tiles?",
        lambda: waves(1792, 108).tiles,
        "tiles",
        "Both sides divide evenly: no tile hangs over the edge.",
        0,
    ),
    "cliff/tiles_1793": Question(
        "And how many tiles of 256 x 128 does it take to cover 1793 x 1793 elements?",
        lambda: waves(1793, 108).tiles,
        "tiles",
        "One row and one column more, and a whole row and a whole column of tiles for them.",
        0,
    ),
    "cliff/waves_1793": Question(
        "108 multiprocessors take one tile each at a time. In how many waves do the tiles of 1793 x 1793 run?",
        lambda: waves(1793, 108).waves,
        "waves",
        "They no longer fit into one.",
        0,
    ),
    "cliff/tail_1793": Question(
        "What fraction of the 108 multiprocessors has work in the last wave of 1793 x 1793?",
        lambda: waves(1793, 108).tail / 108,
        "of them",
        "All others wait for these few.",
    ),
    "cliff/drop_1800": Question(
        "By what fraction does the throughput (FLOP per second) fall from N = 1792 to N = 1800 on 108 "
        "multiprocessors, if the time of a tile is proportional to K = N?",
        lambda: change(1792, 1800, 108).drop,
        "of the throughput",
        "The time doubles (and grows by 1800/1792), the useful work grows by (1800/1792)^3.",
    ),
    "cliff/next_108": Question(
        "On 108 multiprocessors, what is the next multiple of 8 at which another wave begins and costs more than 15%?",
        lambda: _next_cliff(1800, 108),
        "",
        "The first size past a multiple of 128 whose tiles need a third wave.",
        0,
    ),
    "cliff/first_132": Question(
        "On an H200, with its 132 multiprocessors, what is the first such size from 1024 up?",
        lambda: _next_cliff(FIRST, 132),
        "",
        "At 1800 all tiles still run at once there.",
        0,
    ),
    "cliff/even_1800": Question(
        "Suppose the work of all 256 x 128 tiles could be divided evenly over the multiprocessors, waves or no waves. "
        "By what fraction would the throughput still fall from N = 1792 to N = 1800?",
        lambda: 1 - change(1792, 1800, 108).tile_factor,
        "of the throughput",
        "What is left is the work on the overhang of the tiles.",
    ),
    "cliff/fine_1800": Question(
        "The same with tiles of 64 x 64?",
        lambda: 1 - change(1792, 1800, 108, FINE_TILE).tile_factor,
        "of the throughput",
        "The finer the tiles, the less hangs over.",
    ),
    "cliff/padded_vocabulary": Question(
        "A language model has 50257 tokens. What is the smallest multiple of 64 that holds them?",
        lambda: -(-50257 // 64) * 64,
        "",
        "47 rows that are never used, for an alignment that every tile of every product profits from.",
        0,
    ),
}  # fmt: skip
