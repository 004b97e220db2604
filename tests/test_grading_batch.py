"""Grades of whole submissions and classes: full marks for honest work, and nothing lost at kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from labkit import problems
from labkit.errors import LabkitError
from labkit.grading import batch, gates, grade, results, sandbox, scheme
from labkit.grading.submissions import Source
from labkit.notebook.build import masters, notebook
from labkit.problems._metrics import BUSIEST

ROOT = Path(__file__).resolve().parents[1]
MASTER = ROOT / "solutions/02_gemm/01_naive_to_tiled.py"
LAB = "02_gemm/01_naive_to_tiled"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sandbox.best() != "bubblewrap", reason="needs bubblewrap"),
]


@pytest.fixture(scope="module")
def table():
    return scheme.load(ROOT, [LAB])


def _book(solved: bool = True, **sources: str):
    """The notebook with other sources for some cells: `gemm__coalesced__numba` is the cell gemm--coalesced--numba."""
    book = notebook(MASTER, solved=solved)
    for cell in book.cells:
        cell.source = sources.get(cell.id.replace("--", "__").replace("-", "_"), cell.source)
    return book


def _kernel(name: str = "gemm--coalesced--numba") -> str:
    return next(cell.source for cell in _book().cells if cell.id == name)


def _write(path: Path, book) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(book, path)
    return path


def _lasting(result: dict) -> dict:
    """A result without what differs from run to run."""
    return {k: v for k, v in result.items() if k not in ("started", "seconds", "machine")}


def _item(result: dict, ident: str) -> dict:
    return next(item for item in result["items"] if item["id"] == ident)


# --- one submission ----------------------------------------------------------------------------------------


def test_solutions_get_full_marks_and_the_result_has_its_form(tmp_path, table):
    result = grade.grade_one(_write(tmp_path / "ada.ipynb", _book()), tmp_path / "out", root=ROOT, scheme=table)
    results.check_schema(result)
    assert result == json.loads(results.path(tmp_path / "out", "ada").read_text())
    assert result["points"] + result["pending"] == result["possible"] == 26
    assert {i["state"] for i in result["items"] if i["kind"] != "explain"} == {"pass"}
    assert not result["faults"] and not result["review"]
    counted = _item(result, "gemm--coalesced--numba")["counters"]
    sectors = counted["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"]
    assert sectors["yours"] == sectors["optimised"] < sectors["unoptimised"]


@pytest.mark.slow
@pytest.mark.parametrize("master", masters(ROOT), ids=lambda path: path.stem)
def test_all_solutions_get_full_marks(tmp_path, master):
    table = scheme.load(ROOT, [f"{master.parent.name}/{master.stem}"])
    if not table.items:
        pytest.skip("nothing is graded here")
    path = _write(tmp_path / "a.ipynb", notebook(master, solved=True))
    result = grade.grade_one(path, tmp_path / "out", root=ROOT, scheme=table)
    lost = [i for i in result["items"] if i["state"] not in ("pass", "pending")]
    assert not lost and result["points"] + result["pending"] == pytest.approx(result["possible"])


@pytest.mark.parametrize("problem", [n for n in problems.names() if any(s.gates for s in problems.get(n).ladder)])
def test_every_gate_tells_a_rung_from_the_one_below(tmp_path, problem):
    """In each language: the solution passes it, and the rung below does not."""
    with grade.Grader(ROOT, tmp_path) as grader:
        for step in problems.get(problem).ladder:
            for language in step.languages if step.gates else ():
                if scheme.below(problem, step.name, language) is None:
                    continue  # the scheme gives it no gates
                item = scheme.Item("a", "kernel", 1.0, "", problem, step.name, language, "", (), gates=step.gates)
                optimised, unoptimised = grader.references.of(item, language)
                for gate in step.gates:
                    assert gates.passes(gate, optimised, optimised, unoptimised), (step.name, language, gate)
                    assert not gates.passes(gate, unoptimised, optimised, unoptimised), (step.name, language, gate)
                assert not gates.excesses(optimised, optimised, unoptimised)


def test_a_cost_beyond_both_references_is_told_and_a_trifle_is_none():
    """Partial results of smaller pieces are many times the stores, and nothing beside the loads."""
    names = gates.needed((BUSIEST,))
    ours = dict.fromkeys(names, 0.0)
    ours |= {gates.LOAD_SECTORS: 66496.0, gates.STORE_SECTORS: 352.0, gates.INSTRUCTIONS: 9e3}
    assert not gates.excesses(ours | {gates.STORE_SECTORS: 1216.0}, ours, ours)
    (said,) = gates.excesses(ours | {gates.STORE_SECTORS: 8000.0}, ours, ours)
    assert said == "It takes 8,000 sectors of global stores; of our two kernels, none takes more than 352."
    (said,) = gates.excesses(ours | {gates.INSTRUCTIONS: 20e3}, ours, ours)
    assert "20,000 instructions of warps" in said and "9,000" in said


def test_wrong_kernels_lose_points_for_the_right_reason(tmp_path, table):
    naive = _kernel().replace("blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y", "ROW").replace(
        "blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x", "blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y"
    ).replace("ROW", "blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x")  # fmt: skip
    naive = naive.replace("grid = ((N + 15) // 16, (M + 15) // 16)", "grid = ((M + 15) // 16, (N + 15) // 16)")
    cases = {
        "uncoalesced": (naive, "pass", "fail", "sectors"),
        "unguarded": (_kernel().replace("row < M and col < N", "True"), "fail", "fail", "outside B"),
        "constant": (_kernel().replace("acc += A[row, k] * B[k, col]", "acc = float32(1)"), "fail", "fail", "got 1"),
        "loop": ("%%kernel gemm/coalesced\nwhile True: pass", "timeout", "timeout", "did not end"),
        "nothing": ("%%kernel gemm/coalesced\ndef launch(C, A, B):\n    pass", "fail", "fail", "no kernel"),
        "syntax": ("%%kernel gemm/coalesced\ndef launch(C, A, B:\n    pass", "fail", "fail", "coalesced.py:2"),
        "looks": (
            "%%kernel gemm/coalesced\ndef launch(C, A, B):\n    C.copy_(A @ B)", "fail", "fail", "reaches the values"
        ),
    }
    record, grade.RECORD_S = grade.RECORD_S, 20.0
    try:
        one = scheme.Scheme(tuple(i for i in table.items if i.id == "gemm--coalesced--numba"))
        with grade.Grader(ROOT, tmp_path / "out", scheme=one) as grader:
            for name, (source, correct, structure, words) in cases.items():
                path = _write(tmp_path / f"{name}.ipynb", _book(gemm__coalesced__numba=source))
                parts = {p["name"]: p for p in grader.grade(path)["items"][0]["parts"]}
                assert (parts["correct"]["state"], parts["structure"]["state"]) == (correct, structure), name
                said = parts["structure" if correct == "pass" else "correct"]["message"]
                assert words in said, (name, said)
    finally:
        grade.RECORD_S = record


def test_cells_that_were_changed_are_graded_as_far_as_possible(tmp_path, table):
    fine, other = _kernel(), _kernel().replace("acc += ", "acc -= ")
    kernel = scheme.Scheme(tuple(i for i in table.items if i.id == "gemm--coalesced--numba"))
    stub = next(c for c in _book(solved=False).cells if c.id == "gemm--coalesced--numba")

    def result(name: str, change) -> dict:
        book = _book()
        change(book, next(c for c in book.cells if c.id == "gemm--coalesced--numba"))
        return grade.grade_one(_write(tmp_path / f"{name}.ipynb", book), tmp_path / "out", root=ROOT, scheme=kernel)

    def duplicated(book, cell):
        book.cells.insert(0, nbformat.v4.new_code_cell(stub.source, id="x", metadata=dict(cell.metadata)))
        book.cells.append(nbformat.v4.new_code_cell(other, id="y", metadata=dict(cell.metadata)))

    def retyped(book, cell):
        cell.cell_type = "markdown"
        del cell["outputs"], cell["execution_count"]

    def stripped(book, cell):
        cell.id, cell.metadata = "abc", {}

    def deleted(book, cell):
        book.cells = [c for c in book.cells if not c.id.startswith("gemm--coalesced--")]

    def in_cuda(book, cell):
        cell.source = stub.source

    for change, points, words in (
        (duplicated, 4, "stands in 2 cells"), (retyped, 4, "of the type markdown"), (stripped, 4, "its id is gone"),
        (deleted, 0, "no cell for"), (in_cuda, 4, None),
    ):  # fmt: skip
        found = result(change.__name__, change)
        assert found["points"] == points, (change.__name__, found["items"])
        assert words is None or any(words in fault for fault in found["faults"]), found["faults"]
    assert fine != other


def test_a_notebook_that_is_not_there_is_named_once(tmp_path):
    labs = [LAB, "01_gpu_basics/profiling"]
    path = _write(tmp_path / "a.ipynb", notebook(ROOT / "solutions/01_gpu_basics/profiling.py"))
    result = grade.grade_one(path, tmp_path / "out", root=ROOT, scheme=scheme.load(ROOT, labs))
    assert result["faults"] == [f"Nothing of the notebook {LAB} is there."] and result["points"] == 0


# --- a class ---------------------------------------------------------------------------------------------------


def _class(folder: Path, count: int, **sources: str) -> Path:
    for n in range(count):
        _write(folder / f"student{n}.ipynb", _book(solved=False, **sources))
    return folder


ANSWER = {"gemm__q_flops": 'lk.answer("gemm/flops", 2 * 256**3)'}


def test_a_class_is_graded_once_and_a_changed_submission_again(tmp_path):
    folder, out = _class(tmp_path / "in", 4, **ANSWER), tmp_path / "out"
    (folder / "broken.ipynb").write_text("{")
    lines: list[str] = []
    found = batch.grade_all(folder, out, root=ROOT, jobs=2, labs=[LAB], progress=lines.append)
    assert [(r["state"], r["points"]) for r in found] == [("ungradable", 0)] + 4 * [("graded", 1)]
    assert len((out / "summary.csv").read_text().splitlines()) == 6 and "5/5" in lines[-1]
    _write(folder / "student1.ipynb", _book(solved=False, **ANSWER, gemm__q_compulsory_bytes="1 + 1"))
    before = {p.name: p.stat().st_mtime_ns for p in results.folder(out).iterdir()}
    batch.grade_all(folder, out, root=ROOT, jobs=1, labs=[LAB])
    after = {p.name: p.stat().st_mtime_ns for p in results.folder(out).iterdir()}
    assert [name for name in after if after[name] != before[name]] == ["student1.json"]
    with batch._alone(out), pytest.raises(LabkitError, match="Another labkit grade"):
        batch.grade_all(folder, out, root=ROOT, labs=[LAB])


def test_a_killed_run_loses_nothing_and_leaves_no_process(tmp_path):
    folder, out = _class(tmp_path / "in", 3, gemm__coalesced__numba=_kernel()), tmp_path / "out"
    command = [sys.executable, "-m", "labkit", "grade", str(folder), "--out", str(out), "--jobs", "1", "--labs", LAB]
    run = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not list(results.folder(out).glob("*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    family = sandbox._descendants(run.pid)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    done = {p.name: p.read_bytes() for p in results.folder(out).glob("*.json")}
    assert 1 <= len(done) < 3 and all(json.loads(text)["state"] == "graded" for text in done.values())
    for _ in range(600):
        if not any(Path(f"/proc/{pid}").exists() for pid in family):
            break
        time.sleep(0.1)
    assert not [pid for pid in family if Path(f"/proc/{pid}").exists()]
    found = batch.grade_all(folder, out, root=ROOT, jobs=2, labs=[LAB])
    assert [(r["state"], r["points"]) for r in found] == 3 * [("graded", 4)]
    assert {name: (results.folder(out) / name).read_bytes() for name in done} == done


class Killer(Source):
    """Ends the process that it is sent to."""

    def __reduce__(self):
        return os._exit, (9,)


def test_a_submission_that_kills_its_graders_is_put_aside_and_the_others_are_graded(tmp_path, table):
    folder = _class(tmp_path / "in", 3, **ANSWER)
    sources = [Source(p.stem, p) for p in sorted(folder.iterdir())]
    sources[1] = Killer(sources[1].id, sources[1].path)
    plan = batch.Plan(ROOT, tmp_path / "out", table, b"s" * 32, "bubblewrap")
    found = {r["submission"]: r for r in batch._local(plan, sources, 1)}
    assert [found[s.id]["state"] for s in sources] == ["graded", "infrastructure_error", "graded"]
    assert "put aside" in found[sources[1].id]["reason"]
    results.check_schema(found[sources[1].id])


def test_what_was_begun_thrice_and_never_ended_is_not_begun_again(tmp_path, table):
    path = _write(tmp_path / "a.ipynb", _book(solved=False, **ANSWER))
    plan, source = batch.Plan(ROOT, tmp_path / "out", table, b"s" * 32, "bubblewrap"), Source("a", path)
    (tmp_path / "out").mkdir()
    for _ in range(batch.MOST_STARTS):
        batch._started(plan, source)
    assert batch.grade_job(plan, source)["state"] == "infrastructure_error"
    batch._attempts(plan, source).unlink()
    assert batch.grade_job(plan, source)["state"] == "graded" and not batch._starts(plan, source)


def test_dask_gives_the_same_results(tmp_path):
    distributed = pytest.importorskip("distributed")
    folder = _class(tmp_path / "in", 2, **ANSWER, gemm__coalesced__numba=_kernel())
    (tmp_path / "seed").write_text("spring")
    how = {"root": ROOT, "labs": [LAB], "seed_file": tmp_path / "seed"}
    local = batch.grade_all(folder, tmp_path / "local", jobs=1, **how)
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        spread = batch.grade_all(folder, tmp_path / "dask", scheduler=cluster.scheduler_address, **how)
    assert [_lasting(r) for r in spread] == [_lasting(r) for r in local]
    assert {r["points"] for r in local} == {5}
    with pytest.raises(LabkitError, match="No dask scheduler"):
        batch.grade_all(folder, tmp_path / "none", scheduler="tcp://127.0.0.1:9", **how)


# --- time --------------------------------------------------------------------------------------------------------


def test_time_is_pending_without_a_gpu_and_filled_in_later_with_nothing_else_changed(tmp_path, monkeypatch, table):
    items = tuple(
        scheme.dataclasses.replace(i, timed=True) for i in table.items if i.id == "gemm--coalesced--numba"
    )
    timed = scheme.Scheme(items)
    path = _write(tmp_path / "a.ipynb", _book())
    with grade.Grader(ROOT, tmp_path / "out", scheme=timed) as grader:
        before = grader.grade(path)
        assert (before["points"], before["pending"]) == (pytest.approx(3.2), pytest.approx(0.8))
        assert grade.unfinished(before) == ["gemm--coalesced--numba"]
        seen = []

        def measured(runner, trial, reference, seed, part):
            seen.append((trial.source, reference))
            return grade.banded(part["possible"], [2.0, 2.0], [1.3, 1.3])

        monkeypatch.setattr(grade, "timed", measured)
        after = grader.fill(Source("a", path))
        (theirs,) = grader.references._recorded
        assert theirs.rung == "coalesced" and seen == [(trial_of(before), grader.references._recorded[theirs])]
        assert b'"shape": [4096, 4096]' in seen[0][1]  # the reference's launches at the shape that is timed
        assert after["points"] == pytest.approx(3.2 + 0.75 * 0.8) and after["pending"] == 0
        same = [p for p in after["items"][0]["parts"] if p["name"] != "time"]
        assert same == [p for p in before["items"][0]["parts"] if p["name"] != "time"]


def trial_of(result: dict) -> str:
    """The kernel that was graded."""
    return result["items"][0]["parts"][0]["details"]["text"]


def test_time_gives_points_in_bands():
    for reference, points in ((2.0, 1), (0.8, 1), (0.79, 0.75), (0.5, 0.5), (0.2, 0.25), (0.1, 0)):
        assert grade.banded(1.0, [1.0], [reference])["points"] == points
