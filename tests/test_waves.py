"""Tiles and waves against a simulation that knows no formula, and the cliffs by arithmetic."""

from __future__ import annotations

import heapq
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import LabkitError
from labkit.models import waves

SIZES = st.integers(1, 5000)
SMS = st.integers(1, 200)
TILES = st.tuples(st.sampled_from([16, 64, 128, 256]), st.sampled_from([16, 64, 128, 256]))


def simulated_end(tiles: int, slots: int) -> int:
    """Greedy blocks on slots, one unit of time each."""
    free = [0] * slots
    for _ in range(tiles):
        heapq.heapreplace(free, free[0] + 1)
    return max(free)


@given(N=st.integers(1, 2500), sms=SMS, tile=TILES, resident=st.integers(1, 8))
def test_waves_are_the_end_of_a_greedy_schedule(N, sms, tile, resident):
    w = waves.waves(N, sms, tile, resident)
    assert w.tiles == len(range(0, N, tile[0])) * len(range(0, N, tile[1]))
    assert w.waves == simulated_end(w.tiles, sms * resident)
    assert 1 <= w.tail <= w.slots
    assert (w.waves - 1) * w.slots + w.tail == w.tiles


@given(N=SIZES, sms=SMS, tile=TILES, resident=st.integers(1, 8))
def test_efficiencies_are_useful_work_over_what_the_machine_could_do(N, sms, tile, resident):
    w = waves.waves(N, sms, tile, resident)
    possible = w.waves * w.slots * tile[0] * tile[1]
    assert 0 < w.efficiency <= 1
    assert math.isclose(w.efficiency, N * N / possible)


@given(N=SIZES, sms=SMS)
def test_a_drop_is_the_ratio_of_throughputs(N, sms):
    def throughput(n: int) -> float:
        return n**3 / (waves.waves(n, sms).waves * n)  # time: waves, each as long as K

    drop = waves.change(N, N + 8, sms).drop
    assert math.isclose(1 - drop, throughput(N + 8) / throughput(N), rel_tol=1e-9)


@pytest.mark.parametrize(
    "sms, expected",
    [(108, [1800, 2568, 3080, 3592, 4104]), (132, [2056, 2824, 3592, 4104])],
)
def test_cliffs_by_arithmetic(sms, expected):
    assert [drop.N for drop in waves.cliffs(sms)] == expected


def test_the_first_cliff_on_108_sms():
    before, after = waves.waves(1792, 108), waves.waves(1793, 108)
    assert (before.tiles, before.waves, before.tail) == (98, 1, 98)
    assert (after.tiles, after.waves, after.tail) == (120, 2, 12)


@given(N=st.integers(1, 3000), sms=SMS, resident=st.integers(1, 4))
def test_schedule_gives_every_tile_one_place_and_no_place_two_tiles_at_once(N, sms, resident):
    w = waves.waves(N, sms, resident=resident)
    schedule = waves.schedule(N, sms, resident=resident)
    assert sorted(i.tile for i in schedule) == list(range(w.tiles))
    assert len({(i.sm, i.slot, i.start) for i in schedule}) == w.tiles
    assert all(0 <= i.sm < sms and 0 <= i.slot < resident and i.end == i.start + 1 for i in schedule)
    assert max(i.end for i in schedule) == w.waves


@given(st.integers(1, 10**6))
def test_divisibility(N):
    power = waves.divisibility(N)
    assert N % power == 0 and (power == 32 or N % (2 * power) != 0)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True])
def test_sizes_that_are_none(bad):
    with pytest.raises(LabkitError, match="at least 1"):
        waves.waves(bad, 108)
    with pytest.raises(LabkitError, match="at least 1"):
        waves.waves(1792, bad)


def test_even_division_leaves_the_tiles_part():
    (even,) = waves.curve([1800], 108, even=True)
    assert math.isclose(even, 1800**2 / (120 * 256 * 128))
    assert waves.curve([1792], 108, even=True) == [1.0]


def test_answers():
    values = {key: question.value() for key, question in waves.QUESTIONS.items()}
    assert values["cliff/tiles_1792"] == 98
    assert values["cliff/tiles_1793"] == 120
    assert values["cliff/waves_1793"] == 2
    assert math.isclose(values["cliff/tail_1793"], 12 / 108)
    assert math.isclose(values["cliff/drop_1800"], 1 - (1800 / 1792) ** 2 / 2)
    assert values["cliff/next_108"] == 2568
    assert values["cliff/first_132"] == 2056
    assert math.isclose(values["cliff/even_1800"], 1 - (1800 / 1792) ** 2 * 98 / 120)
    assert math.isclose(values["cliff/fine_1800"], 1 - (1800 / 1792) ** 2 * 28**2 / 29**2)
    assert values["cliff/padded_vocabulary"] == 50304
