from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from labkit import cli
from labkit.kernels import gpu

ROOT = Path(__file__).parents[1]

WRONG = """\
from numba import cuda

print("a learner's own output")


@cuda.jit
def nothing(C):
    pass


def launch(C, A, B):
    nothing[1, 32](C)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with empty labs/ and no solutions/."""
    (tmp_path / "labs").mkdir()
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    return tmp_path


def learner(project: Path, text: str) -> None:
    from labkit.ladder import problem

    path = problem("gemm")["naive"].path
    path.parent.mkdir(parents=True)
    path.write_text(text)


def learner_solved(project: Path) -> None:
    from labkit.ladder import problem

    path = problem("gemm")["naive"].path
    learner(project, (ROOT / "solutions" / path.relative_to(project / "labs")).read_text())


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "COMMAND"),
        (["chekc"], "chekc"),
        (["check", "gemm"], "'gemm' should read like gemm/naive"),
        (["profile", "gemm/naive", "M=0"], "'M=0' should read like M=256"),
        (["profile", "gemm/naive", "256"], "'256' should read like M=256"),
        (["profile", "gemm/naive", "M=1e3"], "'M=1e3' should read like M=256"),
        (["bench", "attention", "--shape", "N=64,scale=half"], "'scale=half' should read like M=256"),
    ],
)
def test_wrong_usage_exits_with_2(argv: list[str], sentence: str, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(argv)
    assert stopped.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["check", "gem/naive"], "did you mean gemm?"),
        (["check", "gemm/naiev"], "did you mean naive?"),
        (["profile", "gemm/naive", "Q=3"], "Q"),
        (["profile", "gemm/naive"], "%%kernel gemm/naive"),
        (["check", "gemm/naive", "--solution"], "instructors"),
        (["build"], "instructors"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_with_1(project, argv: list[str], sentence: str, capsys):
    assert cli.main(argv) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("labkit: ") and shown.err.count("\n") == 1
    assert sentence in shown.err


def test_outside_of_a_project_it_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LABKIT_ROOT", raising=False)
    assert cli.main(["check", "gemm/naive", "--solution"]) == 1
    assert "labs/" in capsys.readouterr().err


def test_check_says_that_a_right_kernel_passes(project, capsys):
    learner_solved(project)
    assert cli.main(["check", "gemm/naive"]) == 0
    assert "passed" in capsys.readouterr().out


def test_check_says_why_a_wrong_kernel_fails(project, capsys):
    learner(project, WRONG)
    assert cli.main(["check", "gemm/naive"]) == 1
    assert "C[0, 0]" in capsys.readouterr().out


def test_json_is_all_there_is_on_stdout(project, capsys):
    learner(project, WRONG)
    assert cli.main(["check", "gemm/naive", "--json"]) == 1
    shown = capsys.readouterr()
    result = json.loads(shown.out)
    assert not result["passed"] and "C[0, 0]" in result["failures"][0]["message"]
    assert "a learner's own output" in shown.err


def test_profile_counts(project, capsys):
    learner_solved(project)
    assert cli.main(["profile", "gemm/naive", "M=32", "N=32", "K=32", "--json"]) == 0
    profile = json.loads(capsys.readouterr().out)
    assert profile["origin"] == "emulated"
    ffma = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
    assert profile["metrics"][ffma] == 32**3
    assert cli.main(["profile", "gemm/naive", "M=32", "N=32", "K=32"]) == 0
    assert ffma in capsys.readouterr().out


def test_build_check_finds_the_notebooks_in_step(monkeypatch, capsys):
    monkeypatch.setenv("LABKIT_ROOT", str(ROOT))
    assert cli.main(["build", "--check"]) == 0, capsys.readouterr().err


def test_the_command_is_installed():
    for command in ([Path(sys.executable).with_name("labkit")], [sys.executable, "-m", "labkit"]):
        done = subprocess.run([*command, "--help"], capture_output=True, text=True)
        assert done.returncode == 0 and "doctor" in done.stdout


@pytest.mark.parametrize("words", [["--solution", "M=16", "N=16", "K=16"], ["M=16", "--solution", "N=16", "K=16"]])
def test_sizes_may_stand_before_and_after_options(words, capsys):
    assert cli.main(["profile", "gemm/naive", *words]) == 0
    assert "at M=16 N=16 K=16" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["bench", "gemm"], ["latency"], ["cliff"]])
def test_what_is_recorded_is_not_recorded_again(words, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gpu, "available", lambda: True)
    assert cli.main([*words, "--recorded", "--record", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert "--record keeps what is measured on a GPU here; leave it out." in shown.err and not shown.out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["check", "gemm/naive", "foo"], ["profile", "gemm/naive", "--solution", "M=0"]])
def test_what_does_not_belong_is_named(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(words)
    assert words[-1] in capsys.readouterr().err
