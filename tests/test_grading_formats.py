"""What other systems take: Gradescope's and PrairieLearn's results.json, Gradescope's zip, CSV, a person's points."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import jsonschema
import nbformat
import pytest
from grading_results import HIDDEN, KNOWN, WRONG, answer, explain, kernel, result, ungradable

from labkit import cli
from labkit.errors import LabkitError
from labkit.grading import csvs, formats, gradescope, manual, prairielearn, results, sandbox, scheme
from labkit.notebook.build import notebook

ROOT = Path(__file__).resolve().parents[1]
NAME = "02_gemm/01_naive_to_tiled"
VISIBILITY = {"enum": ["hidden", "after_due_date", "after_published", "visible"]}
FORMAT = {"enum": ["text", "html", "simple_format", "md", "ansi"]}
# https://gradescope-autograders.readthedocs.io/en/latest/specs/, "Output format"
GRADESCOPE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "score": {"type": "number"}, "execution_time": {"type": "number"}, "output": {"type": "string"},
        "output_format": FORMAT, "test_output_format": FORMAT, "test_name_format": FORMAT,
        "visibility": VISIBILITY, "stdout_visibility": VISIBILITY, "extra_data": {"type": "object"},
        "leaderboard": {"type": "array"},
        "tests": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "score": {"type": "number"}, "max_score": {"type": "number"},
                    "status": {"enum": ["passed", "failed"]}, "name": {"type": "string"}, "name_format": FORMAT,
                    "number": {"type": "string"}, "output": {"type": "string"}, "output_format": FORMAT,
                    "tags": {"type": "array", "items": {"type": "string"}}, "visibility": VISIBILITY,
                    "extra_data": {"type": "object"},
                },
            },
        },
    },
    "anyOf": [
        {"required": ["score"]},
        {"required": ["tests"], "properties": {"tests": {"items": {"required": ["score"]}}}},
    ],
}  # fmt: skip
# https://prairielearn.readthedocs.io/en/latest/externalGrading/, "Grading results"
PRAIRIELEARN = {
    "type": "object",
    "properties": {
        "gradable": {"type": "boolean"}, "score": {"type": "number", "minimum": 0, "maximum": 1},
        "message": {"type": "string"}, "output": {"type": "string"},
        "format_errors": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "tests": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"}, "description": {"type": "string"}, "points": {"type": "number"},
                    "max_points": {"type": "number"}, "message": {"type": "string"}, "output": {"type": "string"},
                },
            },
        },
    },
    "if": {"properties": {"gradable": {"const": False}}, "required": ["gradable"]},
    "then": {"required": ["format_errors"]},
    "else": {"required": ["score"]},
}  # fmt: skip


def _mixed() -> dict:
    items = [
        answer(), answer("gemm--naive--q-sectors_per_request", right=False), kernel(time=True),
        kernel("gemm--smem_tile--numba", fails=f"{HIDDEN}: C[3, 1] {WRONG}"), explain(),
    ]  # fmt: skip
    return result("ada", items, faults=["There is no cell for gemm--x."])


# --- Gradescope ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [_mixed(), ungradable()], ids=["graded", "ungradable"])
def test_gradescope_results_keep_to_the_documented_form(made):
    jsonschema.validate(gradescope.document(made), GRADESCOPE)


def test_gradescope_tests_add_up_to_the_score_and_what_waits_has_none():
    made = _mixed()
    found = gradescope.document(made)
    scored = [t for t in found["tests"] if "score" in t]
    waiting = [t for t in found["tests"] if "score" not in t]
    assert sum(t["score"] for t in scored) == pytest.approx(found["score"]) == made["points"]
    assert sum(t["max_score"] for t in scored) == pytest.approx(made["possible"] - made["pending"])
    assert [t["tags"][1] for t in waiting] == ["time", "manual"]
    assert all("max_score" not in t and "status" not in t and "Not judged yet" in t["output"] for t in waiting)
    assert "5 more points are not judged yet" in found["output"] and "no cell for gemm--x" in found["output"]
    assert found["stdout_visibility"] == "hidden"


def test_gradescope_gets_no_grade_for_a_failure_of_the_grader():
    for document in formats.FORMATS.values():
        with pytest.raises(LabkitError, match="was not graded"):
            document(ungradable(state="infrastructure_error"))


@pytest.mark.parametrize("form", formats.FORMATS)
def test_no_format_tells_values_of_hidden_shapes(form):
    text = json.dumps(formats.FORMATS[form](_mixed()))
    assert HIDDEN in text and "C[3, 1] is wrong (3 of 99" in text
    assert "0.25" not in text and "1e-06" not in text and "review" not in text


@pytest.fixture(scope="module")
def assignment(tmp_path_factory) -> Path:
    """The zip of an assignment in which only answers have points, unpacked."""
    folder = tmp_path_factory.mktemp("zip")
    items = scheme.load(ROOT, [NAME]).items
    points = {item.id: 0.0 for item in items if item.kind != "answer"}
    gradescope.write_zip(ROOT, folder / "autograder.zip", labs=[NAME], points=points, seed=bytes(32))
    return folder / "autograder.zip"


def test_the_zip_has_both_programs_at_its_root_and_no_other_assignment(assignment):
    with zipfile.ZipFile(assignment) as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
        for name in ("setup.sh", "run_autograder"):
            assert modes[name] & 0o111 and archive.read(name).startswith(b"#!/usr/bin/env bash\n")
            subprocess.run(["bash", "-n"], input=archive.read(name), check=True)
        setup = archive.read("setup.sh").decode()
    assert modes["seed"] & 0o077 == 0 and "chmod -R go-rwx solutions seed" in setup
    masters = [name for name in modes if name.startswith("solutions/") and "/kernels/" not in name]
    assert "solutions/02_gemm/01_naive_to_tiled.py" in masters
    assert all(name.startswith("solutions/02_gemm/") for name in masters)
    assert not [name for name in modes if name.startswith(("tests/", ".git", "docs/")) or "__pycache__" in name]
    assert assignment.stat().st_mode & 0o077 == 0
    assert assignment.stat().st_size < 100 << 20


def test_the_zip_grades_a_submission(assignment, tmp_path):
    source, submission, target = tmp_path / "source", tmp_path / "submission", tmp_path / "results" / "results.json"
    with zipfile.ZipFile(assignment) as archive:
        archive.extractall(source)
    submission.mkdir()
    book = notebook(ROOT / "solutions" / f"{NAME}.py", solved=True)
    wrong = next(cell for cell in book.cells if cell.id == "gemm--q-flops")
    wrong.source = 'lk.answer("gemm/flops", 7)'
    nbformat.write(book, submission / "01_naive_to_tiled.ipynb")
    command = [sys.executable, "-m", "labkit.grading.gradescope", submission, target]
    subprocess.run(command, env=os.environ | {"LABKIT_ROOT": str(source)}, check=True, timeout=300)
    found = json.loads(target.read_text())
    jsonschema.validate(found, GRADESCOPE)
    failed = [t["name"] for t in found["tests"] if t["status"] == "failed"]
    assert failed == ["gemm: flops - Answer"]
    assert found["score"] == sum(t["max_score"] for t in found["tests"]) - 1
    assert "0" * 64 not in target.read_text()  # the seed


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_weak_box_of_root_runs_as_another_user(tmp_path, monkeypatch):
    """What the zip asks for; a stand-in for Python says who runs it."""
    who = tmp_path / "who"
    stand_in = Path("/tmp") / f"labkit-who-{os.getpid()}"
    stand_in.write_text(f"#!/bin/sh\nid -un > {who}\n")
    stand_in.chmod(0o755)
    monkeypatch.setattr(sandbox.sys, "executable", str(stand_in))
    for name, expected in ((None, "root"), ("nobody", "nobody")):
        for folder in (tmp_path, *tmp_path.parents):  # for nobody to write
            if folder.is_relative_to("/tmp/"):
                folder.chmod(0o777)
        who.unlink(missing_ok=True)
        monkeypatch.setenv("LABKIT_GRADING_USER", name) if name else monkeypatch.delenv("LABKIT_GRADING_USER", False)
        with pytest.raises(LabkitError, match="No sandboxed process"):
            sandbox.Box("x", "rlimits").call({}, seconds=10)
        assert who.read_text().strip() == expected
    monkeypatch.setenv("LABKIT_GRADING_USER", "nobody-of-that-name")
    with pytest.raises(LabkitError, match="no such user"):
        sandbox.Box("x", "rlimits").call({}, seconds=10)
    stand_in.unlink()


def test_the_command_writes_the_zip_and_refuses_what_is_not_there(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("LABKIT_ROOT", str(ROOT))
    target = tmp_path / "a.zip"
    assert cli.main(["gradescope-zip", str(target), "--labs", NAME]) == 0 and zipfile.is_zipfile(target)
    assert cli.main(["gradescope-zip", str(tmp_path / "b.zip"), "--labs", "99_no"]) == 1
    assert "no lab or notebook '99_no'" in capsys.readouterr().err
    with pytest.raises(LabkitError, match="no visibility 'seen'"):
        gradescope.write_zip(ROOT, target, visibility="seen")


# --- PrairieLearn ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [_mixed(), ungradable()], ids=["graded", "ungradable"])
def test_prairielearn_results_keep_to_the_documented_form(made):
    jsonschema.validate(prairielearn.document(made), PRAIRIELEARN)


def test_prairielearn_scores_are_fractions_and_ungradable_costs_no_attempt():
    made = _mixed()
    found = prairielearn.document(made)
    assert found["score"] == pytest.approx(made["points"] / made["possible"], abs=1e-6)
    assert "5 points are not judged yet" in found["message"]
    assert sum(t["points"] for t in found["tests"]) == pytest.approx(made["points"])
    assert prairielearn.document(ungradable()) == {"gradable": False, "format_errors": [ungradable()["reason"]]}


@pytest.mark.parametrize("number", [60, 8_000])
def test_prairielearn_results_stay_under_its_limit(number):
    message = f"{KNOWN}: " + "é\"" * 20_000
    made = result(items=[kernel(fails=message) for _ in range(number)])
    found = prairielearn.document(made)
    assert len(json.dumps(found)) <= prairielearn.MOST_BYTES
    jsonschema.validate(found, PRAIRIELEARN)
    assert sum(t["max_points"] for t in found["tests"]) == pytest.approx(made["possible"])


# --- CSV, and a person's points --------------------------------------------------------------------------


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_there_is_a_row_per_student_and_a_row_per_item():
    both = [_mixed(), ungradable()]
    students, items = _rows(csvs.students(both)), _rows(csvs.items(both))
    assert [r["submission"] for r in students] == ["ada", "eve"] and len(items) == 5
    assert float(students[0]["points"]) == both[0]["points"] == sum(float(r["points"]) for r in items)
    assert students[1]["state"] == "ungradable"
    timed = next(r for r in items if r["item"] == "gemm--coalesced--numba")
    assert (timed["correct"], timed["time"], timed["answer"]) == ("6.0", "", "")


def test_spreadsheets_get_no_formulas():
    made = result("=HYPERLINK(1)", [kernel(fails="=cmd|' /C calc'!A0")])
    for text in (csvs.students([made]), csvs.items([made])):
        assert all(not cell.startswith(("=", "+", "-", "@")) for row in csv.reader(io.StringIO(text)) for cell in row)
    assert csvs.untame(csvs.tame("=x")) == "=x" and csvs.untame("'quoted'") == "'quoted'"


def test_a_persons_points_are_taken_and_kept(tmp_path):
    results.write(tmp_path, _mixed())
    path = manual.offer(tmp_path, results.read_all(tmp_path))
    rows = _rows(path.read_text())
    assert [(r["submission"], r["item"], r["points"]) for r in rows] == [("ada", "gemm--naive--explain", "")]
    assert manual.read(tmp_path) == {}  # not given yet
    path.write_text(
        "submission,item,points,comment\nada,gemm--naive--explain,2.5,Nearly.\nada,gemm--coalesced--numba,1,Copied.\n"
    )
    before = path.read_text()
    manual.offer(tmp_path, results.read_all(tmp_path))
    assert path.read_text() == before
    made = _mixed()
    [found] = manual.merged([made], manual.read(tmp_path))
    results.check_schema(found)
    items = {i["id"]: i for i in found["items"]}
    assert items["gemm--naive--explain"]["points"] == 2.5 and items["gemm--coalesced--numba"]["points"] == 1
    assert found["pending"] == 0 and found["possible"] == made["possible"]
    assert found["points"] == made["points"] + 2.5 + 1 - 8
    assert made == _mixed()  # not touched


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("ada,gemm--naive--explain,many,", "line 2: 'many' is no number"),
        ("ada,gemm--naive--explain,4,", "has 3 at most"),
        ("ada,gemm--naive--explain,-1,", "has 3 at most"),
        ("ada,gemm--naive--explain,nan,", "has 3 at most"),
        ("bob,gemm--naive--explain,1,", "of bob, which is not among the results"),
        ("ada,gemm--naive--explain", "needs the columns"),
    ],
)
def test_points_that_make_no_sense_are_refused(tmp_path, row, said):
    (tmp_path / manual.FILE).write_text(f"submission,item,points,comment\n{row}\n")
    with pytest.raises(LabkitError, match=said):
        manual.merged([_mixed()], manual.read(tmp_path))


@pytest.mark.parametrize("command", ["grade {good} --out {bad}", "submit {good} --output {bad}/x.zip"])
def test_places_that_cannot_be_written_are_one_sentence(command, tmp_path, capsys):
    good, bad = tmp_path / "a.ipynb", tmp_path / "file"
    good.write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    bad.write_text("")
    assert cli.main(command.format(good=good, bad=bad).split()) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"labkit: {bad}") and said.count("\n") == 1 and said.endswith(".\n")
