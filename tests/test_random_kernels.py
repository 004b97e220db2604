"""Random kernels on the emulator against an H200, bit for bit (tests/random_kernels.py writes and records them)."""

from __future__ import annotations

import hashlib
import json
import random

import numpy as np
import pytest
import random_kernels

from labkit.emulator import Emulation, ops, ptx
from labkit.kernels import emulating, gpu

RECORDED = json.loads(random_kernels.FILE.read_text())
BATCHES = range(random_kernels.KERNELS // random_kernels.PER_SOURCE)


def numbers(batch: int) -> range:
    return range(batch * random_kernels.PER_SOURCE, (batch + 1) * random_kernels.PER_SOURCE)


def emulate(number: int, engine: str = "interpreter") -> tuple[np.ndarray, np.ndarray]:
    with emulating(Emulation(engine=engine)):
        return random_kernels.launch(number)


def said(out: np.ndarray, bins: np.ndarray) -> list:
    return [random_kernels.digest(out, bins), *out[:: len(out) // 2, :6].ravel().tolist()]


@pytest.mark.parametrize("batch", BATCHES)
def test_the_emulator_leaves_the_bits_that_the_gpu_left(batch):
    source = hashlib.sha256(random_kernels.source(batch).encode()).hexdigest()[:16]
    assert source == RECORDED["sources"][batch], "the kernels have changed: record them again"
    wrong = [n for n in numbers(batch) if said(*emulate(n)) != RECORDED["results"][str(n)]]
    assert not wrong


@pytest.mark.parametrize("batch", BATCHES)
def test_compiled_code_leaves_them_too(batch):
    number = numbers(batch)[batch]  # compiling takes longer than running: one of each batch
    assert said(*emulate(number, "compiled")) == RECORDED["results"][str(number)]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(random_kernels.KERNELS))
def test_compiled_code_leaves_them_on_every_kernel(number):
    assert said(*emulate(number, "compiled")) == RECORDED["results"][str(number)]


def test_the_kernels_say_something():
    """Threads differ, values are not all zero, NaN or untouched, and an operation that is off by one bit shows."""
    used = "\n".join(map(random_kernels.source, BATCHES))
    forms = [f.split("(")[0].strip() for texts in random_kernels.FORMS.values() for f in texts if f.startswith("__")]
    assert [f for f in forms if f and f not in used] == []
    for number in (0, 77, 200):
        out, bins = emulate(number)
        assert len(np.unique(out, axis=0)) > len(out) // 2
        other = out.copy()
        other[3, 5] ^= 1
        assert random_kernels.digest(other, bins) != random_kernels.digest(out, bins)
        assert (out == 0).mean() < 0.5 and (out == 0x7FFFFFFF).mean() < 0.2


def test_a_broken_operation_is_found(monkeypatch):
    """Shifts that take the amount modulo 32, as C's do on many machines, must not go unnoticed."""
    shift = ops.shift_left
    monkeypatch.setattr(ops, "shift_left", lambda a, n: shift(a, n & 31) if a.dtype.itemsize == 4 else shift(a, n))
    for cached in (ops.lookup, ptx.parse):
        cached.cache_clear()
    try:
        wrong = [n for n in numbers(1) if said(*emulate(n)) != RECORDED["results"][str(n)]]
    finally:
        for cached in (ops.lookup, ptx.parse):
            cached.cache_clear()
    assert wrong


def test_every_kernel_is_another_and_the_same_every_time():
    random.seed(1)  # the writer has a generator of its own
    first = random_kernels.Writer(5).kernel(5)
    random.seed(2)
    assert random_kernels.Writer(5).kernel(5) == first
    results = RECORDED["results"]
    assert len({result[0] for result in results.values()}) == random_kernels.KERNELS == len(results)


@pytest.mark.gpu
@pytest.mark.skipif(not gpu.available(), reason="there is no NVIDIA GPU here")
def test_a_gpu_leaves_them_now():
    found = random_kernels.results_on_gpu(list(range(random_kernels.KERNELS)))
    assert [n for n, words in found.items() if said(*words) != RECORDED["results"][str(n)]] == []


@pytest.mark.gpu
@pytest.mark.skipif(not gpu.available(), reason="there is no NVIDIA GPU here")
def test_kernels_that_nobody_has_seen_agree():
    """Other numbers on every day; one that fails is to be added to the recorded ones."""
    from datetime import date

    start = random_kernels.KERNELS + date.today().toordinal() % 50 * random_kernels.PER_SOURCE
    fresh = list(range(start, start + random_kernels.PER_SOURCE))
    found = random_kernels.results_on_gpu(fresh)
    assert [n for n in fresh if said(*found[n]) != said(*emulate(n))] == []
