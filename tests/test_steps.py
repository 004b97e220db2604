"""What is recorded of a block and a warp, against counts made by hand and by brute force."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, float32

import labkit as lk
from labkit.emulator import Emulation
from labkit.emulator.counters import Counters
from labkit.emulator.steps import Steps, schedule
from labkit.errors import LabkitError
from labkit.kernels import emulating


@pytest.fixture(autouse=True)
def on_the_emulator(monkeypatch):
    monkeypatch.setenv("LABKIT_DEVICE", "emulator")


def record(kernel, grid, block, args, steps=None, **options) -> Steps:
    steps = steps or Steps()
    with emulating(Emulation(steps=steps, **options)):
        kernel[grid, block](*args)
    steps.finish()
    return steps


@cuda.jit
def stencil(out, a, rows):
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    total = float32(0)
    for r in range(rows):
        for d in range(3):
            if x + d < a.shape[1]:
                total += a[r, x + d]
    out[x] = total


@cuda.jit
def halves(out, a):
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    tile[t] = a[t]
    cuda.syncthreads()
    if t < 32:
        total = float32(0)
        for k in range(64):
            total += tile[k]
        out[t] = total
    cuda.syncthreads()
    tile[t] = a[64 + t]
    cuda.syncthreads()
    if t % 4 == 0:
        out[t] = out[t] + tile[t]


VECTORS = r"""extern "C" __global__ void vectors(float4 *out, const float4 *in, int *count) {
    __shared__ float4 s[32];
    int t = threadIdx.x;
    s[t] = in[t];
    __syncthreads();
    out[t] = s[t ^ 1];
    atomicAdd(&count[t & 1], 1);
}"""


def floats(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("block", [0, 2])
def test_reads_of_each_element_by_brute_force(block):
    a, out = floats(3, 100), np.zeros(96, np.float32)
    steps = record(stencil, 3, 32, (out, a, 2), Steps((block, 0, 0)))
    expected = np.zeros(a.shape, int)
    for thread in range(32):
        for r in range(2):
            for d in range(3):
                x = block * 32 + thread + d
                if x < 100:
                    expected[r, x] += 1
    assert steps.grid_of("a", "ld").tolist() == expected.tolist()
    assert not steps.grid_of("a", "st").any()
    assert np.flatnonzero(steps.grid_of("out", "st")).tolist() == list(range(block * 32, block * 32 + 32))


def test_a_transposed_array_is_counted_in_its_own_shape():
    a, out = floats(100, 3).T, np.zeros(32, np.float32)
    counts = record(stencil, 1, 32, (out, a, 1)).grid_of("a", "ld")
    assert counts.shape == (3, 100) and counts[0, :34].tolist() == [1, 2] + [3] * 30 + [2, 1]
    assert not counts[1:].any() and not counts[0, 34:].any()


def test_phases_end_at_barriers_and_shared_arrays_have_names():
    out, a = np.zeros(64, np.float32), floats(128)
    steps = record(halves, 1, 64, (out, a))
    assert steps.arrays["tile"].shape == (64,) and steps.arrays["tile"].space == "shared"
    assert [(p, e.tolist()) for p, (e, _) in steps.touched("a", "ld").items()] == [
        (0, list(range(64))), (2, list(range(64, 128)))
    ]  # fmt: skip
    assert {p: int(c.sum()) for p, (_, c) in steps.touched("tile", "ld").items()} == {1: 32 * 64, 3: 16}
    assert steps.grid_of("tile", "ld", 3).tolist() == [int(k % 4 == 0) for k in range(64)]
    assert not steps.notes


def test_lanes_and_waiting():
    steps = record(halves, 1, 64, (np.zeros(64, np.float32), floats(128)))
    last = [k for k in steps.of_warp(1) if steps.instruction(k).op == "st"][-1]
    assert [n for n in range(32) if int(steps.lanes[last, 1]) >> n & 1] == list(range(0, 32, 4))
    stretches, opens = schedule(steps)
    assert len(opens) == 3
    (wait,) = [s for s in stretches if s.line is None]
    assert (wait.warp, wait.stop) == (1, opens[1])
    sums = [s for s in stretches if s.warp == 0 and opens[0] <= s.start < opens[1]]
    mine = [s for s in stretches if s.warp == 1 and s.line and opens[0] <= s.start < opens[1]]
    size = [sum(s.stop - s.start for s in part) for part in (sums, mine)]
    assert size[0] - size[1] == wait.stop - wait.start > 64  # 64 additions, and their loads
    for warp in range(2):
        executed = sum(s.stop - s.start for s in stretches if s.warp == warp and s.line is not None)
        assert executed == np.count_nonzero(steps.lanes[:, warp])


def test_wide_accesses_and_atomics():
    kernel = lk.cuda_kernel(VECTORS, "vectors")
    steps = record(kernel, 1, 32, (np.zeros(128, np.float32), floats(128), np.zeros(2, np.int32)))
    assert (steps.grid_of("in", "ld") == 1).all() and (steps.grid_of("out", "st") == 1).all()
    assert steps.grid_of("count", "ld").tolist() == steps.grid_of("count", "st").tolist() == [16, 16]
    assert steps.arrays["s"].itemsize == 4 and (steps.grid_of("s", "ld") == 1).all()


def test_the_number_of_steps_is_bounded_and_said():
    args = np.zeros(96, np.float32), floats(3, 100), 2
    whole, cut = record(stencil, 3, 32, args), record(stencil, 3, 32, args, Steps(limit=10))
    assert len(cut.pcs) == 10 and cut.pcs == whole.pcs[:10]
    assert cut.notes == (f"Only the first 10 of {len(whole.pcs)} steps were kept.",)
    assert (cut.grid_of("a", "ld") == whole.grid_of("a", "ld")).all()


def test_the_first_of_several_launches():
    steps, a = Steps(), floats(3, 100)
    with emulating(Emulation(steps=steps)):
        stencil[1, 32](np.zeros(32, np.float32), a, 1)
        stencil[1, 32](np.zeros(32, np.float32), a, 3)
    assert not steps.grid_of("a", "ld")[1:].any()
    assert "Of 2 launches, the first one" in steps.notes[0]


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
def test_counters_are_the_same_with_and_without(engine):
    found = []
    for steps in (None, Steps()):
        counters, out = Counters(), np.zeros(96, np.float32)
        with emulating(Emulation(counters=counters, steps=steps, engine=engine, chunk_threads=32)):
            stencil[3, 32](out, floats(3, 100), 3)
        found.append((counters.metrics, counters.lines, out.tolist()))
    assert found[0] == found[1] and steps.pcs


# ---------------------------------------------------------------------------- the stepper


def test_values_of_each_lane():
    out, a = np.zeros(64, np.float32), floats(128)
    stepper = lk.step(halves, 1, 64, (out, a), warp=1)
    (load, store) = next(m.accesses for m in stepper if m.accesses)
    assert (load.op, load.array.name, load.values.ravel().tolist()) == ("ld", "a", list(range(32, 64)))
    assert (store.op, store.array.name, store.values.ravel().tolist()) == ("st", "tile", list(range(32, 64)))
    last = [m for m in stepper if any(a.op == "st" and a.array.name == "out" for a in m.accesses)][-1]
    assert last.lanes == tuple(range(0, 32, 4))
    assert {k: float(v[0]) for k, v in enumerate(last.accesses[-1].values) if k in last.lanes} == {
        k: out[32 + k] for k in last.lanes
    }


def test_shared_memory_before_and_after():
    stepper = lk.step(halves, 1, 64, (np.zeros(64, np.float32), floats(128)))
    stores = [m for m in stepper if any(a.op == "st" and a.array.name == "tile" for a in m.accesses)]
    assert stores[0].shared["tile"].tolist() == list(range(64))
    assert stores[1].shared["tile"].tolist() == list(range(64, 128))
    assert stores[0].touched(stepper.steps.arrays["tile"]) == {(k,) for k in range(32)}


def test_moves_and_text():
    stepper = lk.step(halves, 1, 64, (np.zeros(64, np.float32), floats(128)))
    assert stepper.back().position == 0 and stepper.next().position == 1
    assert stepper.goto(-1).next().position == len(stepper) - 1
    line = next(m.line for m in stepper if m.text == "tile[t] = a[t]")
    assert stepper.goto(0).to_line(line).now.line == line
    stepper.goto(next(n for n, m in enumerate(stepper) if m.accesses))
    text = stepper.text()
    assert f">{line:5}      tile[t] = a[t]" in text and "#" * 32 + "  32 active" in text
    assert "loads a (global memory)" in text and "lane 3: a[3] = 3" in text
    assert "stores tile (shared memory)" in text and "[31]" in text
    page = stepper._repr_html_()
    assert "a[31] = <b>31</b>" in page and "32 of 32 lanes active" in page
    final = [m for m in stepper if len(m.lanes) == 8][0]
    stepper.goto(list(stepper).index(final))
    assert "#...#...#..." in stepper.text()


def test_wide_values_and_integers():
    kernel = lk.cuda_kernel(VECTORS, "vectors")
    stepper = lk.step(kernel, 1, 32, (np.zeros(128, np.float32), floats(128), np.zeros(2, np.int32)))
    accesses = [a for m in stepper for a in m.accesses]
    assert accesses[0].values[5].tolist() == [20, 21, 22, 23]
    stored = next(a for a in accesses if a.array.name == "out")
    assert stored.values[0].tolist() == [4, 5, 6, 7]
    shared = next(a for a in accesses if a.array.name == "s" and a.op == "ld")
    assert shared.values[2].tolist() == [12, 13, 14, 15] and stepper[-1].shared["s"].tolist() == list(range(128))
    count = next(a for a in accesses if a.array.name == "count")
    assert count.op == "red" and count.values.dtype.kind == "i" and set(count.values.ravel().tolist()) == {16}


def test_faulty_requests_get_one_sentence():
    args = np.zeros(64, np.float32), floats(128)
    with pytest.raises(LabkitError, match="no warp 2: a block has warps 0 to 1"):
        lk.step(halves, 1, 64, args, warp=2)
    for run in (lk.step, lk.emulate):
        with pytest.raises(LabkitError, match="<lambda> cannot be launched: put @cuda.jit above it"):
            run(lambda out: None, 1, 64, args)
    with pytest.raises(LabkitError, match=r"no block \(3, 0, 0\) in a grid of 1"):
        lk.step(halves, 1, 64, args, of=(3, 0, 0))
    stepper = lk.step(halves, 1, 64, args)
    with pytest.raises(LabkitError, match="no moment 999: they are numbered 0 to"):
        stepper.goto(999)
    with pytest.raises(LabkitError, match="Line 1 does not come again"):
        stepper.to_line(1)
