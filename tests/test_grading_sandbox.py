"""What code in the box sees, may take and leaves behind; and that the engine survives recordings made by hand."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from labkit.errors import LabkitError
from labkit.grading import engine, sandbox, wire

ROOT = Path(__file__).resolve().parents[1]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sandbox.best() != "bubblewrap", reason="needs bubblewrap"),
]
SHAPES = [{"N": 33}]


@pytest.fixture(scope="module")
def box():
    with sandbox.Box("labkit.grading.worker", "bubblewrap") as box:
        yield box


def said(box, code: str, seconds: float = 60) -> str:
    """What a kernel file says of its surroundings, by the error that it raises."""
    source = f"import os, sys, json\n{code}\nraise RuntimeError('SAID ' + json.dumps(found))\n"
    job = {"problem": "vector_add", "rung": "grid", "language": "numba", "shapes": SHAPES}
    answer, _ = box.call(job, [source.encode()], seconds=seconds)
    text = answer["results"][0]["error"]
    assert "SAID " in text, text
    return json.loads(text.split("SAID ", 1)[1].rstrip("."))


def test_solutions_tests_and_other_files_are_not_there(box):
    paths = [ROOT / "solutions", ROOT / "tests", ROOT / ".git", ROOT / "labs", "/root", "/home", "/etc/passwd", "/var"]
    names = [str(p) for p in paths]
    code = f"found = [p for p in {names} if os.path.isfile(p) or os.path.isdir(p) and os.listdir(p)]"
    there = [path for path in said(box, code) if not os.sys.base_prefix.startswith(path)]
    assert there == []


def test_nothing_but_tmp_can_be_written(box):
    code = (
        "import labkit\nfound = []\n"
        "for p in (os.path.dirname(labkit.__file__), '/', '/usr', '/dev', sys.prefix, '/proc/sys/kernel'):\n"
        "    try:\n        open(p + '/trace', 'w').write('x'); found.append(p)\n    except OSError: pass"
    )
    assert said(box, code) == []
    assert said(box, "open('/tmp/trace', 'w').write('x'); found = os.listdir('/tmp').count('trace')") == 1
    assert not Path("/tmp/trace").exists()


def test_there_is_no_network_no_foreign_process_and_no_environment(box, monkeypatch):
    monkeypatch.setenv("GRADER_TOKEN", "secret")
    code = (
        "import socket\npids = [p for p in os.listdir('/proc') if p.isdigit()]\n"
        "found = {'pids': len(pids), 'env': sorted(os.environ)}\n"
        "try:\n    socket.create_connection(('1.1.1.1', 53), 2); found['net'] = True\n"
        "except OSError as e: found['net'] = False\nfound['links'] = [n for _, n in socket.if_nameindex()]"
    )
    found = said(box, code)
    assert found["net"] is False and found["pids"] < 6 and found["links"] in (["lo"], [])
    with sandbox.Box("labkit.grading.worker", "bubblewrap") as fresh:
        assert "GRADER_TOKEN" not in said(fresh, code)["env"]


def test_a_file_that_ends_its_process_is_answered_for_and_harms_no_next_job(box):
    job = {"problem": "vector_add", "rung": "grid", "language": "numba", "shapes": SHAPES}
    ends = ((b"import os; os._exit(0)", "exit status 0"), (b"import os; os.kill(os.getpid(), 11)", "SIGSEGV"))
    for code, how in ends:
        with pytest.raises(sandbox.Died, match=how):
            box.call(job, [code], seconds=60)
    assert "exit" in box.call(job, [b"import sys; sys.exit(0)"], seconds=60)[0]["results"][0]["error"].lower()
    assert said(box, "found = 1") == 1


def test_an_endless_loop_and_an_orphan_end_with_the_clock():
    job = {"problem": "vector_add", "rung": "grid", "language": "numba", "shapes": SHAPES}
    mark = f"labkit-orphan-{os.getpid()}"
    orphan = f"    os.setsid()\n    os.execlp('sleep', {mark!r}, '1000')"
    code = f"import os\nif os.fork() == 0:\n{orphan}\nwhile True: pass\n"
    with sandbox.Box("labkit.grading.worker", "bubblewrap") as box:
        said(box, "found = 1", 120)
        started = time.monotonic()
        with pytest.raises(sandbox.Timeout):
            box.call(job, [code.encode()], seconds=3)
        assert time.monotonic() - started < 15
        assert mark not in subprocess.run(["ps", "axo", "args"], capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    "code",
    [
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        "held = []\nwhile True: held.append(bytearray(b'x') * (64 << 20))",
        "import os\nwhile True:\n    for fd in range(3, 20):\n"
        "        try: os.write(fd, b'x' * 65536)\n        except OSError: pass",
    ],
    ids=["fork bomb", "memory", "descriptors"],
)
def test_a_box_that_outgrows_its_limits_is_ended(code):
    limits = sandbox.Limits(memory=sandbox.GIB, processes=32, answer=8 << 20)
    job = {"problem": "vector_add", "rung": "grid", "language": "numba", "shapes": SHAPES}
    before = set(sandbox._descendants(os.getpid()))
    with sandbox.Box("labkit.grading.worker", "bubblewrap", limits=limits) as box:
        with pytest.raises((sandbox.Died, sandbox.Timeout)):
            box.call(job, [code.encode()], seconds=40)
        box.kill()
        assert set(sandbox._descendants(os.getpid())) <= before
        assert said(box, "found = 1", 120) == 1  # the next job gets a new box


def test_control_groups_are_removed(box):
    said(box, "found = 1")
    mine = f"labkit-{os.getpid()}-*"
    with sandbox.Box("labkit.grading.engine", "bubblewrap") as other:
        with pytest.raises(sandbox.Died):
            other.call({"runs": 5}, seconds=60)
        inside = {str(p) for p in Path("/sys/fs/cgroup").glob(f"*/{mine}")}
    assert len({str(p) for p in Path("/sys/fs/cgroup").glob(f"*/{mine}")}) <= len(inside)


def test_a_class_is_refused_on_a_weak_sandbox():
    sandbox.allowed("bubblewrap", 200, False)
    sandbox.allowed("rlimits", 1, False)
    sandbox.allowed("namespaces", 200, True)
    for level in ("rlimits", "namespaces"):
        with pytest.raises(LabkitError, match="--force-weak-sandbox"):
            sandbox.allowed(level, 2, False)


@pytest.mark.parametrize("level", ["namespaces", "rlimits"])
def test_weaker_levels_work_too(level):
    if level == "namespaces" and subprocess.run(["unshare", "-Urpf", "true"], capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    with sandbox.Box("labkit.grading.worker", level) as box:
        found = said(box, "found = len([p for p in os.listdir('/proc') if p.isdigit()])", 120)
    assert found < 8 if level == "namespaces" else found > 3


# --- frames -------------------------------------------------------------------------------------------------


def test_frames_survive_being_cut_anywhere():
    frame = wire.pack({"a": 1}, [b"xy", b"", b"z" * 1000])
    for step in (1, 7, len(frame)):
        reader, found = wire.Reader(1 << 20), None
        for at in range(0, len(frame), step):
            assert found is None
            found = reader.feed(frame[at : at + step])
        assert found[0]["a"] == 1 and found[1] == [b"xy", b"", b"z" * 1000]


@pytest.mark.parametrize(
    "data",
    [b"\xff" * 8, (9).to_bytes(8, "little") + b"not json!", (2).to_bytes(8, "little") + b"{}",
     wire.pack({}, [b"x" * 5000]), (18).to_bytes(8, "little") + b'{"sizes": [-1000]}',
     (22).to_bytes(8, "little") + b'{"sizes": [9000000000]}'],
)  # fmt: skip
def test_what_is_no_frame_is_malformed(data):
    with pytest.raises(wire.Malformed):
        wire.Reader(4096).feed(data)


# --- the engine and recordings made by hand -------------------------------------------------------------------

TENSORS = [{"name": "y", "dtype": "float32", "shape": [4], "output": True, "nbytes": 16}]
PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p) { .reg .b64 %rd<3>; .reg .b32 %r<3>;
ld.param.u64 %rd1, [p]; BODY ret; }
"""
_BUFFER = {
    "name": "y", "dtype": "float32", "shape": [4], "strides": None, "misalign": 0, "nbytes": 16, "fresh": True,
}  # fmt: skip


def _recording(body: str = "st.global.u32 [%rd1], 0;", given: int = 1, **changes) -> bytes:
    launch = {
        "ptx": 0, "entry": "k", "grid": [1, 1, 1], "block": [1, 1, 1], "shared": 0, "arch": "sm_90",
        "max_registers": None, "cluster": [1, 1, 1], "params": [{"buffer": 0, "offset": 0}],
    }  # fmt: skip
    buffers = [{**_BUFFER, **changes.pop("buffer", {})}, *changes.pop("buffers", [])]
    launch |= changes.pop("launch", {})
    described = {"version": 1, "ptx": [PTX.replace("BODY", body)], "launches": [launch], "buffers": buffers, **changes}
    return wire.pack({"recording": described, "given": given}, [b""] * len(buffers))


def _run(data: bytes) -> dict:
    frame = engine.handle({"runs": [{"tensors": TENSORS, "metrics": []}]}, [data])
    header, blobs = wire.Reader(1 << 20).feed(frame)
    return {**header["runs"][0], "blobs": blobs}


def test_an_honest_recording_made_by_hand_runs():
    found = _run(_recording())
    assert found["launches"] == 1 and np.frombuffer(found["blobs"][0], np.uint32).tolist() == [0] + [0xFFFFFFFF] * 3


_FAT = {**_BUFFER, "name": "w", "dtype": "u1", "shape": [1], "nbytes": 1 << 40}


@pytest.mark.parametrize(
    "data, words",
    [
        (b"", "cut short"),
        (b"nonsense" * 10, "header"),
        (_recording(given=2), "other buffers"),
        (_recording(buffers=[_FAT]), "GiB"),
        (_recording(buffers=[{**_FAT, "nbytes": -5}]), "GiB"),
        (_recording(launches=[]), None),
        (_recording(launch={"grid": [0, 1, 1]}), "below 1"),
        (_recording(launch={"params": [{"buffer": 7, "offset": 0}]}), "no buffer"),
        (_recording(launch={"params": []}), "parameters"),
        (_recording(launch={"ptx": -3}), "recording"),
        (_recording(launch={"cluster": [2, 1, 1]}), "clusters"),
        (_recording(launch={"entry": "none"}), None),
        (_recording("st.global.u32 [%rd1+4096], 0;"), "y"),
        (_recording("mov.u64 %rd2, 4096; st.global.u32 [%rd2], 0;"), "address"),
        (_recording(launch={"params": [{"buffer": 0, "offset": 1 << 62}]}), None),
        (_recording("this is no ptx;"), None),
    ],
)
def test_a_forged_recording_is_a_fault_and_no_crash(data, words):
    found = _run(data)
    if words is None and "fault" not in found:
        assert found["launches"] == 0
        return
    assert words is None or words in found["fault"]["message"]
    assert found["blobs"] == []


def test_the_problems_tensors_are_the_graders_whatever_a_recording_says():
    reads = "ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd1], %r1;"
    for lie in ({}, {"nbytes": 8, "fresh": False}, {"dtype": "float64", "shape": [2]}, {"name": "other"}):
        found = _run(_recording(reads, buffer=lie))
        assert found["fault"]["kind"] == "uninitialized" and " y" in found["fault"]["message"], found
    filled = _run(_recording(reads, buffer={"fresh": False}))  # the host may fill an output, here with zeros
    assert filled["blobs"] == [bytes(16)]
