"""Untrusted notebooks, zips and answers: read as far as they go, and never executed."""

from __future__ import annotations

import json
import os
import stat
import time
import zipfile
from pathlib import Path

import nbformat
import pytest

from labkit.errors import LabkitError
from labkit.grading import results, scheme, submissions, submit
from labkit.grading.answers import Unreadable, assigned, given
from labkit.grading.gates import gate
from labkit.grading.grade import Grading, hidden_shapes, notebooks_of, seed_of
from labkit.grading.review import findings
from labkit.notebook.build import masters, notebook
from labkit.problems import get, names

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def book():
    return json.loads(json.dumps(notebook(ROOT / "solutions/02_gemm/01_naive_to_tiled.py", solved=True)))


@pytest.fixture(scope="module")
def table():
    return scheme.load(ROOT, ["02_gemm/01_naive_to_tiled"])


def _write(folder: Path, data: str | bytes, name: str = "a.ipynb") -> Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


# --- notebooks -------------------------------------------------------------------------------------------


def test_a_plain_notebook_has_all_its_cells(tmp_path, book):
    found = submissions.read(_write(tmp_path, json.dumps(book)))
    assert [c.source for c in found.cells] == [c["source"] for c in book["cells"]]
    assert not found.faults and not found.ungradable


def test_of_a_truncated_notebook_the_cells_before_the_break_are_read(tmp_path, book):
    text = json.dumps(book, indent=1)
    found = submissions.read(_write(tmp_path, text[: text.index("smem_tile = gemm")]))
    assert 20 < len(found.cells) < len(book["cells"])
    assert "is broken at line" in found.faults[0] and not found.ungradable


@pytest.mark.parametrize(
    "data, words",
    [
        (b"", "is not JSON"),
        (b"%PDF-1.4", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"cells": []}', "it has no cells"),
        (b'"hello"', "is no notebook"),
        (b'{"cells": [' + b'{"a":' * 5000, "is not JSON"),
    ],
)
def test_what_is_no_notebook_is_ungradable_with_a_sentence(tmp_path, data, words):
    assert words in submissions.read(_write(tmp_path, data)).ungradable


def test_other_encodings_are_read_and_said(tmp_path, book):
    text = json.dumps(book, ensure_ascii=False)
    for data, fault in (
        (text.encode("utf-8-sig"), False),
        (text.encode("utf-16"), True),
        (text.replace("matrix", "m\xe4trix").encode("latin-1", "replace"), True),
    ):
        found = submissions.read(_write(tmp_path, data))
        assert len(found.cells) == len(book["cells"])
        assert bool(found.faults) is fault


def test_large_outputs_are_passed_over_quickly_and_without_their_memory(tmp_path, book):
    import tracemalloc

    fat = json.loads(json.dumps(book))
    code = [c for c in fat["cells"] if c["cell_type"] == "code"]
    code[0]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": ['"]}{[\\\n' * 1000] * 1000}]
    code[1]["outputs"] = [{"data": {"image/png": "A" * 40_000_000}, "output_type": "display_data"}]
    text = json.dumps(fat)
    assert len(text) > 50_000_000
    tracemalloc.start()
    cells, fault = submissions.lean(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert fault is None and len(cells) == len(book["cells"]) and not any("outputs" in cell for cell in cells)
    assert peak < 20_000_000


def test_odd_cells_are_left_out_and_said(tmp_path):
    cells = [7, {"cell_type": "code"}, {"cell_type": 3, "source": ""}, {"cell_type": "code", "source": ["a", 1, "b"]},
             {"cell_type": "code", "source": "x" * (submissions.MOST_SOURCE + 1)},
             {"cell_type": "code", "source": "\ud800", "id": 5, "metadata": []}]  # fmt: skip
    found = submissions.read(_write(tmp_path, json.dumps({"cells": cells})))
    assert [c.source for c in found.cells] == ["", "ab", "?"]
    assert len(found.faults) == 3


# --- where submissions are ----------------------------------------------------------------------------------


def test_a_folder_holds_one_submission_per_entry(tmp_path, book):
    text = json.dumps(book)
    _write(tmp_path, text, "alice.ipynb")
    (tmp_path / "bob").mkdir()
    _write(tmp_path / "bob", text)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bob" / ".ipynb_checkpoints").mkdir()
    _write(tmp_path / "bob" / ".ipynb_checkpoints", text)
    (tmp_path / "link.ipynb").symlink_to(tmp_path / "alice.ipynb")
    _write(tmp_path, text, "\u00e4 b;c.ipynb")
    found = submissions.find(tmp_path)
    assert [s.id for s in found][:2] == ["alice", "bob"] and len(found) == 3
    assert all(c.isalnum() or c in "._-~" for c in found[2].id)
    assert len(submissions.read(found[1]).cells) == len(book["cells"])
    with pytest.raises(LabkitError, match="holds no submission"):
        submissions.find(tmp_path / "empty")


def test_the_zips_of_moodle_and_canvas_are_taken_apart(tmp_path, book):
    text = json.dumps(book)
    for zipped, ids in (
        (["Ada Byron_123_assignsubmission_file_/a.ipynb", "Bo_124_assignsubmission_file_/a.ipynb"], 2),
        (["byronada_11_22_a.ipynb", "byronada_11_23_b.ipynb", "bo_LATE_12_24_a.ipynb"], 2),
    ):
        with zipfile.ZipFile(tmp_path / "class.zip", "w") as archive:
            for name in zipped:
                archive.writestr(name, text)
        found = submissions.find(tmp_path / "class.zip")
        assert len(found) == ids
        assert sum(len(submissions.read(s).cells) for s in found) == len(zipped) * len(book["cells"])


def test_what_points_out_of_a_zip_or_is_a_link_is_left_out(tmp_path, book):
    path = tmp_path / "s.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../evil.ipynb", json.dumps(book))
        archive.writestr("/abs.ipynb", json.dumps(book))
        link = zipfile.ZipInfo("link.ipynb")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("fine.ipynb", json.dumps(book))
    found = submissions.read(path)
    assert {c.notebook for c in found.cells} == {"fine.ipynb"} and len(found.faults) == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.zip"]


def test_a_link_in_a_folder_is_left_out(tmp_path, book):
    outside = _write(tmp_path, json.dumps(book), "outside.ipynb")
    (tmp_path / "bob").mkdir()
    (tmp_path / "bob" / "mine.ipynb").symlink_to(outside)
    found = submissions.read(tmp_path / "bob")
    assert found.ungradable and "link" in found.faults[0]


def test_a_zip_bomb_is_refused_by_what_it_unpacks_to(tmp_path, monkeypatch):
    monkeypatch.setattr(submissions, "MOST_NOTEBOOK", 1 << 20)
    with zipfile.ZipFile(tmp_path / "s.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.ipynb", b" " * (8 << 20))
    assert "more than" in submissions.read(tmp_path / "s.zip").ungradable


def test_the_digest_tells_another_hand_in(tmp_path, book):
    path = _write(tmp_path, json.dumps(book))
    first = submissions.digest(submissions.source_of(path))
    os.utime(path, (1, 1))
    assert submissions.digest(submissions.source_of(path)) == first
    path.write_text(path.read_text() + " ")
    assert submissions.digest(submissions.source_of(path)) != first


# --- what is graded -------------------------------------------------------------------------------------------


def test_the_table_of_points_is_the_masters(table):
    assert table.possible == 26
    kernels = {i.id: i for i in table.items if i.kind == "kernel"}
    assert set(kernels) == {"gemm--coalesced--numba", "gemm--smem_tile--numba"}
    coalesced = kernels["gemm--coalesced--numba"]
    assert coalesced.points == 4 and [c.language for c in coalesced.cells] == ["numba", "cuda"]
    assert coalesced.shares == pytest.approx({"correct": 3.2, "structure": 0.8})


def test_every_share_adds_up_and_every_gate_is_a_metric():
    from labkit.profiling.metrics import BY_NAME

    for item in scheme.load(ROOT).items:
        if item.kind == "kernel":
            assert sum(item.shares.values()) == pytest.approx(item.points)
            assert item.shares["correct"] >= 0.6 * item.points - 1e-9
            assert all(name in BY_NAME for name in item.gates)


def test_points_may_be_given_by_item_or_by_check_cell(tmp_path):
    labs = ["02_gemm/01_naive_to_tiled"]
    (tmp_path / "p.csv").write_text("id,points\ngemm--coalesced--check,10\ngemm--q-flops,0\n")
    changed = scheme.load(ROOT, labs, scheme.read_points(tmp_path / "p.csv"))
    assert changed.possible == 26 + 6 - 1 and changed.hash != scheme.load(ROOT, labs).hash
    assert scheme.cell_points(changed)["gemm--coalesced--check"] == 10
    with pytest.raises(LabkitError, match="no question"):
        scheme.load(ROOT, labs, {"gemm--nothing": 1})
    with pytest.raises(LabkitError, match="no lab or notebook"):
        scheme.load(ROOT, ["09_none"])
    for text in ("a,b\n", "a,-1\n", "a\n", "a,nan\n"):
        (tmp_path / "p.csv").write_text(text)
        with pytest.raises(LabkitError):
            scheme.read_points(tmp_path / "p.csv")


def test_a_rung_without_one_below_has_no_gates():
    assert scheme.below("gemm", "coalesced", "numba") == "naive" and scheme.below("gemm", "naive", "numba") is None
    assert scheme.below("precision", "half2", "cuda") == "fp16"
    for item in scheme.load(ROOT).items:
        assert not item.gates or all(scheme.below(item.problem, item.rung, c.language) for c in item.cells)


def test_notebooks_are_known_by_ids_magics_or_keys(tmp_path, book, table):
    stripped = [{k: v for k, v in c.items() if k not in ("id", "metadata")} for c in book["cells"]]
    found = submissions.read(_write(tmp_path, json.dumps({"cells": stripped})))
    assert notebooks_of(found, table) == ["02_gemm/01_naive_to_tiled"]
    other = submissions.read(_write(tmp_path, '{"cells": [{"cell_type": "code", "source": "1"}]}'))
    assert notebooks_of(other, table) == []


# --- answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, value",
    [("2 * 256**3", 2 * 256**3), ("-3 / 2", -1.5), ("' Memory '", " Memory "), ("...", None), ("None", None),
     ("a // 2", 5), ("sum(k * k for k in range(5) if k > 1)", 29), ("math.sqrt(16)", 4), ("max(1, 2.5)", 2.5),
     ("known", 7.0), ("1 << 10", 1024)],
)  # fmt: skip
def test_answers_are_numbers_words_and_arithmetic(text, value):
    cell = f"%time\nimport math\na = 10\n!ls\npredicted = lk.answer('g/k', {text})\npredicted"
    assert given(cell, "g/k", {"known": 7.0}) == value


def test_names_of_the_notebook_stand_for_its_numbers_unless_the_student_gives_them_others():
    shown = "rate = table['rate']\n"  # what the notebook itself does is no arithmetic
    known = {"rate": 4.0}
    for above, value in (("", 8.0), (shown, 8.0), ("rate = 1 + 2\n", 6.0), ("rate = 'fast'\n", 8.0)):
        assert given(f"{above}lk.answer('g/k', 2 * rate)", "g/k", known=known) == value
        assert given("lk.answer('g/k', 2 * rate)", "g/k", assigned(above), known) == value
    with pytest.raises(Unreadable):
        given("speed = f()\nlk.answer('g/k', speed)", "g/k", known=known)


@pytest.mark.parametrize("master", masters(ROOT), ids=lambda path: path.stem)
def test_every_answer_of_the_masters_can_be_read_and_is_right(tmp_path, master):
    """So that a new question needs nothing of the grader's, and none is asked whose answer it cannot read."""
    whole = scheme.load(ROOT, [f"{master.parent.name}/{master.stem}"])
    table = scheme.Scheme(tuple(item for item in whole.items if item.kind == "answer"))
    path = _write(tmp_path, nbformat.writes(notebook(master, solved=True)))
    found = Grading(submissions.read(path), table, seed=None, references=None)
    assert [i for i in found.items(None) if i["state"] != "pass"] == [] and not found.faults


@pytest.mark.parametrize(
    "text",
    ["__import__('os').system('touch /tmp/x')", "open('/etc/passwd').read()", "(lambda: 1)()", "9**9**9**9",
     "1 << 10**9", "1 / 0", "1e999", "True", "1j", "[1]", "b", "f'{1}'", "sum(range(10**12))", "(-1) ** 0.5",
     "float('nan')", "sum(sum(range(90000)) for i in range(90000))", "recursive", "globals()", "x.y.z",
     "(10**4000) * 10**4000"],
)  # fmt: skip
def test_anything_else_is_no_answer_and_costs_no_time(text):
    started = time.perf_counter()
    with pytest.raises(Unreadable):
        given(f"recursive = recursive + 1\nlk.answer('g/k', {text})", "g/k")
    assert time.perf_counter() - started < 5


def test_cells_that_are_no_python_are_said():
    for cell in ("lk.answer('g/k', ", "x" * 200_000, "lk.answer('g/other', 1)", "(" * 5000):
        with pytest.raises(Unreadable):
            given(cell, "g/k")


# --- results ---------------------------------------------------------------------------------------------------


def _result(**changes):
    part = results.part("answer", 2.0, "pass", "8.5 is right.")
    return {
        "schema_version": 1, "submission": "=cmd", "state": "graded", "reason": None, "sandbox": "bubblewrap",
        "scheme": "", "points": 2.0, "possible": 2.0, "pending": 0.0, "faults": [], "review": [],
        "items": [results.item("g--q", "answer", [part])], "started": "", "seconds": 0.1, "labkit": "0", "machine": {},
        **changes,
    }  # fmt: skip


def test_a_result_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    results.write(tmp_path, _result(submission="a"))
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError):
        results.write(tmp_path, _result(submission="a", points=1.0))
    assert results.read(results.path(tmp_path, "a"))["points"] == 2.0
    assert [p.name for p in results.folder(tmp_path).iterdir()] == ["a.json"]
    with pytest.raises(ValueError):
        results.write(tmp_path, _result(points=float("nan")))


def test_items_add_up_and_the_schema_is_checked():
    parts = [results.part("correct", 3, "pass", ""), results.part("time", 1, "pending", "")]
    item = results.item("k", "kernel", parts)
    assert (item["points"], item["possible"], item["state"]) == (3, 4, "pending")
    assert results.totals([item]) == {"points": 3, "possible": 4, "pending": 1}
    results.check_schema(_result())
    wrongs = ({"state": "fine"}, {"points": float("nan")}, {"points": True}, {"faults": [1]}, {"schema_version": 2})
    for wrong in wrongs:
        with pytest.raises(ValueError):
            results.check_schema(_result(**wrong))


def test_no_spreadsheet_takes_a_name_for_a_formula():
    assert "\n'=cmd,graded,2.0,2.0" in results.summary([_result()])


def test_a_gate_is_nearer_to_the_optimised_kernel_or_better():
    assert gate(2, 2, 8.5) and gate(1, 2, 8.5) and gate(4.1, 2, 8.5) and not gate(4.2, 2, 8.5)
    assert gate(16, 16, 1) and gate(64, 16, 1) and not gate(3.9, 16, 1)
    assert gate(0, 0, 1000) and not gate(600, 0, 1000)


# --- seeds and shapes -----------------------------------------------------------------------------------------


def test_the_seed_is_kept_readable_to_its_owner_only(tmp_path):
    (tmp_path / "secret").write_text("spring")
    seed = seed_of(tmp_path / "out", tmp_path / "secret")
    assert len(seed) == 32 and seed_of(tmp_path / "out") == seed
    assert stat.S_IMODE((tmp_path / "out" / ".seed").stat().st_mode) == 0o600
    (tmp_path / "secret").write_text("autumn")
    with pytest.raises(LabkitError, match="another seed"):
        seed_of(tmp_path / "out", tmp_path / "secret")
    assert seed_of(tmp_path / "other") != seed


@pytest.mark.parametrize("name", names())
def test_hidden_shapes_are_new_legal_no_larger_and_drawn_from_the_seed(name):
    problem = get(name)
    rung = problem.ladder[0].name
    known = [problem.dims_of(shape) for shape in problem.shapes]
    found = hidden_shapes(problem, b"one", rung)
    assert found == hidden_shapes(problem, b"one", rung)
    for shape in found:
        assert problem.dims_of(shape) not in known
        assert problem.flops(shape) <= max(problem.flops(s) + problem.bytes(s) for s in known)
        exact = [t.double() if t.is_floating_point() else t for t in problem.make_inputs(shape, 1).values()]
        problem.reference(*exact, **problem.options_of(shape))
    if len(found) == 3:
        assert found != hidden_shapes(problem, b"two", rung)


# --- static findings ------------------------------------------------------------------------------------------


def test_findings_name_what_a_person_may_want_to_see():
    said = findings("import torch\nimport os\n\ndef launch(C, A, B):\n    C[:] = A @ B\n    exec('1')\n", "numba")
    assert {what for what, _ in said} == {"uses the operating system", "multiplies matrices on the host",
                                          "executes a text"}  # fmt: skip
    assert findings('#include "/etc/passwd"\n', "cuda") == [("includes a file by its path", 1)]


def test_no_solution_of_ours_is_found_suspicious():
    said = {}
    for master in masters(ROOT):
        for cell in notebook(master, solved=True).cells:
            if cell.source.startswith("%%kernel"):
                language = "cuda" if "--cuda" in cell.source.split("\n")[0] else "numba"
                if found := [f for f in findings(cell.source, language) if f[0] != "holds PTX"]:
                    said[cell.id] = found
    assert len(said) < 5, said


# --- handing in -----------------------------------------------------------------------------------------------


def test_what_is_packed_is_read_again(tmp_path, book):
    path = _write(tmp_path, json.dumps(book), "01_naive_to_tiled.ipynb")
    packed = submit.pack([path], tmp_path / "s.zip")
    (source,) = submissions.find(packed.file)
    found = submissions.read(source)
    assert [c.source for c in found.cells] == [c["source"] for c in book["cells"]] and not found.faults
    assert any("was never run here" in note for note in packed.notes)
    assert not any("is not done yet" in note for note in packed.notes)
    with zipfile.ZipFile(packed.file) as archive:
        manifest = json.loads(archive.read(submissions.MANIFEST))
    assert set(manifest["notebooks"]["01_naive_to_tiled.ipynb"]["cells"]) >= {"gemm--q-flops", "gemm--coalesced--numba"}


def test_packing_names_stubs_and_refuses_what_is_no_notebook(tmp_path):
    stub = nbformat.writes(notebook(ROOT / "solutions/02_gemm/01_naive_to_tiled.py"))
    packed = submit.pack([_write(tmp_path, stub)], tmp_path / "s.zip")
    for ident in ("gemm--coalesced--numba", "gemm--q-flops", "gemm--naive--explain"):
        assert any(f"{ident} is not done yet" in note for note in packed.notes), ident
    for wrong in ([], [tmp_path / "none.ipynb"], [_write(tmp_path, "{", "b.ipynb")]):
        with pytest.raises(LabkitError):
            submit.pack(wrong, tmp_path / "t.zip")
