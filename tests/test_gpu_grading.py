"""Times in grades, on a real GPU: pending where there is none, filled in later, and worth nothing to who cheats.

    pytest -m gpu tests/test_gpu_grading.py
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from labkit.grading import results, sandbox, scheme
from labkit.kernels import gpu
from labkit.notebook.build import notebook

ROOT = Path(__file__).resolve().parents[1]
LAB, ITEM = "01_gpu_basics/01_threads_and_latency", "vector_add--grid--numba"
POINTS = 10.0
SLOW = '''%%kernel vector_add/grid
from numba import cuda


@cuda.jit
def add_slowly(C, A, B):
    for i in range(cuda.grid(1), C.shape[0], cuda.gridsize(1)):
        C[i] = A[i] + B[i]


def launch(C, A, B):
    add_slowly[min(8, (C.shape[0] + 255) // 256), 256](C, A, B)
'''
PATCHED = SLOW.replace("from numba import cuda\n", '''import statistics
import time

import torch
from numba import cuda

torch.cuda.Event.elapsed_time = lambda self, end: 0.001
torch.cuda.synchronize = lambda *device: None
time.perf_counter = lambda: 0.0
statistics.median = min
''')
IDLE = SLOW.replace("    add_slowly[", '''    if C.shape[0] > 1 << 20:
        return
    add_slowly[''')
# Adds while it is young, in as many runs as it is checked in: later the outputs of earlier ones may do.
REMEMBERS = '''%%kernel vector_add/grid --cuda
// launch add_at_first<<<((N + 255) / 256), (256), 0>>>(C, A, B, N)
// launch grow_old<<<(1), (1), 0>>>()

__device__ unsigned age;

extern "C" __global__ void add_at_first(float *C, const float *A, const float *B, size_t N)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N && age < 30)
        C[i] = A[i] + B[i];
}

extern "C" __global__ void grow_old()
{
    age = age + 1;
}
'''


def book(source: str | None):
    """The notebook, solved; with another kernel where `source` is one."""
    made = notebook(ROOT / "solutions" / f"{LAB}.py", solved=True)
    cells = {cell.id: cell for cell in made.cells}
    if source:
        cells[ITEM].source = ""
        cells[ITEM.replace("numba", "cuda") if "--cuda" in source else ITEM].source = source
    return made


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    """A class, and points for the one kernel alone."""
    pytest.importorskip("jupytext", reason="the schemes of labs are read with jupytext")
    folder = tmp_path_factory.mktemp("class")
    sources = {"reference": None, "slow": SLOW, "patched": PATCHED, "idle": IDLE, "remembers": REMEMBERS}
    for name, source in sources.items():
        (folder / "in").mkdir(exist_ok=True)
        nbformat.write(book(source), folder / "in" / f"{name}.ipynb")
    points = {item.id: POINTS if item.id == ITEM else 0.0 for item in scheme.load(ROOT, [LAB]).items}
    (folder / "points.json").write_text(json.dumps(points))
    return folder


def graded(folder: Path, **environment: str) -> dict[str, dict]:
    """What `labkit grade` makes of it, by student."""
    out = folder / "out"
    command = [sys.executable, "-m", "labkit", "grade", str(folder / "in"), "--out", str(out), "--labs", LAB]
    command += ["--points", str(folder / "points.json"), "--force-weak-sandbox"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {r["submission"]: r for r in results.read_all(out)}


def _parts(result: dict) -> dict[str, dict]:
    (item,) = result["items"]
    return {part["name"]: part for part in item["parts"]}


def _before(folder: Path) -> dict[str, dict]:
    found = graded(folder, LABKIT_DEVICE="emulator", CUDA_VISIBLE_DEVICES="")
    for name, result in found.items():
        results.check_schema(result)
        parts = _parts(result)
        assert parts["correct"]["state"] == "pass", (name, parts["correct"])
        assert parts["time"]["state"] == "pending" and parts["time"]["points"] == 0, name
        assert result["pending"] == pytest.approx(2.0) and result["points"] >= 6.0, name
    return found


@pytest.mark.slow
@pytest.mark.skipif(sandbox.best() != "bubblewrap", reason="needs bubblewrap")
def test_without_a_gpu_time_waits_for_honest_and_cheating_kernels_alike(handed_in, tmp_path):
    (tmp_path / "in").symlink_to(handed_in / "in")
    (tmp_path / "points.json").write_bytes((handed_in / "points.json").read_bytes())
    assert set(_before(tmp_path)) == {"reference", "slow", "patched", "idle", "remembers"}


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(not gpu.available(), reason="there is no NVIDIA GPU here")
def test_a_gpu_fills_in_the_times_that_wait_and_nothing_else(handed_in):
    before = _before(handed_in)
    after = graded(handed_in)
    times = {name: _parts(result)["time"] for name, result in after.items()}
    for name, result in after.items():
        results.check_schema(result)
        was = copy.deepcopy(before[name])
        was["items"][0]["parts"] = [p for p in was["items"][0]["parts"] if p["name"] != "time"]
        now = copy.deepcopy(result)
        now["items"][0]["parts"] = [p for p in now["items"][0]["parts"] if p["name"] != "time"]
        for either in (was, now):  # what follows from the time
            del either["points"], either["pending"], either["items"][0]["points"], either["items"][0]["state"]
        assert now == was, name
        assert result["pending"] == 0, (name, times[name])
    assert times["reference"]["state"] == "pass" and times["reference"]["points"] == 2.0, times["reference"]
    assert 0.9 < times["reference"]["details"]["ratio"] < 1.1, times["reference"]
    assert times["slow"]["details"]["ratio"] < 0.5 and times["slow"]["points"] <= 0.5, times["slow"]
    # Who patches clocks on the host gets the time of what is launched.
    slow, patched = (times[name]["details"]["median_ms"] for name in ("slow", "patched"))
    assert patched == pytest.approx(slow, rel=0.2)
    assert times["patched"]["points"] == times["slow"]["points"]
    assert times["idle"]["state"] == "fail" and "no kernel" in times["idle"]["message"], times["idle"]
    assert times["remembers"]["state"] == "fail" and "wrong" in times["remembers"]["message"], times["remembers"]
    files = {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in results.folder(handed_in / "out").iterdir()}
    graded(handed_in)  # nothing waits any more
    assert files == {
        p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in results.folder(handed_in / "out").iterdir()
    }
