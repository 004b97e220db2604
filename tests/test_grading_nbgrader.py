"""The generated notebooks in the real nbgrader: validate, generate an assignment, autograde, the points as ours.

nbgrader is installed into an environment of its own on top of this one, so that JupyterLab here stays as it is.
"""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import venv
from pathlib import Path

import nbformat
import pytest

from labkit.grading import scheme
from labkit.grading.grade import grade_one
from labkit.notebook.build import notebook

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
MASTER = ROOT / "solutions" / "02_gemm" / "01_naive_to_tiled.py"
NAME = "02_gemm/01_naive_to_tiled"
CONFIG = """\
c = get_config()
c.CourseDirectory.course_id = "gpu"
c.ClearSolutions.enabled = False  # labkit has cleared them
c.Execute.timeout = 600
"""
SCORES = """\
import json
from nbgrader.api import Gradebook
with Gradebook("sqlite:///gradebook.db", "gpu") as book:
    found = book.find_submission_notebook("01_naive_to_tiled", "gemm", "ada")
    print(json.dumps({g.name: [g.max_score, g.auto_score, bool(g.needs_manual_grade)] for g in found.grades}))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """A Python with nbgrader. The notebooks' kernel is the Python that runs this."""
    folder = tmp_path_factory.mktemp("nbgrader")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    own = subprocess.check_output([python, "-c", "import site; print(site.getsitepackages()[0])"], text=True).strip()
    Path(own, "here.pth").write_text("\n".join(site.getsitepackages()) + "\n")  # spares installing Jupyter again
    spec = folder / "share" / "jupyter" / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))
    command = [python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", "nbgrader"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = f"nbgrader could not be installed: {done.stderr[-300:]}"
        (pytest.fail if os.environ.get("LABKIT_REQUIRE_NBGRADER") else pytest.skip)(said)
    return python


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    """A course whose one assignment is a released notebook; a student's kernels land beside the notebook."""
    folder = tmp_path_factory.mktemp("course")
    (folder / "nbgrader_config.py").write_text(CONFIG)
    source = folder / "source" / "gemm"
    (source / "labs").mkdir(parents=True)
    (source / "labs" / "README.md").write_text("Your kernels are kept here.\n")
    nbformat.write(notebook(MASTER), source / "01_naive_to_tiled.ipynb")
    return folder


def _environment(python: Path) -> dict[str, str]:
    """nbgrader runs alembic by its name."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LABKIT", "PYTEST"))}
    return kept | {"PATH": f"{python.parent}:{os.environ['PATH']}"}


def _nbgrader(python: Path, folder: Path, *words: str) -> str:
    done = subprocess.run(
        [python, "-m", "nbgrader", *words], cwd=folder, env=_environment(python), capture_output=True, text=True,
        timeout=1500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def _handed_in(generated: Path) -> nbformat.NotebookNode:
    """As a student would: right but for a barrier that is missing in one kernel, and one answer left open."""
    solved = {cell.id: cell.source for cell in notebook(MASTER, solved=True).cells}
    book = nbformat.read(generated, 4)
    for cell in book.cells:
        if cell.metadata.get("nbgrader", {}).get("solution") and cell.id != "gemm--q-flops":
            cell.source = solved[cell.id]
    tile = next(cell for cell in book.cells if cell.id == "gemm--smem_tile--numba")
    assert tile.source.count("cuda.syncthreads()") == 2
    tile.source = tile.source.replace("cuda.syncthreads()", "pass", 1)
    return book


def test_nbgrader_generates_and_autogrades_with_our_points(python, course, tmp_path):
    _nbgrader(python, course, "generate_assignment", "gemm")
    generated = course / "release" / "gemm" / "01_naive_to_tiled.ipynb"
    ours = notebook(MASTER)
    made = nbformat.read(generated, 4)
    assert [(c.id, c.source) for c in made.cells] == [(c.id, c.source) for c in ours.cells]
    marked = [c for c in made.cells if "nbgrader" in c.metadata]
    assert marked and all(c.metadata.nbgrader.checksum for c in marked if c.metadata.nbgrader.grade)

    handed_in = course / "submitted" / "ada" / "gemm"
    handed_in.mkdir(parents=True)
    nbformat.write(_handed_in(generated), handed_in / "01_naive_to_tiled.ipynb")
    _nbgrader(python, course, "autograde", "gemm")
    command = [python, "-c", SCORES]
    scores = json.loads(subprocess.check_output(command, cwd=course, env=_environment(python), text=True))

    result = grade_one(handed_in, tmp_path, root=ROOT, scheme=scheme.load(ROOT, [NAME]))
    assert result["state"] == "graded"
    items = {item["id"]: item for item in result["items"]}
    assert sum(most for most, _, _ in scores.values()) == result["possible"]
    for name, (most, points, waits) in scores.items():
        if name.endswith("--check"):
            ours = items[name.removesuffix("check") + "numba"]
            settled = ours["possible"] - sum(p["possible"] for p in ours["parts"] if p["state"] == "pending")
            assert (most, points, waits) == (ours["possible"], ours["points"] / settled * most, False), name
        elif name == "gemm--q-flops":
            assert (most, points, waits) == (items[name]["possible"], 0, False)
            assert items[name]["points"] == 0
        else:  # a person's, to nbgrader
            assert (most, waits) == (items[name]["possible"], True), name
    assert scores["gemm--coalesced--check"][1] == 4 and scores["gemm--smem_tile--check"][1] == 0


def test_nbgrader_validates_the_solved_notebook_and_not_the_stubs(python, tmp_path):
    for solved, said in ((True, "Success! Your notebook passes all the tests."), (False, "failed")):
        folder = tmp_path / str(solved)
        (folder / "labs").mkdir(parents=True)
        nbformat.write(notebook(MASTER, solved=solved), folder / "one.ipynb")
        (folder / "nbgrader_config.py").write_text(CONFIG)
        assert said in _nbgrader(python, folder, "validate", "one.ipynb")


