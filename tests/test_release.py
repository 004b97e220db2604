"""`labkit release`: what students receive, and that planted leaks are found."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from labkit.errors import LabkitError
from labkit.notebook.build import build
from labkit.notebook.release import leaks, release

ROOT = Path(__file__).resolve().parents[1]

MASTER = """\
# %% [markdown]
# # Title
# PROSE

# %% question="toy/one/ratio" points=1
lk.answer("toy/one/ratio", 8.5)

# %% question="toy/one/flops" points=1
lk.answer("toy/one/flops", 33554432)

# %% question="toy/one/small" points=1
lk.answer("toy/one/small", 4)

# %% kernel="toy/given" given=true

# %% kernel="toy/one"

# %% kernel="toy/one" language="cuda"

# %% [markdown] explain="toy/one" points=1
# ### BEGIN SOLUTION
# Because neighbors share their sectors.
# ### END SOLUTION
"""
GIVEN = "def launch(C):\n    shared_line_of_both_kernels(C, 0)\n"
ONE = """\
def launch(C):
    ### BEGIN SOLUTION
    shared_line_of_both_kernels(C, 0)
    C[0] = sum(2 * i for i in range(100) if i < 7)
    short(C)
    ### END SOLUTION
"""
LATER = """\
from __future__ import annotations
def launch(C):
    a_line_of_a_kernel_for_next_year(C)
    C[0] = sum(2 * i for i in range(100) if i < 7)
"""
CUDA = """\
extern "C" __global__ void one(float *C) {
    // BEGIN SOLUTION
    C[threadIdx.x] = blockIdx.x < 3 ? 1.0f : __expf(2.0f);
    // END SOLUTION
}
"""
LINE = "C[0] = sum(2 * i for i in range(100) if i < 7)"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    files = {
        "solutions/01_toy/01_first.py": MASTER,
        "solutions/01_toy/kernels/toy/given.py": GIVEN,
        "solutions/01_toy/kernels/toy/one.py": ONE,
        "solutions/01_toy/kernels/toy/one.cu": CUDA,
        "solutions/01_toy/kernels/toy/later.py": LATER,
        "labs/01_toy/README.md": "A lab.\n",
        "labs/01_toy/kernels/toy/one.py": ONE,
        "labs/01_toy/.ipynb_checkpoints/01_first-checkpoint.ipynb": ONE,
        "labs/01_toy/mine.ipynb": json.dumps({"cells": [{"source": ONE}]}),
        "labkit/__init__.py": "from __future__ import annotations\n",
        "labkit/problems/toy.py": "VERSION = '18.5'\n",
        "labkit/__pycache__/x.pyc": ONE,
        "tests/test_one.py": ONE,
        ".git/config": "",
        "Makefile": "lab:\n",
        "pyproject.toml": "",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    build(root)
    return root


def test_what_students_receive(project, tmp_path):
    dest = tmp_path / "new" / "release"
    paths = release(project, dest)
    assert {str(path.relative_to(dest)) for path in paths} == {
        "Makefile",
        "pyproject.toml",
        "labkit/__init__.py",
        "labkit/problems/toy.py",
        "labs/01_toy/README.md",
        "labs/01_toy/01_first.ipynb",
    }
    assert "shared_line_of_both_kernels" in (dest / "labs/01_toy/01_first.ipynb").read_text()


def test_the_instructor_s_own_copy_of_a_notebook_stays_at_home(project, tmp_path):
    path = project / "labs/01_toy/01_first.ipynb"
    path.write_text(path.read_text().replace("pass  # your code (about 3 lines)", LINE))
    release(project, tmp_path / "out")
    assert LINE not in (tmp_path / "out/labs/01_toy/01_first.ipynb").read_text()


LEAKS = {
    "a line of a kernel": ("labs/01_toy/README.md", LINE),
    "other spaces": ("labs/01_toy/README.md", LINE.replace(" ", "  ").replace("=", " =")),
    "wrapped": ("labs/01_toy/README.md", LINE.replace("for", "\n    for")),
    "in the library": ("labkit/__init__.py", f"x = 1  # {LINE}"),
    "in the set-up": ("Makefile", f"\t{LINE}"),
    "in HTML": ("labs/01_toy/page.html", f"<code>{html.escape(LINE)}</code>"),
    "CUDA C++": ("labkit/extra.txt", "C[threadIdx.x] = blockIdx.x < 3 ? 1.0f : __expf(2.0f);"),
    "a kernel that no master shows": ("labkit/x.py", "a_line_of_a_kernel_for_next_year(C)"),
    "a model answer": ("labs/01_toy/README.md", "because: Because neighbors share their sectors."),
    "an answer call": ("labkit/__init__.py", "lk.answer('toy/one/ratio', 8.5)"),
    "a small answer call": ("labkit/__init__.py", "answer(  'toy/one/small',4 )"),
    "a number": ("labs/01_toy/README.md", "The answer is 8.5."),
    "a number in the problem": ("labkit/problems/toy.py", "moves = 'from 8.5 to 2'"),
    "a long number": ("labs/01_toy/README.md", "That is 33554432 of them"),
    "in a data file": ("labs/01_toy/data.json", json.dumps({"note": LINE})),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_a_planted_leak_is_found_and_nothing_is_released(project, tmp_path, leak):
    name, text = LEAKS[leak]
    path = project / name
    before = path.read_text() if path.exists() else ""
    path.write_text(f"{before}\n\n{text}\n")
    number = before.count("\n") + 3
    with pytest.raises(LabkitError, match=rf"^{re.escape(name)} line {number} gives away "):
        release(project, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["project"]


@pytest.mark.parametrize("prose", [LINE, LINE.replace("for", "for\n# "), "It is 8.5 sectors."])
def test_a_leak_in_the_prose_of_a_master_is_found_in_the_notebook(project, tmp_path, prose):
    path = project / "solutions/01_toy/01_first.py"
    path.write_text(MASTER.replace("PROSE", prose))
    with pytest.raises(LabkitError, match=r"^labs/01_toy/01_first.ipynb line \d+ gives away "):
        release(project, tmp_path / "out")


def test_a_leak_in_a_notebook_names_its_line(project, tmp_path):
    release(project, tmp_path / "out")
    path = tmp_path / "out/labs/01_toy/01_first.ipynb"
    said = 'say("less <", "' + LINE
    lines = path.read_text().replace("A lab", "").split("\n")
    at = next(n for n, line in enumerate(lines) if "about 3 lines" in line)
    lines[at] = lines[at].replace("pass", json.dumps(said)[1:-1])
    path.write_text("\n".join(lines))
    assert leaks(project, tmp_path / "out") == [
        f"labs/01_toy/01_first.ipynb line {at + 1} gives away solutions/01_toy/kernels/toy/{source}."
        for source in ("later.py line 4", "one.py line 4")
    ]


def test_folders_that_must_not_be_handed_out_are_found(project, tmp_path):
    release(project, tmp_path / "out")
    (tmp_path / "out/labs/solutions").mkdir()
    (tmp_path / "out/.git").mkdir()
    assert leaks(project, tmp_path / "out") == [
        ".git must not be handed out.",
        "labs/solutions must not be handed out.",
    ]


def test_numbers_that_only_look_alike_are_no_leak(project, tmp_path):
    (project / "labs/01_toy/README.md").write_text("Version 8.5.1 or 18.5, 8.52; 133554432; x8.5\n")
    release(project, tmp_path / "out")


def test_a_full_folder_is_refused(project, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/keep").write_text("x")
    with pytest.raises(LabkitError, match="not an empty folder"):
        release(project, tmp_path / "out")
    assert (tmp_path / "out/keep").read_text() == "x"
    with pytest.raises(LabkitError, match="lies inside"):
        release(project, project / "labs" / "out")
    (tmp_path / "empty").mkdir()
    assert release(project, tmp_path / "empty")


def test_pages_tell_of_what_is_there(project, tmp_path):
    (project / "labs/01_toy/README.md").write_text(
        "[One](01_first.ipynb), [two](../02_more/README.md) and [the web](https://example.org/x).\n"
        "| notebook | |\n|---|---|\n| [01_first](01_first.ipynb) | a |\n| [02](02.ipynb) | b |\n| `tests/` | c |\n"
    )
    release(project, tmp_path / "out")
    assert (tmp_path / "out/labs/01_toy/README.md").read_text() == (
        "[One](01_first.ipynb), two and [the web](https://example.org/x).\n"
        "| notebook | |\n|---|---|\n| [01_first](01_first.ipynb) | a |\n"
    )


def test_a_part_of_this_project_has_no_dead_links(tmp_path):
    release(ROOT, tmp_path / "out", labs=["02_gemm/01_naive_to_tiled"])
    for path in (tmp_path / "out").rglob("README.md"):
        for target in re.findall(r"\]\(([^()#\s]+)", path.read_text()):
            assert ":" in target or (path.parent / target).exists(), f"{path.name} links to {target}"
    page = (tmp_path / "out/README.md").read_text()
    assert "`labs/`" in page and "`solutions/`" not in page and "`tests/`" not in page


def test_this_project_can_be_released(tmp_path):
    dest = tmp_path / "release"
    names = {str(path.relative_to(dest)) for path in release(ROOT, dest)}
    assert {"Makefile", "pyproject.toml", "labkit/__init__.py", "labs/02_gemm/README.md"} <= names
    assert "labs/02_gemm/01_naive_to_tiled.ipynb" in names
    assert not any(name.startswith(("solutions", "tests")) for name in names)
