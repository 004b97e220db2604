"""Which recorded figures are of kernels as they are now, and how they are renewed."""

from __future__ import annotations

import contextlib
import json

import nvtx
import pytest

import labkit as lk
from labkit import cli, problems, recorded, recordings
from labkit.errors import LabkitError
from labkit.kernels import replay
from labkit.profiling import fidelity, ncu, runs
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
def test_every_bench_has_a_command_that_labkit_understands(name, tmp_path):
    arguments = cli._parser().parse_args(recordings.command(name, tmp_path))
    for shape in arguments.shape or []:
        problems.get(name).dims_of(shape)
    for shape in recordings.shapes_of("profiles", name):
        problems.get(name).dims_of(shape or problems.get(name).bench_shape)


def test_what_cannot_be_taken_is_said_and_the_rest_goes_on(tmp_path):
    found = [recordings.Recording("bench", name, "missing") for name in ("ad", "ropes")]
    first, second = (how for _, how in recordings.renew(found, tmp_path))
    assert "failed:" in first and "did you mean add?" in first and "did you mean rope?" in second


def test_no_time_is_left(tmp_path):
    for kind in recordings.KINDS:
        (_, how), = recordings.renew([recordings.Recording(kind, "add", "missing")], tmp_path, minutes=0)
        assert how == "not begun: no time was left."
    (_, how), = recordings.renew([recordings.Recording("bench", "add", "missing")], tmp_path, minutes=0.001)
    assert how == "stopped: no time was left."


class OfNcu:
    """Stands for ncu and the GPU: the measured process runs in this one, and each launch reads as its number."""

    def __init__(self, monkeypatch):
        self.stack, self.seen, self.lost = [], [], 0
        monkeypatch.setattr(ncu, "usable", lambda: "ncu")
        monkeypatch.setattr(ncu, "read", self.read)
        monkeypatch.setattr(nvtx, "annotate", self.annotate)
        monkeypatch.setattr(replay, "replay", self.replay)
        monkeypatch.setattr(recorded, "provenance", lambda: {"machine": "a GPU", "date": "2026-01-01"})

    @contextlib.contextmanager
    def annotate(self, name, domain):
        self.stack.append(f"{domain}@{name}")
        yield
        self.stack.pop()

    def replay(self, record, repeats):
        for _ in range(repeats * len(record.launches)):
            metrics = {SECTORS: float(len(self.seen))}
            self.seen.append(ncu.Reading("kernel", ranges=(*self.stack, ncu.RANGE), metrics=metrics))

    def read(self, target, metrics, **options):
        assert runs.main(target[-1:]) == 0
        return ncu.Report(tuple(self.seen[self.lost :]), {}, None)


SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"


@pytest.fixture
def of_ncu(monkeypatch):
    return OfNcu(monkeypatch)


def test_counters_of_several_problems_are_taken_in_one_run(of_ncu, folder):
    found = [recordings.Recording("counters", name, "missing") for name in ("add", "rmsnorm")]
    assert [how for _, how in recordings.renew(found, folder)] == ["taken.", "taken."]
    assert all(one.state == "current" for one in recordings.survey(["add", "rmsnorm"], ["counters"]))
    launches = 0
    for name in ("add", "rmsnorm"):
        (file,) = recorded.files("counters", name)
        for entry in json.loads(file.read_text())["entries"]:
            count = 2 if "two_kernels" in entry["case"] else 1
            assert len(entry["code"]) == count
            turns = [launches + turn * count for turn in range(fidelity.REPEATS)]
            assert entry["readings"] == {SECTORS: [sum(range(turn, turn + count)) for turn in turns]}
            launches += count * fidelity.REPEATS
    assert launches == len(of_ncu.seen)


def test_a_kernel_that_fails_is_named_and_the_others_are_kept(of_ncu, folder, monkeypatch):
    whole = of_ncu.replay

    def failing(record, repeats):
        if record.launches[0].entry == "add_vectorized":
            whole(record, 1)
            raise LabkitError("The kernel strayed.\nMore of it.")
        whole(record, repeats)

    monkeypatch.setattr(replay, "replay", failing)
    said = runs.record("counters", ["add"], folder)
    assert said["add"].startswith("add/vectorized (CUDA C++)") and said["add"].endswith(": The kernel strayed.")
    (file,) = recorded.files("counters", "add")
    cases = [entry["case"] for entry in json.loads(file.read_text())["entries"]]
    assert cases and not any("vectorized (CUDA C++)" in case for case in cases)


def test_what_there_was_no_time_for_is_not_written(of_ncu, folder):
    assert runs.record("counters", ["add"], folder, seconds=0.0) == {"add": "No time was left."}
    assert not recorded.files("counters", "add")


def test_a_kernel_whose_launches_ncu_lost_is_named_and_the_others_are_kept(of_ncu, folder):
    of_ncu.lost = 1
    said = runs.record("counters", ["add", "rmsnorm"], folder)
    assert said["add"].endswith("saw 2 launches where 3 ran; record again.") and not said["rmsnorm"]
    lost = said["add"].partition(": ")[0]
    (file,) = recorded.files("counters", "add")
    cases = [entry["case"] for entry in json.loads(file.read_text())["entries"]]
    assert cases and lost not in cases
    assert recordings.survey(["rmsnorm"], ["counters"])[0].state == "current"


def test_without_ncu_all_say_so(folder, monkeypatch):
    def absent():
        raise LabkitError("There is no ncu.")

    monkeypatch.setattr(ncu, "usable", absent)
    found = [recordings.Recording(kind, "add", "missing") for kind in ("profiles", "counters")]
    assert [how for _, how in recordings.renew(found, folder)] == ["failed: There is no ncu."] * 2


@pytest.mark.gpu
@pytest.mark.skipif(not lk.kernels.gpu.available(), reason="there is no NVIDIA GPU here")
def test_profiles_and_counters_on_a_gpu(folder):
    for kind in ("profiles", "counters"):
        assert runs.record(kind, ["vector_add"], folder) == {"vector_add": ""}
        assert recordings.survey(["vector_add"], [kind])[0].state == "current"
    # Both have been read of the same kernel, which touches each sector of A, B and C once.
    (profiles,), (counters,) = (recorded.files(kind, "vector_add") for kind in ("profiles", "counters"))
    for file, values in ((profiles, "metrics"), (counters, "readings")):
        entries = {e.get("label") or e["case"].partition(" {")[0]: e for e in json.loads(file.read_text())["entries"]}
        read = entries["vector_add/grid (CUDA C++) (solution)"][values][SECTORS]
        assert read if values == "metrics" else min(read) == max(read) > 0


def test_the_command(capsys, tmp_path):
    assert cli.main(["recordings", "gemm", "--kind", "counters"]) == 0
    assert capsys.readouterr().out.split() == ["counters", "gemm", "current"]
    assert cli.main(["recordings", "gemm", "--minutes", "3"]) == 1
    assert "give both, or neither" in capsys.readouterr().err
    if not lk.kernels.gpu.available():
        assert cli.main(["recordings", "gemm", "--renew", str(tmp_path)]) == 1
        assert "There is no GPU here to record on" in capsys.readouterr().err
