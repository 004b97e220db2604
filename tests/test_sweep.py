"""What a constant of a kernel is worth: the edited files, the table, what is recorded, and on a GPU the times."""

from __future__ import annotations

import json

import pytest

import labkit as lk
from labkit import cli, recorded, sweep
from labkit.kernels import gpu
from labkit.labels import Label

CUDA = """\
// constexpr int TILE = 1;
constexpr int BM = 128, BN = 2 * BM;  // BN = 7
constexpr int STAGES = 4;
template <int N> __device__ void f() { constexpr int STEP = N / 2; }
"""


@pytest.mark.parametrize(("name", "value"), [("BM", "128"), ("BN", "2 * BM"), ("STAGES", "4")])
def test_one_constant_of_a_file_changes(name, value):
    assert sweep.value_of(CUDA, "cuda", name)[0] == value
    changed = sweep.with_constants(CUDA, "cuda", {name: 3})
    assert sweep.value_of(changed, "cuda", name)[0] == "3"
    assert sweep.with_constants(changed, "cuda", {name: value}) == CUDA
    others = {"BM", "BN", "STAGES"} - {name}
    assert all(sweep.value_of(changed, "cuda", o)[0] == sweep.value_of(CUDA, "cuda", o)[0] for o in others)


def test_constants_of_a_module():
    source = "BLOCK = 256  # threads\n\ndef f():\n    BLOCK = 3\n"
    assert sweep.with_constants(source, "numba", {"BLOCK": 64}) == source.replace("256", "64")


@pytest.mark.parametrize(
    ("source", "language", "name", "sentence"),
    [
        (CUDA, "cuda", "TILE", "TILE is not defined in this kernel's file; write there, once, constexpr int TILE = 8;"),
        (CUDA + "constexpr int BM = 1;\n", "cuda", "BM", "BM is 2 times defined"),
        ("x = BLOCK\n", "numba", "BLOCK", "BLOCK is not defined in this kernel's file; write there, once, BLOCK = 8"),
    ],
)
def test_a_constant_that_is_not_there_is_named(source, language, name, sentence):
    with pytest.raises(lk.LabkitError, match=sentence):
        sweep.value_of(source, language, name)


@pytest.mark.skipif(gpu.available(), reason="counts are the emulator's where there is no GPU")
def test_a_kernel_in_python():
    found = sweep.sweep(lk.problem("copy")["unrolled"].solution, {"THREADS": [128, 256]}, N=70_000)
    assert found.own == {"THREADS": "256"} and found.shape["N"] == 70_000
    assert [row["metrics"]["launch__block_size"] for row in found.rows] == [128, 256]
    assert list(found.table.columns)[:3] == ["THREADS", "warp instructions", "global load sectors"]
    assert f" {found.rows[0]['metrics']['dram__bytes_read.sum']:,.0f}\n" in repr(found)


@pytest.mark.skipif(gpu.available(), reason="counts are the emulator's where there is no GPU")
def test_combinations_are_checked_and_counted():
    rung = lk.problem("copy")["unrolled", "cuda"].solution
    found = sweep.sweep(rung, {"LOADS": [2, 4], "THREADS": [256, 2048]}, N=70_000)
    assert [tuple(row["constants"].values()) for row in found.rows] == [
        ("2", "256"), ("2", "2048"), ("4", "256"), ("4", "2048"),
    ]  # fmt: skip
    two, _, four, too_many = found.rows
    assert "never written" in two["why"] and not two["metrics"]  # the kernel's launch and its loads are for four
    assert not four["why"] and four["metrics"]["launch__grid_size"] == -(-70_000 // 1024)
    assert too_many["why"] and not too_many["metrics"]
    shown = repr(found)
    assert f"LOADS=4 THREADS=2048: {too_many['why']}" in shown and shown.endswith("counted by the emulator")
    assert list(found.table["LOADS"]) == ["2", "2", "4", "4"]


def timed(rung, *medians):
    from labkit.timing import Timing

    rows = []
    for value, ms in zip(("128", "256"), medians, strict=True):
        timing = Timing(rung.label, {"N": 7}, (ms,) * 10, 1, 1, "measured", "a GPU", "2026-01-01")
        rows.append({"constants": {"BLOCK": value}, "timing": timing, "metrics": {}, "why": ""})
    return sweep.Sweep(rung.label, {"N": 7}, {"BLOCK": "256"}, rows, "measured on a GPU, 2026-01-01")


def test_what_was_recorded_is_found_again(tmp_path, monkeypatch):
    rung = lk.problem("reduce")["shuffle", "cuda"].solution
    monkeypatch.setattr(recorded, "provenance", lambda: {"machine": "a GPU", "date": "2026-01-01"})
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    before = timed(rung, 2.0, 1.0)
    path = sweep.record(rung, [before], tmp_path)
    assert json.loads(path.read_text())["fingerprint"] == rung.fingerprint
    found = sweep.find_recorded(rung, ["BLOCK"], N=7)
    assert found.rows[0]["timing"].origin == "recorded" and found.rows[0]["timing"].median_ms == 2.0
    assert list(found.table["x own"]) == [0.5, 1.0]
    with pytest.raises(lk.LabkitError, match="over BLOCK was recorded at N=8; recorded are N=7"):
        sweep.find_recorded(rung, ["BLOCK"], N=8)
    with pytest.raises(lk.LabkitError, match=r"over TILE was recorded at N=7\."):
        sweep.find_recorded(rung, ["TILE"], N=7)


@pytest.mark.skipif(gpu.available(), reason="counts are the emulator's where there is no GPU")
def test_the_command(capsys):
    words = ["sweep", "reduce/shuffle", "--cuda", "--solution", "--shape", "N=3000", "--no-check"]
    assert cli.main([*words, "BLOCK=64,128", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert [row["constants"]["BLOCK"] for row in found["rows"]] == ["64", "128"]
    assert cli.main([*words, "BLOCK=64", "--record"]) == 1
    shown = capsys.readouterr()
    assert "--record keeps what is measured on a GPU here; leave it out." in shown.err and not shown.out
    with pytest.raises(SystemExit):
        cli.main([*words, "BLOCK"])
    assert "'BLOCK' should read like GROUP=1,8" in capsys.readouterr().err


def test_a_combination_without_a_time_is_not_recorded(monkeypatch, tmp_path, capsys):
    def without_times(rung, constants):
        row = {"constants": {"BLOCK": "64"}, "timing": None, "metrics": {}, "why": "It does not compile."}
        return sweep.Sweep(rung.label, {"N": 7}, {"BLOCK": "256"}, [row])

    monkeypatch.setattr(gpu, "available", lambda: True)
    monkeypatch.setattr(sweep, "sweep", lambda rung, constants, **options: without_times(rung, constants))
    words = ["sweep", "reduce/shuffle", "--cuda", "--solution", "BLOCK=64", "--record", str(tmp_path)]
    assert cli.main(words) == 1
    assert "Nothing was recorded: a combination has no time; leave out its values." in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.gpu
@pytest.mark.skipif(not gpu.available(), reason="there is no NVIDIA GPU here")
def test_a_sweep_on_a_gpu():
    rung = lk.problem("gemm_f16")["mma_tuned", "cuda"].solution
    found = sweep.sweep(rung, {"GROUP": [1, 8]}, M=1024, N=1024, K=512)
    assert all(row["timing"].median_ms > 0 and not row["why"] for row in found.rows)
    assert found.rows[0]["metrics"] != found.rows[1]["metrics"]
    assert all(0 <= row["metrics"]["lts__t_sector_hit_rate.pct"] <= 100 for row in found.rows)


def test_what_was_recorded_is_of_kernels_as_they_are():
    files = recorded.files("sweep")
    assert files
    for path in files:
        data = json.loads(path.read_text())
        of = Label.of(data["sweeps"][0]["label"])
        assert lk.problem(of.problem)[of.rung, of.language].solution.fingerprint == data["fingerprint"], path.name
