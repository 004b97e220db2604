"""The leaderboard of lab 04: right kernels only, measured and emulated apart, one plain file."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import labkit as lk
from labkit import leaderboard
from labkit.kernels import gpu

INT4 = lk.problem("int4_gqa")


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    (tmp_path / "labs").mkdir()
    monkeypatch.setenv("LABKIT_ROOT", str(tmp_path))
    return tmp_path


def _rung(tmp_path, instructions=1e8, passed=True, source="a", timing=None, problem=INT4.problem):
    """As a rung, without a kernel behind it."""
    counts = {leaderboard.INSTRUCTIONS: instructions, leaderboard.SECTORS: 2.0**21}
    counts |= {leaderboard.SHARED.format(kind): 2.0**19 for kind in ("ld", "st")}
    check = SimpleNamespace(passed=passed, failures=["O[0, 0, 0] got 1 want 2"])
    asked = []
    return SimpleNamespace(
        problem=problem, step=problem.ladder[-1], language="cuda", label="int4_gqa/mine", fingerprint=source,
        path=tmp_path / "mine.cu", check=lambda: check, time=lambda: timing, asked=asked,
        profile=lambda **shape: asked.append(shape) or counts,
    )  # fmt: skip


@pytest.fixture
def emulated(monkeypatch):
    monkeypatch.setattr(gpu, "available", lambda: False)


def test_an_entry_is_kept_with_its_figures_per_number(project, emulated):
    rung = _rung(project, instructions=2.0**23)
    board = leaderboard.enter(rung, " Ada ")
    (entry,) = board.entries
    numbers = 2 * 32 * 8192 * 128
    assert (entry.name, entry.kernel, entry.origin) == ("Ada", "mine.cu", "emulated")
    assert entry.instructions == 32 * 2**23 / numbers and entry.wavefronts == 2**20 / numbers
    assert entry.bytes == 32 * 2**21 / numbers and entry.median_ms is None
    assert rung.asked == [{**leaderboard.EMULATED_SHAPE, "sample": leaderboard.BLOCKS}]
    assert leaderboard.show() == board
    assert json.loads(leaderboard.path().read_text())[0]["name"] == "Ada"
    assert leaderboard.path().relative_to(project).parts[:3] == ("labs", "04_int4_gqa", "kernels")


def test_a_wrong_kernel_is_not_entered(project, emulated):
    with pytest.raises(lk.LabkitError, match=r"not right yet.*got 1 want 2"):
        leaderboard.enter(_rung(project, passed=False), "Ada")
    assert not leaderboard.path().exists() and leaderboard.show().entries == ()


def test_the_best_is_first_and_origins_are_apart(project, monkeypatch):
    monkeypatch.setattr(gpu, "available", lambda: False)
    leaderboard.enter(_rung(project, 3e8, source="slow"), "Bob")
    leaderboard.enter(_rung(project, 1e8, source="fast"), "Ada")
    monkeypatch.setattr(gpu, "available", lambda: True)
    timing = SimpleNamespace(shape={"B": 512}, machine="NVIDIA H200", median_ms=0.2, spread_ms=0.01, gbps=2800.0)
    board = leaderboard.enter(_rung(project, timing=timing), "Eve")
    measured, emulated = board.tables.items()
    assert measured[0] == "measured on NVIDIA H200; B=512" and [e.name for e in measured[1]] == ["Eve"]
    assert emulated[0].startswith("emulated, ") and [e.name for e in emulated[1]] == ["Ada", "Bob"]
    said = repr(board)
    places = [said.index(word) for word in ("measured on", "Eve", "emulated", "Ada", "Bob")]
    assert places == sorted(places)
    assert "0.2000" in said and "Eve" in board._repr_html_()


def test_the_same_kernel_again_replaces_itself(project, emulated):
    leaderboard.enter(_rung(project), "Ada")
    leaderboard.enter(_rung(project), "Ada")
    assert len(leaderboard.show().entries) == 1
    leaderboard.enter(_rung(project, source="b"), "Ada")
    leaderboard.enter(_rung(project), "Bob")
    assert len(leaderboard.show().entries) == 3


def test_problems_have_boards_of_their_own(project, emulated):
    leaderboard.enter(_rung(project, problem=lk.problem("int4_gqa_4group").problem), "Ada")
    assert leaderboard.show().entries == () and "nobody" in repr(leaderboard.show())
    assert len(leaderboard.show("int4_gqa_4group").entries) == 1


def test_names_are_text_in_the_page(project, emulated):
    page = leaderboard.enter(_rung(project), "<b>Ada</b>")._repr_html_()
    assert "&lt;b&gt;Ada" in page and "<b>Ada" not in page


@pytest.mark.parametrize("name", ["", "  ", None])
def test_an_entry_needs_a_name(project, emulated, name):
    with pytest.raises(lk.LabkitError, match="needs a name"):
        leaderboard.enter(_rung(project), name)


def test_other_labs_have_no_board(project, emulated):
    with pytest.raises(lk.LabkitError, match="gemm is of 02_gemm"):
        leaderboard.enter(_rung(project, problem=lk.problem("gemm").problem), "Ada")


@pytest.mark.parametrize("text", ["{", "[{}]", "[1]", '[{"name": "Ada"}]'])
def test_a_broken_file_is_told_and_kept(project, emulated, text):
    leaderboard.path().parent.mkdir(parents=True)
    leaderboard.path().write_text(text)
    with pytest.raises(lk.LabkitError, match="mend it, or move it away"):
        leaderboard.enter(_rung(project), "Ada")
    assert leaderboard.path().read_text() == text


def test_a_kernel_of_the_ladder(project, emulated, request, monkeypatch):
    """The real thing: instructions per number are those of the whole launch."""
    solutions = request.config.rootpath / "solutions" / "04_int4_gqa" / "kernels" / "int4_gqa"
    shape = {"B": 2, "T": 256, "HQ": 8, "split_k": 2}
    monkeypatch.setattr(leaderboard, "EMULATED_SHAPE", shape)
    rung = INT4["opt10_pad_dequant", "cuda"].load(solutions / "opt10_pad_dequant.cu")
    (entry,) = leaderboard.enter(rung, "the tenth").entries
    whole = rung.profile(**shape)[leaderboard.INSTRUCTIONS] * 32 / (2 * 2 * 256 * 128)
    assert entry.instructions == pytest.approx(whole, rel=0.05) and entry.kernel == "opt10_pad_dequant (cuda)"
    assert entry.fingerprint == rung.fingerprint
