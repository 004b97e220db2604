"""How times are taken, on a device that is made up: launches run on the emulator, and two clocks go as tests say."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labkit.emulator import Emulation
from labkit.emulator.launch import Launch, Pointer
from labkit.grading import grade, sandbox, timer, wire, worker
from labkit.kernels.errors import KernelError

ROOT = Path(__file__).resolve().parents[1]
KERNELS = {"gemm": "02_gemm", "reduce": "01_gpu_basics"}
SHAPES = {"gemm": {"M": 33, "N": 20, "K": 17}, "reduce": {"N": 1000}}


@dataclass
class Made:
    """A device without hardware. Times in ms.

    host_ms : what the host needs for one launch.  costs : entry -> what the GPU needs for it.
    forged : entry -> how much of that the GPU's clock does not show.
    idle : entry -> how often it runs; later launches of it do nothing.
    """

    costs: dict[str, float]
    host_ms: float = 0.001
    forged: dict[str, float] = field(default_factory=dict)
    idle: dict[str, int] = field(default_factory=dict)
    refused: str = ""
    device: str = "cpu"
    name: str = "made up"
    l2_bytes: int = 4096
    capability: int = 90
    host: float = 0.0
    gpu: float = 0.0
    hidden: float = 0.0
    launches: dict[str, int] = field(default_factory=dict)

    def event(self) -> Any:
        return _Event(self)

    def spin(self, cycles: int) -> None:
        self.gpu = max(self.gpu, self.host) + cycles / 2e6  # 2 GHz

    def wait(self) -> None:
        self.host = max(self.host, self.gpu) + 0.01

    def launch(self, launch: Launch, code: bytes, cluster: tuple, views: list[Any]) -> None:
        entry = launch.entry
        if entry == self.refused:
            raise KernelError("cuLaunchKernelEx failed: invalid argument.")
        self.host += self.host_ms
        self.gpu = max(self.gpu, self.host) + self.costs[entry]
        self.hidden += self.forged.get(entry, 0.0)
        self.launches[entry] = self.launches.get(entry, 0) + 1
        if self.launches[entry] > self.idle.get(entry, 10**9):
            return
        emulation = Emulation(sanitize=False)
        numbers = [emulation.memory.add(view.numpy(), name=f"b{i}") for i, view in enumerate(views)]
        params = tuple(Pointer(numbers[p.buffer], p.offset) if isinstance(p, Pointer) else p for p in launch.params)
        emulation.run(Launch(launch.ptx, entry, launch.grid, launch.block, params, launch.shared, launch.arch))


class _Event:
    def __init__(self, device: Made) -> None:
        self.device, self.at, self.hidden = device, 0.0, 0.0

    def record(self) -> None:
        self.at = self.device.gpu = max(self.device.gpu, self.device.host)
        self.hidden = self.device.hidden

    def query(self) -> bool:
        return self.device.host >= self.at

    def synchronize(self) -> None:
        self.device.wait()

    def elapsed_time(self, end: _Event) -> float:
        """Between the two, as the GPU's clock shows it: gaps in which it waited for the host are in it."""
        return end.at - self.at - (end.hidden - self.hidden)


def recorded(problem: str, source: str, language: str = "cuda", rung: str = "coalesced") -> bytes:
    job = {"problem": problem, "rung": rung, "language": language, "shapes": [SHAPES[problem]]}
    header, blobs = wire.Reader(1 << 26).feed(worker.handle(job, [source.encode()]))
    assert "recording" in header["results"][0], header
    return blobs[0]


def solution(problem: str = "gemm", rung: str = "coalesced") -> str:
    file = ROOT / "solutions" / KERNELS[problem] / "kernels" / problem / f"{rung}.cu"
    return file.read_text(encoding="utf-8")


YOURS, REFERENCE = "gemm_yours", "gemm_coalesced"


@pytest.fixture(scope="module")
def blobs() -> list[bytes]:
    return [recorded("gemm", solution().replace(REFERENCE, YOURS)), recorded("gemm", solution())]


def run(monkeypatch, device: Made, blobs: list[bytes], problem: str = "gemm", rung: str = "coalesced", **job) -> dict:
    """What a job answers, on this device."""
    monkeypatch.setattr(timer, "time", SimpleNamespace(perf_counter=lambda: device.host / 1e3))
    monkeypatch.setattr(timer, "Gpu", lambda: device)
    job = {"problem": problem, "rung": rung, "shape": SHAPES[problem], "seed": 7, "floor_ms": 0.0, **job}
    header, _ = wire.Reader(1 << 26).feed(timer.handle(job, blobs))
    return header


def test_both_are_timed_in_turn_and_the_host_is_not_in_it(monkeypatch, blobs):
    device = Made({YOURS: 3.0, REFERENCE: 2.0})
    found = run(monkeypatch, device, blobs)
    assert found["yours_ms"] == pytest.approx([3.0] * timer.MOST_SAMPLES)
    assert found["reference_ms"] == pytest.approx([2.0] * timer.MOST_SAMPLES) and found["device"] == "made up"
    assert device.launches[REFERENCE] == device.launches[YOURS] + 1  # it was compared with float64 first


def test_slow_kernels_are_timed_less_often(monkeypatch, blobs):
    found = run(monkeypatch, Made({YOURS: 4000.0, REFERENCE: 1000.0}), blobs)
    assert len(found["yours_ms"]) == len(found["reference_ms"]) == timer.LEAST_SAMPLES


def test_a_kernel_that_works_only_at_first_is_wrong(monkeypatch, blobs):
    for first in (1, timer.WARM_UPS, timer.WARM_UPS + 5):
        found = run(monkeypatch, Made({YOURS: 3.0, REFERENCE: 2.0}, idle={YOURS: first}), blobs)
        assert found["whose"] == "yours" and "A timed run was wrong: 660 of 660 elements of C." == found["fault"]


def test_what_is_faster_than_the_memory_was_not_computed(monkeypatch, blobs):
    slow, fast = ({YOURS: ms, REFERENCE: 2.0} for ms in (0.9, 0.7))
    assert "yours_ms" in run(monkeypatch, Made(slow), blobs, floor_ms=1.0)
    found = run(monkeypatch, Made(fast), blobs, floor_ms=1.0)
    assert found["whose"] == "yours" and "less time than" in found["fault"]


def test_a_clock_that_was_made_to_run_slow_is_seen_by_the_host(monkeypatch, blobs):
    found = run(monkeypatch, Made({YOURS: 3.0, REFERENCE: 2.0}, forged={YOURS: 2.0}), blobs)
    assert found["whose"] == "machine" and "do not agree" in found["fault"]


def test_a_host_that_falls_behind_is_waited_for_longer(monkeypatch, blobs):
    device = Made({YOURS: 3.0, REFERENCE: 2.0}, host_ms=0.5)
    found = run(monkeypatch, device, blobs)
    assert found["yours_ms"] == pytest.approx([3.0] * timer.MOST_SAMPLES)
    stuck = run(monkeypatch, Made({YOURS: 3.0, REFERENCE: 2.0}, host_ms=500.0), blobs)
    assert "keep ahead" in stuck["fault"]


def test_faults_are_laid_at_the_right_door(monkeypatch, blobs):
    costs = {YOURS: 3.0, REFERENCE: 2.0}
    wrong = recorded("gemm", solution().replace("acc += A", "acc -= A"))
    nothing = wire.pack({"recording": {"version": 1, "ptx": [], "launches": [], "buffers": _buffers()}, "given": 3},
                        [b""] * 3)  # fmt: skip
    for device, pair, whose, words in (
        (Made(costs, refused=YOURS), blobs, "yours", "invalid argument"),
        (Made(costs, refused=REFERENCE), blobs, "reference", "invalid argument"),
        (Made(costs), [blobs[0], wrong], "reference", "not right"),
        (Made({REFERENCE: 2.0}), [wrong, blobs[1]], "yours", "wrong"),
        (Made(costs), [b"nonsense" * 9, blobs[1]], "yours", "could not be read"),
        (Made(costs), [blobs[0], b""], "reference", "could not be read"),
        (Made(costs), [nothing, blobs[1]], "yours", "no kernel"),
    ):
        found = run(monkeypatch, device, pair)
        assert found["whose"] == whose and words in found["fault"], found


def _buffers() -> list[dict]:
    about = {"dtype": "float32", "strides": None, "misalign": 0}
    sizes = {"C": 33 * 20, "A": 33 * 17, "B": 17 * 20}
    return [{**about, "name": n, "shape": [s], "nbytes": 4 * s, "fresh": n == "C"} for n, s in sizes.items()]


@pytest.mark.parametrize("name", ["workspace", "zeroed_output"])
def test_workspaces_and_what_the_host_writes_are_as_they_were_before_every_run(monkeypatch, name):
    source = (ROOT / "tests/attacks/honest" / f"{name}.py").read_text()
    mine = recorded("reduce", source, "numba", "sequential")
    theirs = recorded("reduce", solution("reduce", "sequential"), rung="sequential")
    device = Made({})
    device.costs = _Same(1.0)
    found = run(monkeypatch, device, [mine, theirs], "reduce", "sequential")
    assert len(found.get("yours_ms", ())) == timer.MOST_SAMPLES, found


def test_outputs_that_the_host_only_looks_at_are_unwritten_still():
    """A view of another shape, such as torch makes by `flatten`, writes nothing."""
    source = (ROOT / "tests/attacks/honest/zeroed_output.py").read_text()
    for line, fresh in (("y.flatten()", True), ("y.zero_()", False), ("y[:1] = 0", False)):
        blob = recorded("reduce", source.replace("y.zero_()", line), "numba", "sequential")
        header, _ = wire.Reader(1 << 26).feed(blob)
        assert header["recording"]["buffers"][0]["fresh"] is fresh, line


class _Same(dict):
    def __missing__(self, _: str) -> float:
        return self.value

    def __init__(self, value: float) -> None:
        self.value = value


def test_older_devices_get_recordings_under_their_own_name():
    assert timer._code(".version 8.0\n.target sm_90, debug\nx", 80) == b".version 8.0\n.target sm_80, debug\nx"
    for text, capability in ((".target sm_90", 90), (".target sm_90", 100), (".target sm_90a", 80), ("x", 80)):
        assert timer._code(text, capability) == text.encode()


def test_the_timer_starts_no_driver_before_it_forks():
    """A process that has started CUDA cannot fork one that uses it."""
    code = (
        "from labkit.grading import timer; timer._warm(); import sys, torch\n"
        "maps = open('/proc/self/maps').read()\n"
        "print('numba.cuda' in sys.modules, torch.cuda.is_initialized(), 'libcuda.so' in maps)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["False"] * 3


# --- the grader's side ------------------------------------------------------------------------------------------


class Boxes:
    """A runner whose boxes answer as tests say."""

    def __init__(self, recorded: Any = b"yours", timed: Any = None) -> None:
        self.recorded, self.answer = recorded, timed
        self.timer = SimpleNamespace(gpu=0, call=self.call)

    def record(self, trial, shapes):
        return [self.given(self.recorded)]

    def call(self, job, blobs, *, seconds):
        self.job, self.blobs = job, blobs
        return self.given(self.answer), []

    @staticmethod
    def given(answer: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer


PART = {"name": "time", "points": 0.0, "possible": 2.0, "state": "pending", "message": "This waits.", "details": {}}


@pytest.mark.parametrize(
    "recorded, answer, state, points, words",
    [
        (b"", {"yours_ms": [2.0, 2.2, 2.1], "reference_ms": [1.4, 1.3, 1.4], "device": "H200"}, "fail", 1.5, "67%"),
        (b"", {"yours_ms": [1.0], "reference_ms": [1.0], "device": "H200"}, "pass", 2.0, "100%"),
        (b"", {"fault": "A timed run was wrong.", "whose": "yours"}, "fail", 0, "wrong"),
        (b"", {"fault": "CUDA is out of memory.", "whose": "machine"}, "pending", 0, "out of memory"),
        (b"", {"fault": "It is not right.", "whose": "reference"}, "pending", 0, "still waits"),
        (b"", {"yours_ms": [], "reference_ms": [1.0]}, "pending", 0, "nonsense"),
        (b"", {"yours_ms": [float("nan")], "reference_ms": [1.0]}, "pending", 0, "nonsense"),
        (b"", {"yours_ms": [-1.0], "reference_ms": [1.0]}, "pending", 0, "nonsense"),
        (b"", {}, "pending", 0, "still waits"),
        (b"", sandbox.Timeout(), "timeout", 0, "on the GPU"),
        (b"", sandbox.Died("exit status 1"), "pending", 0, "exit status 1"),
        (("no launch at this shape", 3), None, "fail", 0, "no launch"),
        (sandbox.Died("exit status 0"), None, "fail", 0, "exit status 0"),
        (sandbox.Timeout(), None, "timeout", 0, "Python code"),
    ],
)
def test_what_comes_of_a_timing(recorded, answer, state, points, words):
    boxes = Boxes(recorded, answer)
    part = grade.timed(boxes, grade.Trial("gemm", "coalesced", "cuda", ""), b"theirs", b"s" * 32, PART)
    assert (part["state"], part["points"], part["possible"]) == (state, points, 2.0), part
    assert words in part["message"]
    if answer is not None:
        assert boxes.blobs == [b"", b"theirs"] and set(boxes.job) == {"problem", "rung", "shape", "seed", "floor_ms"}


def test_a_box_gets_the_gpu_that_its_number_means_here(monkeypatch):
    for seen, number, given in (("", 1, "1"), ("3,5", 1, "5"), ("GPU-abc", 0, "GPU-abc"), (" 2 ", 0, "2")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
        assert sandbox._gpu_environment(number)["CUDA_VISIBLE_DEVICES"] == given
    monkeypatch.setenv("LD_LIBRARY_PATH", "/usr/local/nvidia/lib64::relative")
    assert sandbox._gpu_environment(0)["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64"
    assert "/usr/local/nvidia/lib64" in sandbox._inside("bubblewrap", True)
    assert "LD_LIBRARY_PATH" not in sandbox._environment()
