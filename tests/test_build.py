"""Student notebooks from masters: stubs, hidden answers, ids, nbgrader's metadata."""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest

from labkit.errors import LabkitError
from labkit.notebook import regions
from labkit.notebook.build import build, kernels, masters, notebook, target

ROOT = Path(__file__).resolve().parents[1]

MASTER = """\
# %% [markdown]
# # Title

# %%
import labkit as lk

# %% question="toy/one/size" points=1
guess = lk.answer("toy/one/size", 4.5 *
                  2)
guess

# %% kernel="toy/one"

# %% check="toy/one" points=3
lk.problem("toy")["one"].check()

# %% [markdown]
# ## Why

# %% [markdown] explain="toy/one" points=2
# ### BEGIN SOLUTION
# Because.
# ### END SOLUTION

# %% solved_only=true
assert "secret claim"

# %%
### BEGIN SOLUTION
x = 1
### END SOLUTION
"""
KERNEL = '''\
"""toy/one."""


def kernel(C):
    for i in range(3):
        ### BEGIN SOLUTION
        # a comment is not counted
        C[i] = 1

        C[i] += 1
        ### END SOLUTION


def launch(C):
    kernel(C)
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "solutions" / "01_toy"
    (folder / "kernels" / "toy").mkdir(parents=True)
    (folder / "01_first.py").write_text(MASTER)
    (folder / "kernels" / "toy" / "one.py").write_text(KERNEL)
    return tmp_path


def _master(project: Path) -> Path:
    return masters(project)[0]


def _cells(project: Path, solved: bool = False) -> dict[str, nbformat.NotebookNode]:
    return {cell.id: cell for cell in notebook(_master(project), solved).cells}


def test_the_notebooks_in_the_repository_are_what_their_masters_give():
    assert build(ROOT, check=True) == []


def test_build_writes_what_changed_and_check_writes_nothing(project):
    path = project / "labs" / "01_toy" / "01_first.ipynb"
    assert build(project, check=True) == [path] and not path.exists()
    assert build(project) == [path]
    first = path.read_bytes()
    assert build(project) == [] and build(project, check=True) == []
    _master(project).write_text(MASTER.replace("Title", "Other"))
    assert build(project, check=True) == [path] and path.read_bytes() == first


def test_the_file_holds_no_outputs_and_no_machine(project):
    build(project)
    book = json.loads(target(project, _master(project)).read_text())
    assert book["nbformat"] == 4 and set(book["metadata"]) == {"kernelspec", "language_info"}
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None


def test_a_stub_keeps_the_lines_around_and_says_how_many_are_missing(project):
    source = _cells(project)["toy--one--numba"].source
    magic, code = source.split("\n", 1)
    assert magic == "%%kernel toy/one"
    assert "        pass  # your code (about 2 lines)\n" in code
    assert "SOLUTION" not in code and "C[i]" not in code
    ast.parse(code)
    filled = _cells(project, solved=True)["toy--one--numba"].source
    assert "C[i] += 1" in filled and "SOLUTION" not in filled


def test_solving_a_stub_only_adds_lines():
    for master in masters(ROOT):
        for path in sorted(master.parent.glob("kernels/*/*.*")):
            language = {".py": "numba", ".cu": "cuda"}[path.suffix]
            text = path.read_text()
            kept = [
                line for line in regions.stub(text, language, path.name).split("\n") if "your code (about" not in line
            ]
            lines = iter(regions.solved(text, path.name).split("\n"))
            assert all(line in lines for line in kept), path  # in this order


def test_stubs_of_cuda_kernels_compile():
    cuda = pytest.importorskip("labkit.kernels.cuda")
    for master in masters(ROOT):
        for path in sorted(master.parent.glob("kernels/*/*.cu")):
            stub = regions.stub(path.read_text(), "cuda", path.name)
            templates = [line for line in cuda.parse_header(stub, path.name).launches if line.template]
            instances = tuple(f"{line.kernel}<{value}>" for line in templates for value in line.template[1])
            assert ".entry" in cuda.compile_ptx(stub, instances=instances)


def test_answers_are_hidden_in_place(project):
    cell = _cells(project)["toy--one--q-size"]
    assert cell.source == 'guess = lk.answer("toy/one/size", ...)\nguess'
    assert "4.5" in _cells(project, solved=True)["toy--one--q-size"].source


def test_regions_outside_of_kernels_and_claims_that_give_answers_away(project):
    student, solved = notebook(_master(project)), notebook(_master(project), solved=True)
    assert "Because" not in str(student) and "secret claim" not in str(student)
    assert "Because" in str(solved) and "secret claim" in str(solved)
    assert student.cells[-1].source == "pass  # your code (about 1 line)"
    ids = [cell.id for cell in student.cells]
    assert [cell.id for cell in solved.cells if cell.id in ids] == ids


def test_nbgrader_metadata(project):
    cells = _cells(project)

    def flags(ident):
        data = cells[ident].metadata["nbgrader"]
        assert data["schema_version"] == 3 and data["grade_id"] == ident and data["task"] is False
        assert ("points" in data) == data["grade"]
        return data["solution"], data["grade"], data["locked"], data.get("points")

    assert flags("toy--one--numba") == (True, False, False, None)
    assert flags("toy--one--check") == (False, True, True, 3)
    assert flags("toy--one--q-size") == (True, True, False, 1)
    assert flags("toy--one--explain") == (True, True, False, 2)
    assert cells["toy--one--check"].metadata["editable"] is False
    assert "nbgrader" not in cells["title--code-1"].metadata


def test_ids_are_valid_unique_and_stay_when_another_section_changes(project):
    before = list(_cells(project))
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", ident) for ident in before)
    assert before[-1] == "why--code-2"  # after a claim that students do not see
    changed = MASTER.replace("import labkit as lk\n", "import labkit as lk\n\n# %%\nx = 2\n")
    _master(project).write_text(changed)
    assert [ident for ident in _cells(project) if ident != "title--code-2"] == before


def test_code_may_be_folded(project):
    folded = MASTER.replace("# %%\nimport", '# %% jupyter={"source_hidden": true}\nimport')
    _master(project).write_text(folded)
    assert _cells(project)["title--code-1"].metadata["jupyter"] == {"source_hidden": True}


def test_a_given_kernel_is_whole_and_not_handed_in(project):
    _master(project).write_text(MASTER.replace('kernel="toy/one"', 'kernel="toy/one" given=true'))
    cell = _cells(project)["toy--one--numba"]
    assert "C[i] += 1" in cell.source and "SOLUTION" not in cell.source
    assert "nbgrader" not in cell.metadata
    assert {path.name: whole for path, whole in kernels(_master(project)).items()} == {"one.py": True}


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('kernel="toy/one"', 'kernel="toy/two"', "includes toy/two, and there is no"),
        ('kernel="toy/one"', 'kernel="toy/one" points=2', "points stand on its check cell"),
        ('kernel="toy/one"', 'kernel="toy/one" language="basic"', "numba or cuda, not 'basic'"),
        ('kernel="toy/one"', 'kernel="toy/one"\nx = 1', "is empty in the master"),
        ('check="toy/one"', 'check="toy"', "should read like check='gemm/naive'"),
        ('check="toy/one"', 'check="toy/one" kernel="toy/one"', "is both kernel and check"),
        ('answer("toy/one/size"', 'answer("toy/two/size"', "calls lk.answer('toy/one/size', ...)"),
        ('answer("toy/one/size", 4.5', "answer(key, 4.5", "to have it hidden"),
        ("guess = lk", "guess = = lk", "does not parse"),
        ("# ### END SOLUTION\n", "", "never closed"),
        ("# ### BEGIN SOLUTION\n", "", "END SOLUTION without its partner"),
        ('kernel="toy/one"', 'kernel="toy/one"\n\n# %% kernel="toy/one"', "toy--one--numba"),
    ],
)
def test_faults_of_a_master_are_sentences(project, old, new, sentence):
    assert old in MASTER
    _master(project).write_text(MASTER.replace(old, new, 1))
    with pytest.raises(LabkitError, match=re.escape(sentence)):
        notebook(_master(project))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("        ### BEGIN SOLUTION\n", "", "END SOLUTION without its partner"),
        (
            "    for i in range(3):\n        ### BEGIN SOLUTION\n        # a comment is not counted\n",
            "    ### BEGIN SOLUTION\n    for i in range(3):\n        ### END SOLUTION\n"
            "        C[i] = 2\n        ### BEGIN SOLUTION\n",
            "unexpected indent",
        ),
        ("### BEGIN SOLUTION\n        #", "#", "END SOLUTION without"),
    ],
)
def test_faults_of_a_kernel_are_sentences(project, old, new, sentence):
    assert old in KERNEL
    path = _master(project).parent / "kernels" / "toy" / "one.py"
    path.write_text(KERNEL.replace(old, new, 1))
    with pytest.raises(LabkitError, match=sentence):
        notebook(_master(project))


def test_a_kernel_without_regions_must_be_given(project):
    path = _master(project).parent / "kernels" / "toy" / "one.py"
    path.write_text("def launch(C):\n    C[0] = 1\n")
    with pytest.raises(LabkitError, match="marks no solution"):
        notebook(_master(project))


def test_a_region_of_cuda_must_be_whole():
    text = "void f() {\n// BEGIN SOLUTION\n  if (x) {\n// END SOLUTION\n  }\n}\n"
    with pytest.raises(LabkitError, match="f.cu line 3: the braces"):
        regions.stub(text, "cuda", "f.cu")


def test_without_masters_there_is_a_sentence(tmp_path):
    shutil.copytree(ROOT / "labs", tmp_path / "labs", ignore=shutil.ignore_patterns("kernels"))
    with pytest.raises(LabkitError, match="only instructors have them"):
        build(tmp_path)
