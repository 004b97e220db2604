"""The picture of who touches what: its cells, labels and words."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from labkit.emulator.trace import Access
from labkit.errors import LabkitError
from labkit.plots import access_map

UNUSED, ABSENT = -1, -2


def traced(addresses, *, space="global", op="ld", width=4, array="A", line=7, pitch=64):
    indices = tuple(None if a < 0 else (a // 4 // pitch, a // 4 % pitch) for a in addresses)
    if space == "shared":
        indices = (None,) * 32
    found = Access("k", "k.py", line, op, space, width, array, tuple(addresses), indices, 0, "")
    return SimpleNamespace(accesses=(found,))


def cells(figure):
    return np.array(figure.data[0].z), np.array(figure.data[0].text)


def test_a_column_of_a_matrix_wastes_its_sectors():
    """The naive GEMM's A: lanes n and n + 16 read A[n, 0], rows 256 bytes apart."""
    figure = access_map(traced([n % 16 * 256 for n in range(32)]))
    z, text = cells(figure)
    assert figure.layout.title.text == (
        "A warp loads A on line 7: one request, 16 sectors, <b>64 of 512 bytes used</b>"
    )
    assert z.shape == (16, 32)
    assert z[:, 0].tolist() == list(range(16)) and (z[:, 1:8] == UNUSED).all() and (z[:, 8:] == ABSENT).all()
    assert text[:, 0].tolist() == [f"{n},{n + 16}" for n in range(16)]
    assert list(figure.layout.yaxis.ticktext) == [f"A[{n}, 0]" for n in range(16)]
    assert len(figure.layout.shapes) == 16


def test_neighbours_fill_their_sectors():
    figure = access_map(traced([64 + 4 * n for n in range(32)]))
    z, text = cells(figure)
    assert "4 sectors, <b>128 of 128 bytes used" in figure.layout.title.text
    assert z.shape == (2, 32) and z[0, 16:].tolist() == list(range(16)) and (z[0, :16] == ABSENT).all()
    assert list(figure.layout.yaxis.ticktext) == ["A[0, 16] .. [0, 31]", "A[0, 32] .. [0, 47]"]
    assert text[1, 15] == "31"


def test_a_broadcast_and_inactive_lanes():
    figure = access_map(traced([0] * 32))
    assert "one sector, <b>4 of 32 bytes used" in figure.layout.title.text
    assert cells(figure)[1][0, 0] == "0-31"
    assert "all 32 lanes" in figure.data[0].customdata[0][0]
    some = access_map(traced([8 if n in (1, 5, 9) else -1 for n in range(32)]))
    assert cells(some)[1][0, 2] == "3x" and "lanes 1, 5 and 9" in some.data[0].customdata[0][2]


def test_wide_accesses_and_stores():
    figure = access_map(traced([16 * n for n in range(32)], width=16, op="st"))
    z, _ = cells(figure)
    assert "A warp stores to A" in figure.layout.title.text and "512 of 512 bytes written" in figure.layout.title.text
    assert z.tolist() == np.arange(32).reshape(4, 8).tolist()


def test_banks_of_a_column_conflict():
    figure = access_map(traced([n * 128 for n in range(32)], space="shared", array="tile"), "tile")
    z, _ = cells(figure)
    assert "32 wavefronts, <b>31 bank conflicts</b>" in figure.layout.title.text
    assert z[:, 0].tolist() == list(range(32)) and (z[:, 1:] == ABSENT).all()
    (box,) = figure.layout.shapes
    assert (box.x0, box.x1) == (-0.5, 0.5) and box.y1 - box.y0 > 31
    padded = access_map(traced([n * 132 for n in range(32)], space="shared", array="tile"), "tile")
    assert "one wavefront, <b>no bank conflict</b>" in padded.layout.title.text and not padded.layout.shapes
    assert padded.layout.xaxis.tickangle == 0  # plotly turns numbers that come close, into the words above them
    assert "bank" in [note.text for note in padded.layout.annotations]
    pairs = access_map(traced([n % 16 * 4 for n in range(32)], space="shared", array="tile"), "tile")
    assert cells(pairs)[1][0, 15] == "15,31" and pairs.data[0].textfont.size < padded.data[0].textfont.size


def test_banks_of_wide_loads():
    figure = access_map(traced([n * 16 for n in range(32)], space="shared", array="tile", width=16), "tile")
    assert "4 wavefronts, <b>no bank conflict</b>" in figure.layout.title.text
    assert cells(figure)[0][0, :8].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_chooses_the_load_and_the_line():
    store, load, later = (
        traced([0] * 32, op=op, line=line).accesses[0] for op, line in (("st", 3), ("ld", 5), ("ld", 9))
    )
    both = SimpleNamespace(accesses=(store, load, later))
    assert "loads A on line 5" in access_map(both).layout.title.text
    assert "stores to A on line 3" in access_map(both, line=3).layout.title.text
    with pytest.raises(LabkitError, match="does not touch A on line 4, but on 3, 5 and 9"):
        access_map(both, line=4)


def test_errors_name_what_there_is():
    with pytest.raises(LabkitError, match="touches no array 'Q'; it touches A"):
        access_map(traced([0] * 32), "Q")
    with pytest.raises(LabkitError, match="no addresses to draw"):
        access_map(SimpleNamespace(accesses=()))
    with pytest.raises(LabkitError, match="loads and stores nothing: write the kernel"):
        access_map(SimpleNamespace(accesses=(), origin="emulated"))


def test_draws_a_real_kernel_with_its_own_names():
    import labkit as lk

    kernel = lk.cuda_kernel(
        """extern "C" __global__ void k(float *C, const float *A) {
            __shared__ float tile[32][32];
            int x = threadIdx.x;
            tile[x][0] = A[x * 8];
            __syncthreads();
            C[x] = tile[x][0];
        }""",
        "k",
    )
    profile = lk.emulate(kernel, 1, 32, (np.zeros(32, np.float32), np.zeros(256, np.float32)))
    assert "on line 4: one request, 32 sectors" in access_map(profile, "A").layout.title.text
    assert "31 bank conflicts" in access_map(profile, "tile").layout.title.text
    assert "4 sectors" in access_map(profile, "C").layout.title.text
