"""What `labkit check NOTEBOOK.ipynb` tells a student of the score, without solutions."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest

from labkit import cli
from labkit.errors import LabkitError
from labkit.grading import sandbox, scheme, visible
from labkit.notebook.build import notebook

ROOT = Path(__file__).resolve().parents[1]
LAB = "02_gemm/01_naive_to_tiled"
MASTER = ROOT / "solutions" / f"{LAB}.py"


def _write(path: Path, **sources: str) -> Path:
    """The notebook as it is given out, with other sources for some cells."""
    book = notebook(MASTER)
    for cell in book.cells:
        cell.source = sources.get(cell.id.replace("--", "__").replace("-", "_"), cell.source)
    nbformat.write(book, path)
    return path


def _solution(ident: str) -> str:
    return next(cell.source for cell in notebook(MASTER, solved=True).cells if cell.id == ident)


def test_questions_and_points_are_read_off_the_notebook(tmp_path):
    """They are those of the masters, which a student does not have."""
    found = visible.scheme_of(_write(tmp_path / "a.ipynb"))
    masters = scheme.load(ROOT, [LAB])
    for name in ("id", "kind", "points", "problem", "rung", "gates", "timed"):
        assert [getattr(i, name) for i in found.items] == [getattr(i, name) for i in masters.items], name


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'])
def test_what_is_no_notebook_of_ours_is_one_sentence(tmp_path, text):
    (tmp_path / "a.ipynb").write_text(text)
    with pytest.raises(LabkitError, match="a.ipynb"):
        visible.score(tmp_path / "a.ipynb")
    with pytest.raises(LabkitError, match="There is no"):
        visible.score(tmp_path / "none.ipynb")


@pytest.mark.slow
@pytest.mark.skipif(sandbox.best() != "bubblewrap", reason="needs bubblewrap")
def test_known_shapes_are_run_and_what_is_open_is_named(tmp_path, capsys):
    path = _write(
        tmp_path / "a.ipynb", gemm__q_flops='lk.answer("gemm/flops", 2 * 256**3)',
        gemm__coalesced__numba=_solution("gemm--coalesced--numba"),
    )  # fmt: skip
    assert cli.main(["check", str(path), "--json"]) == 1  # not all is done
    found = {item["id"]: item for item in json.loads(capsys.readouterr().out)["items"]}
    assert found["gemm--q-flops"]["state"] == "pass"
    parts = {part["name"]: part for part in found["gemm--coalesced--numba"]["parts"]}
    assert (parts["correct"]["state"], parts["structure"]["state"]) == ("pass", "pending")
    assert "hidden" not in parts["correct"]["message"] and "not known" not in parts["correct"]["message"]
    untouched = found["gemm--smem_tile--numba"]
    assert untouched["points"] == 0 and 'It still says "your code"' in untouched["parts"][0]["message"]
    said = str(visible.score(path))
    assert "that only your instructor's grader can give" in said and "gemm--q-flops" in said
