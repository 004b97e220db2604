"""The model of occupancy, against NVIDIA's calculator and against what ncu read on an H200."""

from __future__ import annotations

import json
import re
from statistics import median

import pytest

import labkit as lk
from labkit import recorded
from labkit.errors import LabkitError
from labkit.models.devices import LIMITS
from labkit.models.occupancy import WARP, occupancy

MEASURED = [
    (file.stem, entry, json.loads(file.read_text())["sms"])
    for file in recorded.files("counters", "gemm")
    for entry in json.loads(file.read_text())["entries"]
    if not re.match("gemm/(split|stream)_k", entry["case"])  # two kernels in one profile
]

# threads, registers, shared, arch -> blocks: by cudaOccMaxActiveBlocksPerMultiprocessor of CUDA 13.0's cuda_occupancy.h
CALCULATED = [
    (160, 31, 129875, "sm_90", 1),
    (651, 7, 0, "sm_90", 3),
    (45, 48, 164981, "sm_80", 1),
    (682, 78, 74490, "sm_90", 1),
    (188, 216, 0, "sm_80", 1),
    (32, 64, 7176, "sm_80", 20),
    (706, 43, 16726, "sm_80", 1),
    (640, 88, 0, "sm_90", 1),
    (223, 248, 0, "sm_80", 1),
    (37, 10, 188438, "sm_90", 1),
    (128, 33, 0, "sm_90", 12),
    (416, 27, 174576, "sm_90", 1),
    (224, 11, 106587, "sm_80", 1),
    (257, 158, 153985, "sm_80", 1),
    (192, 30, 0, "sm_80", 10),
    (491, 30, 10970, "sm_80", 4),
    (992, 26, 54424, "sm_80", 2),
    (168, 249, 223084, "sm_90", 1),
    (582, 31, 0, "sm_90", 3),
    (337, 103, 166716, "sm_90", 1),
]


@pytest.mark.parametrize(("threads", "registers", "shared", "arch", "blocks"), CALCULATED)
def test_as_nvidia_s_calculator_says(threads, registers, shared, arch, blocks):
    found = occupancy(threads, registers, shared, arch)
    assert found.blocks == blocks
    assert found.warps == blocks * -(-threads // WARP)
    assert found.fraction == found.warps / LIMITS[arch].warps
    assert found.limits[found.limiter.split(" and ")[0]] == blocks


@pytest.mark.parametrize(("file", "entry", "sms"), MEASURED, ids=lambda x: x["case"] if isinstance(x, dict) else "")
def test_waves_and_warps_on_an_h200(file, entry, sms):
    """A wave is what all multiprocessors hold at once; and no more warps are active than fit."""
    m = {metric: median(values) for metric, values in entry["readings"].items()}
    shared = m["launch__shared_mem_per_block_static"] + m["launch__shared_mem_per_block_dynamic"]
    fits = occupancy(int(m["launch__block_size"]), int(m["launch__registers_per_thread"]), int(shared))
    waves = m["launch__grid_size"] / (sms * fits.blocks)
    assert m["launch__waves_per_multiprocessor"] == pytest.approx(waves, abs=0.0051)
    assert m["sm__warps_active.avg.pct_of_peak_sustained_active"] <= 100 * fits.fraction + 0.5


def test_what_runs_out_first():
    assert occupancy(256, 32).limiter == "registers and warps"
    assert occupancy(256, 33).limiter == "registers"
    assert occupancy(32, 16).limiter == "blocks"
    assert occupancy(256, 32, 100_000).limiter == "shared memory"
    assert occupancy(256, 32, 100_000, "sm_80").blocks == 1
    assert repr(occupancy(256, 222)) == "1 block of 8 warps per multiprocessor, 12.5%: registers"
    assert repr(occupancy(256, 128, 8832)) == "2 blocks of 8 warps per multiprocessor, 25.0%: registers"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((1025, 32), "1 to 1,024 threads per block, not 1,025"),
        ((0, 32), "threads per block"),
        ((256, 256), "0 to 255 registers per thread, not 256"),
        ((256, 32, 232_449), "232,448 bytes of shared memory"),
        ((256, 32, 0, "sm_70"), "there are sm_75, sm_80, sm_86, sm_89, sm_90, sm_100"),
        ((1024, 80), "needs 81,920 registers"),
    ],
)
def test_impossible_blocks_are_refused_in_a_sentence(arguments, words):
    with pytest.raises(LabkitError, match=words):
        occupancy(*arguments)


def test_curves_step_down_and_the_kernel_s_own_point_lies_on_each():
    figure = lk.plots.occupancy(256, 64, 16384)
    own = occupancy(256, 64, 16384)
    assert own.limiter in figure.layout.title.text and len(figure.data) == 6
    for curve, dot, at in zip(figure.data[::2], figure.data[1::2], (64, 16384, 256), strict=True):
        assert (dot.x, dot.y) == ((at,), (own.warps,))
        assert dict(zip(curve.x, curve.y, strict=True))[at] == own.warps
    registers = [warps for warps in figure.data[0].y if warps is not None]
    assert registers == sorted(registers, reverse=True)
    assert lk.plots.occupancy(1024, 32).data[0].y[-1] is None, "1024 threads of 255 registers fit nowhere"
    with pytest.raises(LabkitError, match="names no one device"):
        lk.plots.occupancy(256, 64, device="GTX 480")


def test_the_what_if_follows_its_sliders_and_says_the_same_as_text():
    what_if = lk.occupancy_widget(256, 64, 40000)
    assert "4 blocks of 8 warps per multiprocessor, 50.0%: registers" in repr(what_if)
    box = what_if.widget()
    threads, registers, shared, device, said = box.children
    registers.value = 32
    assert what_if.registers == 32 and said.value == what_if.text and "shared memory" in said.value
    device.value = "Tesla T4"
    assert "Tesla T4" in said.value
    threads.value, registers.value = 1024, 255
    assert "registers each needs" in said.value, "what cannot run gets its sentence"
