from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest

from labkit import cli, doctor


@pytest.fixture(scope="module")
def findings() -> dict[str, doctor.Finding]:
    return {finding.name: finding for finding in doctor.examine()}


def test_the_labs_can_be_done_here(findings):
    assert doctor.healthy(list(findings.values())), doctor.report(list(findings.values()))


def test_it_looks_at_everything(findings):
    assert list(findings) == (
        "Python,labkit,GPU and driver,PyTorch,numba-cuda,NVRTC,nvJitLink,ptxas,nvdisasm,nvcc,ncu,emulator,JupyterLab"
    ).split(",")
    for name in ("numba-cuda", "NVRTC", "nvJitLink"):
        assert f" {doctor.TOOLKIT}" in findings[name].detail


def test_it_is_quick_and_its_json_is_clean():
    # Seconds of the processor, which other tests beside this one do not stretch.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "labkit", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 10
    assert done.returncode == 0
    assert {f["state"] for f in json.loads(done.stdout)} <= {"ok", "optional"}


def test_a_broken_part_is_named_with_its_mend_and_stops_nothing(monkeypatch, capsys):
    def broken() -> str:
        raise ImportError("libnvrtc.so.13: cannot open shared object file")

    checks = (
        ("NVRTC", broken, "missing", doctor.INSTALL),
        ("nvcc", broken, "optional", "remove it"),
        ("Python", lambda: "3.99", "missing", doctor.INSTALL),
    )
    monkeypatch.setattr(doctor, "_CHECKS", checks)
    assert cli.main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["missing", "NVRTC", "ImportError:", *str(lines[0]).split()[3:]]
    assert "libnvrtc.so.13" in lines[0] and "make lab" in lines[1]
    assert lines[2].startswith("optional  nvcc") and "remove it" in lines[3]
    assert lines[4].startswith("ok        Python  3.99")
    assert lines[5] == "The labs cannot be done here yet; missing: NVRTC."


def test_another_toolkit_is_refused(monkeypatch):
    monkeypatch.setattr(doctor, "TOOLKIT", "12.9")
    finding = doctor._examined("NVRTC", doctor._nvrtc, "missing", doctor.INSTALL)
    assert finding.state == "missing"
    assert finding.detail == "NVRTC is 13.0, and the labs are made for 12.9"


class Driver:
    """libcuda and NVML, as ctypes would give them."""

    def __init__(self, status: int = 0, version: int = 13_000):
        self.status, self.version = status, version

    def cuInit(self, flags):
        return self.status

    def cuDeviceGetCount(self, count):
        count._obj.value = 1
        return 0

    def cuDriverGetVersion(self, version):
        version._obj.value = self.version
        return 0

    def cuDeviceGetName(self, name, length, device):
        name.value = b"NVIDIA H200"
        return 0

    def cuDeviceGetAttribute(self, value, attribute, device):
        value._obj.value = {75: 9, 76: 0}[attribute]
        return 0

    def nvmlInit_v2(self):
        return 0

    def nvmlSystemGetDriverVersion(self, release, length):
        release.value = b"580.159.04"
        return 0


@pytest.mark.parametrize(
    ("driver", "device", "state", "detail"),
    [
        (Driver(), "", "ok", "NVIDIA H200 (sm_90), driver 580.159.04"),
        (Driver(), "emulator", "optional", "left out by LABKIT_DEVICE=emulator"),
        (Driver(version=12_080), "", "optional", "driver 580.159.04, which is too old for CUDA 13.0"),
        (Driver(status=100), "", "optional", "no GPU that it can use (cuInit gives 100)"),
    ],
)
def test_drivers_are_told_apart(monkeypatch, driver, device, state, detail):
    monkeypatch.setattr(doctor.ctypes, "CDLL", lambda name: driver)
    monkeypatch.setenv("LABKIT_DEVICE", device)
    finding = doctor._examined("GPU and driver", doctor._gpu, "optional", "")
    assert finding.state == state and detail in finding.detail
    assert bool(finding.mend) == (state != "ok")


def test_counters_kept_to_root_are_noticed(tmp_path, monkeypatch):
    params = tmp_path / "params"
    params.write_text("ModifyDeviceFiles: 1\nRmProfilingAdminOnly: 1\n")
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 1000)
    assert not doctor._may_count(params)
    params.write_text("ModifyDeviceFiles: 1\nRmProfilingAdminOnly: 0\n")
    assert doctor._may_count(params)
    params.write_text("RmProfilingAdminOnly: 1\n")
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 0)
    assert doctor._may_count(params)


@pytest.mark.gpu
def test_the_gpu_is_found(findings):
    assert findings["GPU and driver"].state == "ok", findings["GPU and driver"]
