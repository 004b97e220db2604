"""Which recorded figures are of kernels as they are now, and how they are renewed."""

from __future__ import annotations

import json

import pytest

import labkit as lk
from labkit import cli, problems, recorded, recordings
from labkit.profiling.fidelity import solutions


def test_nothing_recorded_belongs_to_a_kernel_that_has_changed():
    assert not [str(found) for found in recordings.survey() if "changed since" in found.why]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    return tmp_path


def keep(folder, kind, name, entries):
    path = folder / kind / f"{name}--a-gpu.json"
    path.parent.mkdir(exist_ok=True)
    entries = {"timings" if kind == "bench" else "entries": entries}
    path.write_text(json.dumps({"machine": "a GPU", "date": "2026-01-01", **entries}))


def figures(kind, name):
    """Entries as the commands keep them, of all solutions."""
    found = []
    for ours in solutions(lk.problem(name)):
        for shape in recordings.shapes_of(kind, name):
            mark = {"fingerprint": ours.fingerprint}
            dims = ours.problem.dims_of(shape or ours.bench_shape)
            found.append({"label": ours.label, "shape": dims, **({"extra": mark} if kind == "bench" else mark)})
    return found


@pytest.mark.parametrize("kind", ["bench", "profiles"])
def test_a_recording_is_current_until_its_kernels_change(folder, kind):
    def state():
        return recordings.survey(["transpose"], [kind])[0]

    assert state().state == "missing"
    entries = figures(kind, "transpose")
    keep(folder, kind, "transpose", entries)
    assert (state().state, state().why) == ("current", "")

    (entries[0]["extra"] if kind == "bench" else entries[0])["fingerprint"] = "0" * 16
    keep(folder, kind, "transpose", entries)
    assert (state().state, state().why) == ("stale", f"{entries[0]['label']}: changed since")

    keep(folder, kind, "transpose", figures(kind, "transpose")[1:])
    assert state().why == f"{entries[0]['label']}: not there"

    gone = {**entries[1], "label": "transpose/by_hand (solution)"}
    keep(folder, kind, "transpose", [*figures(kind, "transpose"), gone])
    assert state().why == "transpose/by_hand (solution): no rung any more"

    elsewhere = {**entries[1], "shape": {"M": 1, "N": 1}}
    keep(folder, kind, "transpose", [*figures(kind, "transpose"), elsewhere])
    assert state().why.endswith("at a shape that nothing asks for")


def test_old_times_without_a_mark_are_of_unknown_kernels(folder):
    entries = figures("bench", "add")
    del entries[0]["extra"]["fingerprint"]
    keep(folder, "bench", "add", entries)
    assert recordings.survey(["add"], ["bench"])[0].state == "unknown"


def test_other_ways_of_pytorch_are_no_rungs(folder):
    rivals = [{"label": f"fusion/{rival}", "shape": {}, "extra": {}} for rival in problems.get("fusion").rivals]
    keep(folder, "bench", "fusion", [*figures("bench", "fusion"), *rivals])
    assert rivals
    assert recordings.survey(["fusion"], ["bench"])[0].state == "current"


@pytest.mark.parametrize("name", problems.names())
def test_every_recording_has_a_command_that_labkit_understands(name, tmp_path):
    parser = cli._parser()
    for kind in recordings.KINDS:
        words = recordings.command(recordings.Recording(kind, name, "missing"), tmp_path)
        arguments = parser.parse_args(words)
        for shape in getattr(arguments, "shape", None) or []:
            problems.get(name).dims_of(shape)


def test_what_cannot_be_taken_is_said_and_the_rest_goes_on(tmp_path):
    found = [recordings.Recording("counters", name, "missing") for name in ("ad", "ropes")]
    first, second = (how for _, how in recordings.renew(found, tmp_path))
    assert "failed after" in first and "did you mean add?" in first and "did you mean rope?" in second


def test_no_time_is_left(tmp_path):
    (_, how), = recordings.renew([recordings.Recording("counters", "add", "missing")], tmp_path, minutes=0)
    assert how == "not begun: no time was left."
    (_, how), = recordings.renew([recordings.Recording("counters", "add", "missing")], tmp_path, minutes=0.001)
    assert how == "stopped: no time was left."


def test_the_command(capsys, tmp_path):
    assert cli.main(["recordings", "gemm", "--kind", "counters"]) == 0
    assert capsys.readouterr().out.split() == ["counters", "gemm", "current"]
    if not lk.kernels.gpu.available():
        assert cli.main(["recordings", "gemm", "--renew", str(tmp_path)]) == 1
        assert "There is no GPU here to record on" in capsys.readouterr().err
