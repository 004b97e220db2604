"""The notebooks run: solved ones from top to bottom, students' ones up to what is to be written."""

from __future__ import annotations

import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from labkit.notebook import regions
from labkit.notebook.build import kernels, masters, notebook

ROOT = Path(__file__).resolve().parents[1]
MASTERS = masters(ROOT)
LONGEST = 120  # seconds for a solved notebook on the emulator
FIRST = {master.parent: master for master in reversed(MASTERS)}


def _masters(always: tuple[str, ...]) -> list:
    """All masters; those of other labs than `always` are left to make test-all, but for each lab's first."""
    return [
        pytest.param(
            master,
            id=f"{master.parent.name}/{master.stem}",
            marks=() if master.parent.name[:2] in always or master in FIRST.values() else pytest.mark.slow,
        )
        for master in MASTERS
    ]


@pytest.fixture
def root(tmp_path, monkeypatch, master) -> Path:
    """A project where notebooks run on the emulator, with the kernels of the notebooks before `master` in its lab."""
    (tmp_path / "labs").mkdir()
    for before in MASTERS:
        if before.parent == master.parent and before < master:
            for file in kernels(before):
                mine = tmp_path / "labs" / file.relative_to(ROOT / "solutions")
                mine.parent.mkdir(parents=True, exist_ok=True)
                mine.write_text(regions.solved(file.read_text(), file.name))
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    monkeypatch.setenv("LABKIT_DEVICE", "emulator")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    return tmp_path


def _run(book: nbformat.NotebookNode, folder: Path) -> None:
    """Execute in place; a cell that fails raises CellExecutionError."""
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(book, timeout=LONGEST, kernel_name="python3", resources=resources).execute()


def _said(cell: nbformat.NotebookNode) -> str:
    parts = [out.get("text", "") or out.get("data", {}).get("text/plain", "") for out in cell.outputs]
    return "\n".join(parts)


def _is_stub(cell: nbformat.NotebookNode) -> bool:
    return cell.source.startswith("%%kernel") and "your code (about" in cell.source


def _role(cell: nbformat.NotebookNode) -> str:
    return cell.id.split("--")[-1]


@pytest.mark.parametrize("master", _masters(always=("01", "02")))
def test_with_solutions_everything_passes(root, master):
    book = notebook(master, solved=True)
    started = time.monotonic()
    _run(book, root)
    assert time.monotonic() - started < LONGEST
    checks = [cell for cell in book.cells if _role(cell).startswith("check")]
    questions = [cell for cell in book.cells if _role(cell).startswith("q-")]
    assert questions and (checks or not kernels(master))
    for cell in checks:
        assert " passed " in _said(cell), cell.id
    for cell in questions:
        assert " is right" in _said(cell), cell.id
    stderr = [out.text for c in book.cells for out in c.get("outputs", []) if out.get("name") == "stderr"]
    assert stderr == []


@pytest.mark.parametrize("master", _masters(always=()))
def test_a_student_gets_to_the_first_stub_and_is_told_what_is_missing(root, master):
    book = notebook(master)
    first = next((cell.id for cell in book.cells if _is_stub(cell)), None)
    if first is None:
        pytest.skip("there is no kernel to write in this notebook")
    first = first.rsplit("--", 1)[0]
    end = next(n for n, cell in enumerate(book.cells) if cell.id.startswith(f"{first}--check"))
    book.cells = book.cells[: end + 1]
    _run(book, root)
    said = _said(book.cells[-1])
    assert "failed" in said and ("was never written" in said or "want" in said)
    for cell in book.cells:
        if _role(cell).startswith("q-"):
            assert "not answered yet" in _said(cell)


@pytest.mark.parametrize("master", _masters(always=()))
def test_every_stub_fails_its_check_with_a_sentence(root, master):
    """And a check before its kernel cell was run says which cell to run."""
    book = notebook(master)
    load = nbformat.v4.new_code_cell(
        "import labkit as lk\nfor name in lk.problems.names(): globals()[name] = lk.problem(name)"
    )
    stubs = {c.id.rsplit("--", 1)[0] + ("-cuda" if _role(c) == "cuda" else ""): c
             for c in book.cells if "%%kernel" in c.source and "your code" in c.source}  # fmt: skip
    checks = {c.id.replace("--check", ""): c for c in book.cells if _role(c).startswith("check")}
    early = [nbformat.v4.new_code_cell(checks[name].source) for name in stubs]
    book.cells = [load, *early]
    for name, stub in stubs.items():
        book.cells += [stub, checks[name]]
    _run(book, root)
    for name, cell in zip(stubs, early, strict=True):
        assert "failed" in _said(cell) and "%%kernel" in _said(cell), name
    for name in stubs:
        said = _said(checks[name])
        assert "failed" in said and ("was never written" in said or "want" in said), name
