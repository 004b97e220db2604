"""The table of devices: figures that agree with one another, and limits that agree with NVIDIA's calculator."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from labkit import recorded
from labkit.cli import main
from labkit.errors import LabkitError
from labkit.models import devices
from labkit.models.devices import DEVICES, find
from labkit.models.occupancy import occupancy


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_figures_agree_with_one_another(device):
    """A peak is multiprocessors x what each begins per clock x the clock: a slip of the pen in one breaks the product.

    INT8 runs at two or four times the rate of FP16 summed in float32.
    """
    assert device.name in DEVICES and device.source
    if device.sms and device.clock_mhz:
        peak = device.sms * device.limits.fp32_lanes * 2 * device.clock_mhz / 1e6
        assert device.fp32_tflops == pytest.approx(peak, rel=0.01)
    assert device.int8_tops / device.tensor_tflops == pytest.approx(2, rel=0.01) or device.arch in ("sm_86", "sm_89")
    assert set(device.others) <= set(devices.COLUMNS)


def test_no_measured_ceiling_exceeds_its_peak():
    peaks = find("NVIDIA H200").rates
    measured = recorded.ceilings("NVIDIA H200")
    assert {"read_gbps", "shared_gbps", "fp32_tflops", "bf16_tflops", "int8_tops"} <= set(peaks)
    for name in set(peaks) & set(measured):
        assert 0.4 * peaks[name] < measured[name] <= peaks[name], name


# threads, registers, shared, arch -> blocks: by cudaOccMaxActiveBlocksPerMultiprocessor of CUDA 13.0's cuda_occupancy.h
CALCULATED = [
    (128, 125, 0, "sm_75", 4),
    (864, 39, 2644, "sm_75", 1),
    (832, 8, 0, "sm_75", 1),
    (310, 129, 7355, "sm_75", 1),
    (32, 16, 0, "sm_75", 16),
    (416, 116, 3328, "sm_75", 1),
    (64, 200, 0, "sm_86", 4),
    (279, 101, 23734, "sm_86", 1),
    (124, 103, 0, "sm_86", 4),
    (160, 201, 9910, "sm_86", 1),
    (32, 16, 0, "sm_86", 16),
    (352, 110, 6493, "sm_86", 1),
    (744, 33, 0, "sm_89", 2),
    (775, 34, 1512, "sm_89", 1),
    (352, 75, 0, "sm_89", 2),
    (124, 238, 17551, "sm_89", 2),
    (32, 16, 0, "sm_89", 24),
    (96, 244, 4045, "sm_89", 2),
    (310, 22, 0, "sm_100", 6),
    (160, 114, 3020, "sm_100", 3),
    (224, 144, 0, "sm_100", 1),
    (806, 72, 7784, "sm_100", 1),
    (32, 16, 0, "sm_100", 32),
    (320, 167, 9026, "sm_100", 1),
]


@pytest.mark.parametrize(("threads", "registers", "shared", "arch", "blocks"), CALCULATED)
def test_limits_as_nvidia_s_calculator_says(threads, registers, shared, arch, blocks):
    assert occupancy(threads, registers, shared, arch).blocks == blocks


def test_found_by_a_part_of_the_name():
    assert find("h200").name == "NVIDIA H200"
    assert find("T4").l2 == 4 * 2**20
    assert find("A100-SXM4-80GB").source_of("bandwidth_gbps").endswith("datasheet")
    for vague in ("A100", "GTX 480", ""):
        with pytest.raises(LabkitError, match="NVIDIA GeForce RTX 3090"):
            find(vague)


class Driver:
    """NVML as an H200's driver answers."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    nvmlInit = staticmethod(lambda: None)
    nvmlDeviceGetHandleByIndex = staticmethod(lambda index: index)
    nvmlDeviceGetMaxClockInfo = staticmethod(lambda handle, kind: {1: 1980, 2: 3201}[kind])
    nvmlDeviceGetMemoryBusWidth = staticmethod(lambda handle: 6144)


@pytest.mark.parametrize(("name", "known"), [("NVIDIA H200", True), ("NVIDIA H900", False)])
def test_the_device_present_is_asked(monkeypatch, capsys, name, known):
    import torch

    about = SimpleNamespace(name=name, major=9, minor=0, multi_processor_count=132, L2_cache_size=60 * 2**20)
    monkeypatch.setattr("labkit.kernels.gpu.available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: about)
    monkeypatch.setitem(sys.modules, "pynvml", Driver)
    here = devices.present()
    assert here.bandwidth_gbps == pytest.approx(2 * 3.201 * 6144 / 8)
    assert here.fp32_tflops == pytest.approx(66.9, abs=0.1)
    assert here.tensor_tflops == (989.5 if known else None)
    assert main(["devices"]) == 0
    assert f"{name} (here)" in capsys.readouterr().out


@pytest.mark.gpu
def test_the_device_here_is_as_the_table_has_it():
    here = devices.present()
    if here.name not in DEVICES:
        pytest.skip(f"{here.name} is not in the table")
    known = DEVICES[here.name]
    assert here.arch == known.arch
    for figure, within in (("sms", 0), ("l2", 0), ("clock_mhz", 0.02), ("bandwidth_gbps", 0.05), ("fp32_tflops", 0.02)):
        if getattr(known, figure):
            assert getattr(here, figure) == pytest.approx(getattr(known, figure), rel=within), figure


def test_the_command_prints_the_table_with_its_sources(capsys):
    assert main(["devices"]) == 0
    out = capsys.readouterr().out
    assert all(device.name in out and device.source in out for device in DEVICES.values())


def test_a_b200_s_figures_say_where_they_are_from():
    """What its driver says and its datasheet agree: 148 x 128 lanes, twice, at the clock."""
    b200 = find("B200")
    assert (b200.sms, b200.l2) == (148, 126.5 * 2**20)
    assert "driver" in b200.source_of("sms") and "derived" in b200.source_of("clock_mhz")
    assert "datasheet" in b200.source_of("fp32_tflops")


def test_ceilings_are_those_of_the_folder(monkeypatch, tmp_path):
    before = recorded.ceilings("NVIDIA H200")
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    assert before and recorded.ceilings("NVIDIA H200") == {}
    monkeypatch.undo()
    assert recorded.ceilings("NVIDIA H200") == before
