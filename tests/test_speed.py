"""The emulator stays fast: how much of a kernel runs compiled, which does not depend on the machine, and loose limits
of time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import speed_tiled
from engine_tools import INT, add, nvrtc, three

import labkit as lk
from labkit.emulator import Emulation, Launch
from labkit.emulator.counters import Counters
from labkit.emulator.engine import Machine
from labkit.emulator.jit import usable
from labkit.errors import LabkitError
from labkit.kernels import emulating

pytestmark = pytest.mark.skipif(not usable(), reason="this machine has no fused multiply-add")
SOURCE = Path(__file__).with_name("speed_kernels.cu")

# Kernel: grid, block, arrays as (type, count), the number n, which part of its instructions runs compiled at least,
# and seconds of one core that it may take, five times and more what an idle core takes.
KERNELS = {
    "naive": ((32, 32), (16, 16), [("f4", 512 * 512)] * 3, 512, 0.9, 3.0),
    "tile": ((16, 16), (32, 32), [("f4", 512 * 512)] * 3, 512, 0.9, 3.0),
    "reduction": (4096, 256, [("f4", 1 << 20), ("f4", 1)], 1 << 20, 0.8, 2.0),
    "softmax": (512, 256, [("f4", 512 * 1024)] * 2, 1024, 0.75, 2.0),
    "softmax_warp": (64, 256, [("f4", 512 * 1024)] * 2, 1024, 0.7, 2.0),
    "attention": (32, 256, [("f4", 256 * 64)] * 4, 256, 0.9, 3.0),
    "half2_chain": (256, 256, [("f2", 1 << 17)] * 2, 256, 0.75, 2.0),
    "dp4a": (256, 256, [("i4", 1 << 16)] * 2, 256, 0.9, 2.0),
    "wmma_gemm": ((16, 16), 32, [("f2", 1 << 16), ("f2", 1 << 16), ("f4", 1 << 16)], 256, 0.5, 2.0),
}


@pytest.fixture
def machines(monkeypatch):
    """The machines that run while a test does."""
    made: list[Machine] = []
    run = Machine.run

    def kept(self: Machine) -> None:
        made.append(self)
        run(self)

    monkeypatch.setattr(Machine, "run", kept)
    return made


def random_array(kind: str, count: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.integers(-99, 99, count).astype(kind) if kind[0] == "i" else rng.standard_normal(count).astype(kind)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_run_compiled_and_in_time(name: str, machines) -> None:
    """All sanitizers and counters on; a first run compiles."""
    grid, block, arrays, n, part, seconds = KERNELS[name]
    for _ in range(2):
        counters = Counters()
        emulation = Emulation(counters=counters, engine="compiled")
        params = [add(emulation, random_array(*a), "abcd"[k]) for k, a in enumerate(arrays)]
        ptx = nvrtc(SOURCE.read_text(), name=str(SOURCE))
        started = time.process_time()
        emulation.run(Launch(ptx, name, three(grid), three(block), (*params, INT.pack(n))))
        took = time.process_time() - started
    compiled = machines[-1].jit.thread_instructions / counters.metrics["smsp__thread_inst_executed.sum"]
    print(f"{name}: {compiled:.0%} compiled, {took:.2f} s")
    assert compiled >= part
    assert took < seconds


@pytest.mark.slow
def test_three_hundred_times_numbas_simulator() -> None:
    """A tiled product of 64 x 64 matrices, with sanitizers and counters, after the first compilation."""
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run([sys.executable, speed_tiled.__file__], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    theirs = float(done.stdout)
    a, b, c = speed_tiled.matrices()
    times = []
    for _ in range(20):  # the first ones compile
        c[:] = 0
        started = time.process_time()
        with emulating(Emulation(counters=Counters())):
            speed_tiled.tiled[(4, 4), (16, 16)](a, b, c)
        times.append(time.process_time() - started)
    assert np.allclose(c, a @ b, atol=1e-4)
    ours = sorted(times[10:])[5]
    print(f"numba's simulator {theirs:.2f} s, the emulator {1000 * ours:.1f} ms: {theirs / ours:.0f} times")
    assert theirs / ours >= 300


# ---------------------------------------------------------------------------- some blocks for all

TILED = lk.cuda_kernel(SOURCE.read_text(), "tile")
FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"


def tiled(sample: int | None, n: int = 256):
    c = np.full((n, n), np.nan, np.float32)
    a, b = np.ones((n, n), np.float32), np.ones((n, n), np.float32)
    blocks = n // 32
    return lk.emulate(TILED, (blocks, blocks), (32, 32), (a, b, c, np.int32(n)), sample=sample), c


def test_a_sample_counts_as_all_blocks_do_and_says_so() -> None:
    whole, c = tiled(None)
    assert (c == 256).all() and "sampled" not in whole.fidelity.values()
    some, c = tiled(7)
    assert np.isnan(c).sum() == (64 - 7) * 32 * 32
    assert not np.isnan(c[0, 0])
    for name, value in some.metrics.items():
        assert value == pytest.approx(whole.metrics[name], rel=1e-3), name
        assert some.fidelity[name] == "sampled" or name.startswith(("launch__", "labkit__")) or "maximum" in name
    assert some.fidelity[FFMA] == "sampled" and some[FFMA] == whole[FFMA] > 0
    left_out = set(whole.metrics) - set(some.metrics)
    assert left_out and all("distinct" in name or "dram" in name for name in left_out)
    assert not some.arrays
    assert "tile: 7 of 64 blocks ran (sample=7)" in some.notes[0] and "outputs are incomplete" in some.notes[0]
    everything, c = tiled(64)
    assert everything.metrics == whole.metrics and everything.fidelity == whole.fidelity


def test_samples_that_cannot_be_are_refused() -> None:
    source = """
    extern "C" __global__ void k(int* a) {
        if (threadIdx.x == 0) a[atomicAdd(a, 1) + 1] = blockIdx.x;
    }"""
    kernel = lk.cuda_kernel(source, "k")
    a = np.zeros(1 << 10, np.int32)
    with pytest.raises(LabkitError, match="k cannot be sampled: line 3 uses what an atomic returns"):
        lk.emulate(kernel, 100, 32, (a,), sample=10)
    lk.emulate(kernel, 100, 32, (a,))
    for bad in (0, -1, 2.5, True):
        with pytest.raises(LabkitError, match="number of blocks"):
            tiled(bad)


# ---------------------------------------------------------------------------- numba's code, kept on disk

NUMBA = """
from numba import cuda
SCALE = {scale}
@cuda.jit
def helper(x):
    return x * SCALE + {more}
@cuda.jit
def kept(a):
    a[cuda.threadIdx.x] = helper(a[cuda.threadIdx.x])
"""


def test_numbas_code_is_kept_until_something_that_it_is_made_of_changes(tmp_path, monkeypatch) -> None:
    from labkit.kernels import numba_launch

    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    compiled = []
    compile_ = numba_launch._compile_pyfunc_with_fixup
    monkeypatch.setattr(
        numba_launch, "_compile_pyfunc_with_fixup", lambda *a, **k: (compiled.append(a), compile_(*a, **k))[1]
    )

    def times(dtype: type = np.float32, **numbers: object) -> tuple[float, int]:
        names: dict = {}
        exec(compile(NUMBA.format(**numbers), "kept.py", "exec"), names)
        a = np.ones(32, dtype)
        compiled.clear()
        with emulating(Emulation()):
            names["kept"][1, 32](a)
        return float(a[5]), len(compiled)

    assert times(scale=2, more=1) == (3, 1)
    assert times(scale=2, more=1) == (3, 0)
    assert times(scale=5, more=1) == (6, 1)  # a global of the helper
    assert times(scale=2, more=7) == (9, 1)  # its code
    assert times(np.float64, scale=2, more=1) == (3, 1)  # the argument's type
    assert times(scale=2, more=1) == (3, 0)
