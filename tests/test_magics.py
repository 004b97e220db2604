"""`%%kernel` keeps a cell as a kernel file; errors in a notebook are sentences."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from labkit.errors import LabkitError
from labkit.notebook import load_ipython_extension, magics

GOOD = "def launch(C, A, B):\n    pass\n"


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    (tmp_path / "labs").mkdir()
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    return tmp_path


@pytest.fixture
def shell(root) -> InteractiveShell:
    shell = InteractiveShell()
    shell.colors = "nocolor"
    load_ipython_extension(shell)
    load_ipython_extension(shell)  # a second time does no harm
    return shell


def _file(root: Path, name: str = "coalesced.py") -> Path:
    return root / "labs" / "02_gemm" / "kernels" / "gemm" / name


def test_a_cell_becomes_a_file_with_the_lines_of_the_cell(root, shell):
    cell = f"%%kernel gemm/coalesced\n{GOOD}"
    result = shell.run_cell(cell)
    assert result.success
    text = _file(root).read_text()
    assert text == f"# {cell}"
    said = "gemm/coalesced: 3 lines saved in labs/02_gemm/kernels/gemm/coalesced.py."
    assert repr(result.result) == said and "coalesced.py</code>." in result.result._repr_html_()
    assert not _file(root).parent.joinpath(".history").exists()


def test_cuda_goes_to_its_own_file(root, shell):
    body = '// launch f<<<1, 1>>>(C, A, B)\nextern "C" __global__ void f(float *C, const float *A, const float *B) {}\n'
    assert shell.run_cell(f"%%kernel gemm/coalesced --cuda\n{body}").success
    text = _file(root, "coalesced.cu").read_text()
    assert text == f"// %%kernel gemm/coalesced --cuda\n{body}"


def test_older_versions_are_kept_when_something_changed(root, shell):
    shell.run_cell(f"%%kernel gemm/coalesced\n{GOOD}")
    os.utime(_file(root), (0, 1_000_000_000))
    assert shell.run_cell(f"%%kernel gemm/coalesced\n{GOOD}").result.older is None
    result = shell.run_cell(f"%%kernel gemm/coalesced\n{GOOD}x = 1\n")
    history = _file(root).parent / ".history"
    (older,) = history.iterdir()
    assert older.name.startswith("coalesced.2001090") and older.suffix == ".py"
    assert older.read_text().endswith(GOOD) and _file(root).read_text().endswith("x = 1\n")
    assert f"the version before is .history/{older.name}." in repr(result.result)


def test_only_the_newest_versions_stay(tmp_path):
    path = tmp_path / "kernel.py"
    for number in range(magics.KEPT + 6):
        magics.save(path, f"x = {number}\n")
        os.utime(path, ns=(0, 10**18 + 3 * 10**8 * number))  # some in the same second
    (tmp_path / ".history" / "kernel2.20010101T000000.py").touch()
    kept = {int(p.read_text()[4:]) for p in (tmp_path / ".history").glob("kernel.*")}
    assert kept == set(range(5, magics.KEPT + 5))


def test_a_syntax_error_names_the_line_of_the_cell_and_nothing_is_lost(root, shell, capsys):
    result = shell.run_cell("%%kernel gemm/coalesced\n\ndef launch(C, A, B)\n    pass\n")
    assert isinstance(result.error_in_exec, LabkitError)
    said = capsys.readouterr().out
    assert "Line 3 of this cell: expected ':'" in said and "->   3  def launch(C, A, B)" in said
    assert "Traceback" not in said
    assert "def launch(C, A, B)\n" in _file(root).read_text()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "Write %%kernel PROBLEM/RUNG"),
        ("gemm", "Write %%kernel PROBLEM/RUNG"),
        ("gemm/naive --fast", "Write %%kernel PROBLEM/RUNG"),
        ("gem/naive", "did you mean gemm?"),
        ("gemm/coalesed", "did you mean coalesced?"),
    ],
)
def test_bad_names_are_sentences_and_write_nothing(root, shell, capsys, line, sentence):
    result = shell.run_cell(f"%%kernel {line}\n{GOOD}")
    assert isinstance(result.error_in_exec, LabkitError)
    assert sentence in capsys.readouterr().out
    assert list(root.rglob("*.py")) == []


def test_code_that_does_not_load_is_a_sentence(root, shell, capsys):
    shell.run_cell("%%kernel gemm/coalesced\nimport no_such_module\n")
    said = capsys.readouterr().out
    assert "no_such_module" in said and "Traceback" not in said
    body = 'extern "C" __global__ void f(float *C)\n{\n    C[0] = x;\n}\n'
    shell.run_cell(f"%%kernel gemm/coalesced --cuda\n// launch f<<<1, 1>>>(C)\n{body}")
    said = capsys.readouterr().out
    assert 'coalesced.cu:5: identifier "x" is undefined' in said
    assert "->   5      C[0] = x;" in said and "Traceback" not in said


def test_no_project_is_a_sentence(shell, monkeypatch, tmp_path_factory, capsys):
    monkeypatch.delenv("LABKIT_ROOT")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    result = shell.run_cell(f"%%kernel gemm/coalesced\n{GOOD}")
    assert isinstance(result.error_in_exec, LabkitError)
    assert "No folder named labs/" in capsys.readouterr().out


def test_errors_of_later_cells_are_sentences_with_the_source_line(root, shell, capsys):
    path = root / "kernel.py"
    path.write_text("".join(f"line {n}\n" for n in range(1, 9)))
    shell.user_ns["path"] = str(path)
    result = shell.run_cell(
        "from labkit.errors import LabkitError\n"
        "error = LabkitError('Thread 3 strays.')\n"
        "error.file, error.line = path, 5\n"
        "raise error"
    )
    assert not result.success
    said = capsys.readouterr().out
    assert said.split("\n")[:6] == [
        "\x1b[31mLabkitError\x1b[0m: Thread 3 strays.",
        "     3  line 3",
        "     4  line 4",
        "\x1b[1m->   5  line 5\x1b[0m",
        "     6  line 6",
        "     7  line 7",
    ]


def test_other_errors_keep_their_traceback(shell, capsys):
    shell.run_cell("1 / 0")
    assert "Traceback" in capsys.readouterr().out
