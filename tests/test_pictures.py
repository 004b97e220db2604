"""Pictures of what a block does: their data against the kernels' own arithmetic."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from numba import cuda, float32

import labkit as lk
from labkit.emulator.steps import Steps
from labkit.errors import LabkitError
from labkit.plots import divergence, reuse, source, tile_walk, timeline
from labkit.profiling import Profile

REDUCE = """extern "C" __global__ void reduce(float *out, const float *in, int n) {
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = t < n ? in[t] : 0.0f;
    __syncthreads();
    for (int step = 1; step < 128; step *= 2) {
        if (t % (2 * step) == 0)
            s[t] += s[t + step];
        __syncthreads();
    }
    if (t == 0) *out = s[0];
}"""


@pytest.fixture(autouse=True)
def on_the_emulator(monkeypatch):
    monkeypatch.setenv("LABKIT_DEVICE", "emulator")


@cuda.jit
def multiply(C, A, B):
    tile = cuda.shared.array((8, 8), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for k0 in range(0, A.shape[1], 8):
        tile[y, x] = A[y, k0 + x]
        cuda.syncthreads()
        for k in range(8):
            total += tile[y, k] * B[k0 + k, x]
        cuda.syncthreads()
    C[y, x] = total


def zeros(*shape):
    return np.zeros(shape, np.float32)


@pytest.fixture(scope="module")
def product():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_DEVICE", "emulator")
        yield lk.emulate(multiply, 1, (8, 8), (zeros(8, 8), zeros(8, 24), zeros(24, 8)))


@pytest.fixture(scope="module")
def tree():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_DEVICE", "emulator")
        kernel = lk.cuda_kernel(REDUCE, "reduce")
        yield lk.emulate(kernel, 1, 128, (zeros(1), np.ones(100, np.float32), 100))


def test_reuse_of_a_matrix(product):
    figure = reuse(product, "B")
    assert np.array_equal(figure.data[0].z, np.full((24, 8), 8.0))
    assert figure.layout.title.text == "One block reads 192 elements of B, <b>8 times each</b>"
    assert "1,536 reads by 64 threads" in figure.layout.title.subtitle.text
    assert "<b>once each" in reuse(product, "A").layout.title.text
    assert np.array_equal(reuse(product, "tile").data[0].z, np.full((8, 8), 3 * 8.0))
    assert reuse(product, "A", most=8).data[0].zmax == 8


def test_reuse_of_a_vector_is_folded(tree):
    figure = reuse(tree, "in")
    z = np.array(figure.data[0].z, float)
    assert z.shape == (4, 32) and list(figure.data[0].y) == [0, 32, 64, 96]
    assert np.nansum(z) == 100 and np.isnan(z[3, 4:]).all()
    reads = np.zeros(128)
    for step in (1, 2, 4, 8, 16, 32, 64):
        for t in range(0, 128, 2 * step):
            reads[[t, t + step]] += 1
    reads[0] += 1
    drawn = np.nan_to_num(np.array(reuse(tree, "s").data[0].z, float))
    assert drawn.ravel().tolist() == reads.tolist()


def test_large_arrays_are_cut_and_grouped():
    @cuda.jit
    def rows(out, a):
        for r in range(cuda.threadIdx.x, 300, 32):
            out[r] = a[100 + r, 7] + a[100 + r, 7]

    steps = lk.emulate(rows, 1, 32, (zeros(300), zeros(500, 400))).steps
    figure = reuse(steps, "a")
    assert np.array(figure.data[0].z).shape == (100, 1)  # 300 rows by threes
    assert list(figure.data[0].y)[:2] == [100, 103] and list(figure.data[0].x) == [7]
    assert "a part of a[500, 400]; a cell is the most of 3 x 1 elements" in figure.layout.title.subtitle.text


def test_timeline_counts_every_instruction_and_marks_barriers(tree):
    figure = timeline(tree)
    steps = tree.steps
    bars = {bar.name: bar for bar in figure.data if bar.type == "bar"}
    waits = bars.pop("waits at a barrier")
    executed = sum(sum(bar.x) for bar in bars.values())
    assert executed == sum(np.count_nonzero(steps.lanes[:, w]) for w in range(4))
    assert len(figure.layout.shapes) == 8  # one barrier, and one per step of the tree
    assert "4 warps, 8 barriers" in figure.layout.title.text
    # Of the 100 elements, warp 3 has some and takes both ways of line 4. From step 32 on there is nothing to add for
    # warps 1 and 3; at step 64, for warp 2 neither.
    opens = [shape.x0 for shape in figure.layout.shapes]
    until = [opens.index(base + wide) for base, wide in zip(waits.base, waits.x, strict=True)]
    assert sorted(zip(until, waits.y, strict=True)) == [
        (0, 0), (0, 1), (0, 2), (6, 1), (6, 3), (7, 1), (7, 2), (7, 3)
    ]  # fmt: skip
    assert any(name.startswith("8: s[t] += s[t + step]") for name in bars)
    until = timeline(tree, until=20)
    bars = [bar for bar in until.data if bar.type == "bar"]
    assert max(b + x for bar in bars for b, x in zip(bar.base, bar.x, strict=True)) == 20
    assert "the first 20 of" in until.layout.title.subtitle.text


def test_timeline_without_waiting(product):
    assert "<b>nobody waits</b>" in timeline(product).layout.title.text
    assert "2 warps, 6 barriers" in timeline(product).layout.title.text


def test_divergence_shows_the_lanes_of_each_line(tree):
    figure = divergence(tree)
    heat = figure.data[0]
    z, edges = np.array(heat.z), np.array(heat.x)
    adds = [k for k in range(z.shape[1]) if heat.customdata[0][k].startswith("line 8:")]
    active = [np.flatnonzero(z[:, k] > 0).tolist() for k in adds]
    assert active == [list(range(0, 32, 2 * step)) for step in (1, 2, 4, 8, 16)] + [[0], [0]]
    bits = tree.steps.lanes[:, 0]
    lanes = sum(int(b).bit_count() for b in bits)
    assert ((z > 0).sum(axis=0) * np.diff(edges)).sum() == lanes
    assert f"<b>{lanes / 32 / np.count_nonzero(bits):.0%} of its lanes" in figure.layout.title.text
    assert "all 32 lanes always active" in divergence(lk.emulate(
        multiply, 1, (8, 8), (zeros(8, 8), zeros(8, 8), zeros(8, 8))), 1).layout.title.text  # fmt: skip


def test_source_has_the_counters_of_each_line(product, tree):
    listing = source(product)
    counts = {line: dict(zip(listing.columns, values, strict=True)) for line, _, values in listing.rows}
    texts = {text.strip(): line for line, text, _ in listing.rows}
    load = counts[texts["tile[y, x] = A[y, k0 + x]"]]
    assert load["sectors loaded"] == 3 * 8 and counts[texts["C[y, x] = total"]]["sectors stored"] == 8
    total = sum(row["warp instructions"] for row in counts.values())
    assert total == sum(line["smsp__inst_executed.sum"] for line in product.line_counts if line["line"])
    assert listing.rows[0][1] == "@cuda.jit" and listing.rows[-1][1].strip() == "C[y, x] = total"
    text = str(source(tree))
    assert "divergent" in text and "s[t] += s[t + step];" in text
    assert "s[t] += s[t + step];" in source(tree)._repr_html_()


def test_tile_walk_goes_from_barrier_to_barrier(product):
    figure = tile_walk(product, "A")
    assert len(figure.frames) == 3
    for k, frame in enumerate(figure.frames):
        z = np.array(frame.data[0].z)
        assert (z[:, 8 * k : 8 * k + 8] == 2).all() and (z[:, : 8 * k] == 1).all() and not z[:, 8 * k + 8 :].any()
    assert "Between barriers 2 and 3, one block <b>reads 64</b> elements of A" in figure.frames[1].layout.title.text
    written = tile_walk(product, "C")
    assert not written.frames and (np.array(written.data[0].z) == 3).all()


def test_errors_are_one_sentence(product):
    with pytest.raises(LabkitError, match="touches no array 'Q'; it touches A, tile, B, C"):
        reuse(product, "Q")
    with pytest.raises(LabkitError, match="never reads C; it only writes it"):
        reuse(product, "C")
    with pytest.raises(LabkitError, match="no warp 7: the block has warps 0 to 1"):
        divergence(product, 7)
    old = Profile.from_dict(product.to_dict())
    for picture in (reuse, timeline, divergence, tile_walk):
        for empty in (old, SimpleNamespace()):
            with pytest.raises(LabkitError, match="No steps were recorded here"):
                picture(empty)
        with pytest.raises(LabkitError, match="Nothing was recorded"):
            picture(Steps())
    with pytest.raises(LabkitError, match="no counts per source line"):
        source(Profile("measured", "k", {}, {}))
