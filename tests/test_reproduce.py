"""`labkit reproduce`: published tables that agree with themselves, ours beside them, and how ours are measured."""

from __future__ import annotations

import contextlib
import json

import pytest
import torch

import labkit as lk
from labkit import cli, problems, recorded, reproduce
from labkit.check import tolerance
from labkit.kernels import gpu
from labkit.problems import _kv_int4 as kv
from labkit.problems.int4_gqa import effective_bytes
from labkit.reproduce import Ours, Plan

DATA = reproduce.published()
BATCHES = DATA["batches"]
TINY = Plan(
    problems=("int4_gqa",), batches=(2, 1), splits=(1, 2), context=64, device="cpu",
    rungs=("cu_baseline", "opt11_direct_mma"),
)  # fmt: skip


def table(number: int, machine: str = "A100") -> dict:
    (found,) = (t for t in DATA["tables"] if (t["table"], t["machine"]) == (number, machine))
    return found


# --- what was published --------------------------------------------------------------------------------


def test_all_tables_are_there():
    numbers = [t["table"] for t in DATA["tables"]]
    assert numbers == [2, 2, *range(3, 18), 19, 19]
    assert table(16)["us"]["opt 10"] == [94, 151, 266, 489, 930] and table(17)["us"]["opt 10"][-1] == 965
    assert table(19, "H100")["us"]["INT4 CU before"][-1] == 1066 and table(19, "H100")["us"]["INT4 CU after"][-1] == 575
    steps = [step.name for step in problems.get("int4_gqa").ladder]
    assert all(t["rung"] in steps for t in DATA["tables"] if "rung" in t)


@pytest.mark.parametrize("one", DATA["tables"], ids=lambda t: f"{t['table']}-{t['machine']}")
def test_published_figures_agree_with_each_other(one):
    """Bandwidths and speed-ups follow from the times, which were rounded to a microsecond; Table 9's do not."""
    for name, times in one["us"].items():
        row = 256 if "BF16" in name else {"row-wise": 68, "4 groups": 80}[one["layout"]]
        for B, us, gbps in zip(BATCHES, times, one["gbps"][name], strict=True):
            least, most = (effective_bytes(B, 8192, row) / (us + off) / 1e3 for off in (0.5, -0.5))
            assert least - 1 <= gbps <= most + 1, (name, B)
    for name, ratios in one.get("speedup", {}).items():
        last, over = list(one["us"].values())[-1], one["us"][name.removeprefix("over ")]
        off = [abs(x / y - ratio) for x, y, ratio in zip(over, last, ratios, strict=True)]
        assert (max(off) > 0.02) == ("note" in one), name


# --- beside ours ---------------------------------------------------------------------------------------


def group(problem: str, B: int, **us: float) -> dict:
    """A kernel's times: twice `us` with 2 pieces, `us` give or take 1% with 16, and less, of few samples, with 4."""
    cells = []
    for kernel, time in us.items():
        samples = [round(time * (1 + 0.002 * (i % 11 - 5)), 2) for i in range(12)]
        cells.append({"kernel": kernel, "split_k": 2, "samples_us": [2 * x for x in samples]})
        cells.append({"kernel": kernel, "split_k": 16, "samples_us": samples})
        cells.append({"kernel": kernel, "split_k": 4, "samples_us": [x / 2 for x in samples[:3]]})
    return {"problem": problem, "B": B, "clocks_mhz": [1980, 1980], "throttle": "", "cells": cells}


def ours(*groups: dict, **more) -> dict:
    return {
        "machine": "NVIDIA H200", "date": "2026-01-01", "context": 8192, "heads": 8, "fbgemm": None,
        "fingerprints": {}, "left_out": {}, "groups": list(groups), **more,
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    return tmp_path


def keep(folder, data: dict) -> None:
    (folder / "reproduce").mkdir()
    (folder / "reproduce" / "int4-gqa--nvidia-h200.json").write_text(json.dumps(data))


def test_without_a_recording_published_tables_stand_alone(folder, capsys):
    assert cli.main(["reproduce", "int4-gqa"]) == 0
    text = capsys.readouterr().out
    assert "Nothing was recorded on a GPU yet" in text and "--record" in text
    assert "Table 19, H100" in text and "930 (616)" in text and "Table 18," not in text
    assert "ours" not in text and max(map(len, text.splitlines())) <= reproduce.WIDTH


def test_the_best_split_of_those_with_enough_samples():
    found = Ours(ours(group("int4_gqa", 512, cu_baseline=1000.0)))
    best = found.best("int4_gqa", "cu_baseline", 512)
    assert best.split == 16 and best.us == pytest.approx(1000, rel=0.01) and 0 < best.spread < 20
    assert found.best("int4_gqa", "cu_baseline", 32) is None
    assert found.change("int4_gqa", "cu_baseline", "opt01_unroll_k", 512) is None


def test_a_change_agrees_differs_or_is_within_the_spread():
    found = Ours(ours(
        group("int4_gqa", 512, cu_baseline=1000.0, opt01_unroll_k=900.0, opt02_cast_p=950.0, opt03_max_registers=951.0),
        group("int4_gqa", 32, opt05_prefetch_v=50.0, opt06_group_vector_loads=40.0),
    ))  # fmt: skip
    verdicts = {(c.table, c.B): c.verdict for c in reproduce.changes(found)}
    assert verdicts[3, 512] == "agrees" and verdicts[4, 512] == "differs" and verdicts[5, 512] == "in the spread"
    assert (8, 32) not in verdicts  # 109 to 111 us is less than 2%
    assert len(verdicts) == 3


def test_our_figures_stand_beside_the_published(folder, capsys):
    rungs = {step.name: 1000.0 * 0.9**i for i, step in enumerate(problems.get("int4_gqa").ladder)}
    keep(folder, ours(
        group("int4_gqa", 512, **rungs, fbgemm=640.0),
        group("int4_gqa_4group", 512, **rungs),
        group("gqa_bf16", 512, cu_baseline=3000.0, cu_optimized=2400.0, direct_mma=600.0, torch=700.0),
        fbgemm="1.6.0", left_out={"int4_gqa B=64": "no time was left"}, fingerprints={"int4_gqa/cu_baseline": "0"},
    ))  # fmt: skip
    assert cli.main(["reproduce", "int4-gqa"]) == 0
    text = capsys.readouterr().out
    baseline = Ours(json.loads(next(folder.rglob("*.json")).read_text())).best("int4_gqa", "cu_baseline", 512).us
    rate = effective_bytes(512, 8192, 68) / baseline / 1e3
    assert f"{baseline:.1f} ±" in text and f"/16 ({rate:.0f})" in text
    assert "recorded on NVIDIA H200, 2026-01-01" in text and "fbgemm-gpu-genai 1.6.0" in text
    assert "Changed since they were recorded: int4_gqa/cu_baseline." in text
    assert "-16.8%" not in text and "-14.4%, ours -20.0% agrees" in text  # BF16 before and after, A100
    assert "Past the published steps: int4_gqa, ours" in text and "x over torch" in text
    assert "differs from 0" in text and "int4_gqa B=64 left out: no time was left." in text
    assert "nan" not in text.lower()


def test_json(folder, capsys):
    keep(folder, ours(group("int4_gqa", 512, cu_baseline=1000.0, opt01_unroll_k=900.0)))
    assert cli.main(["reproduce", "int4-gqa", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["published"] == DATA and found["changes"][0]["verdict"] == "agrees"


@pytest.mark.parametrize(
    "words, says",
    [
        (["int4_gqa"], "did you mean int4-gqa?"),
        (["int4-gqa", "--seconds", "5"], "give both, or leave it out"),
        (["int4-gqa", "--record", "x", "--seconds", "0"], "give a number above 0"),
        (["int4-gqa", "--record", "x", "--seconds", "nan"], "give a number above 0"),
    ],
)
def test_faults_are_one_sentence(words, says, capsys):
    assert cli.main(["reproduce", *words]) == 1
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


@pytest.mark.skipif(gpu.available(), reason="this machine has a GPU")
def test_nothing_is_measured_without_a_gpu(tmp_path, capsys):
    assert cli.main(["reproduce", "int4-gqa", "--record", str(tmp_path)]) == 1
    assert "there is none here" in capsys.readouterr().err and not list(tmp_path.iterdir())


# --- measuring, with a stopwatch that launches nothing ---------------------------------------------------


class Watch:
    """1 ms a call, but the 5th call of each kernel and split 2 ms where `noisy`."""

    def __init__(self, noisy: bool = False):
        self.noisy, self.calls = noisy, {}

    def once(self, run):
        n = self.calls[run] = self.calls.get(run, 0) + 1
        return (2.0 if self.noisy and n % 5 == 0 else 1.0), None


@pytest.fixture
def faked(monkeypatch):
    monkeypatch.setattr(gpu, "available", lambda: True)
    monkeypatch.setattr(reproduce, "Stopwatch", Watch)
    monkeypatch.setattr(reproduce, "read_clocks", lambda: (1980, set()))
    about = {"machine": "a GPU", "date": "2026-01-01"}
    monkeypatch.setattr(recorded, "provenance", lambda: about)

    def on_the_cpu(run):  # kernels check where their tensors are against what the machine has
        def launch(inputs, split):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(gpu, "available", lambda: False)
                return run(inputs, split)

        return launch

    real = reproduce._launcher
    monkeypatch.setattr(reproduce, "_launcher", lambda kernel: on_the_cpu(real(kernel)))


def test_all_kernels_take_part_with_all_splits(faked):
    saved = []
    data = reproduce.measure(lambda data: saved.append(json.loads(json.dumps(data))), TINY)
    assert [g["B"] for g in data["groups"]] == [2, 1] and [len(s["groups"]) for s in saved] == [1, 2, 2]
    cells = {(c["kernel"], c["split_k"]): c["samples_us"] for c in data["groups"][0]["cells"]}
    assert set(cells) == {("cu_baseline", 1), ("cu_baseline", 2), ("opt11_direct_mma", None)}
    assert all(times == [1000.0] * reproduce.LEAST_SAMPLES for times in cells.values())
    assert data["left_out"].keys() == {"int4_gqa/fbgemm"}
    baseline = lk.problem("int4_gqa")["cu_baseline", "cuda"].solution
    assert data["fingerprints"]["int4_gqa/cu_baseline"] == baseline.fingerprint
    assert Ours({"machine": "a GPU", "date": "2026-01-01", **data}).best("int4_gqa", "cu_baseline", 2).us == 1000


def test_a_run_that_is_killed_keeps_what_it_has(faked, tmp_path):
    def save(data):
        recorded.write("reproduce", "int4-gqa", data, tmp_path)
        raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        reproduce.measure(save, TINY)
    (file,) = (tmp_path / "reproduce").iterdir()
    assert [g["B"] for g in json.loads(file.read_text())["groups"]] == [2]


def test_time_that_runs_out(faked, monkeypatch):
    clock = iter(range(0, 10**6, 100))
    monkeypatch.setattr(reproduce.time, "monotonic", lambda: next(clock))
    data = reproduce.measure(lambda data: None, TINY, seconds=150)
    assert [g["B"] for g in data["groups"]] == [2] and data["left_out"]["int4_gqa B=1"] == "no time was left"
    with pytest.raises(lk.LabkitError, match="Nothing was measured: no time was left"):
        reproduce.measure(lambda data: None, TINY, seconds=50)


def test_wrong_results_are_not_timed(faked, monkeypatch):
    monkeypatch.setattr(reproduce, "_launcher", lambda kernel: lambda inputs, split: torch.zeros_like(inputs["Q"]))
    with contextlib.suppress(lk.LabkitError):
        data = reproduce.measure(lambda data: None, TINY)
        assert not any(g["cells"] for g in data["groups"])
        assert "O is off by" in data["left_out"]["cu_baseline B=2 split_k=1"]


@pytest.mark.parametrize("noisy, samples", [(False, 12), (True, 40)])
def test_sampling_goes_on_until_times_are_settled(noisy, samples):
    runs = {name: (lambda name=name: name) for name in "ab"}
    times = reproduce._turns(Watch(noisy), runs, reproduce.LEAST_SAMPLES, reproduce.MOST_SAMPLES, 60.0)
    assert [len(found) for found in times.values()] == [samples, samples]
    assert len(reproduce._turns(Watch(True), runs, 3, 40, 0.0)["a"]) == 3


def test_the_published_kernel_is_called_as_its_schema_says(monkeypatch):
    """XQ, cache_K, cache_V, seq_positions, qk_scale, num_split_ks, groups, tensor cores, logical dtype."""

    def gqa_attn_splitk(XQ, cache_K, cache_V, seq_positions, qk_scale, num_split_ks, groups, tensor_cores, dtype):
        assert (num_split_ks, groups, tensor_cores, dtype) == (16, 4, True, 0) and qk_scale == 128**-0.5
        assert XQ.shape == (2, 1, 8, 128) and seq_positions.dtype == torch.int32
        found = kv.attend(XQ[:, 0].double(), *(kv.dequantize(x).transpose(1, 2) for x in (cache_K, cache_V)),
                          seq_positions + 1)  # fmt: skip
        return found.bfloat16().unsqueeze(1), None, None

    monkeypatch.setattr(torch.ops.fbgemm, "gqa_attn_splitk", gqa_attn_splitk, raising=False)
    about = problems.get("int4_gqa_4group")
    inputs = about.make_inputs(about.dims_of({"B": 2, "T": 64, "HQ": 8}))
    got = reproduce._original(4)(inputs, 16)
    want, bound = (found["O"] for found in tolerance(about, inputs))
    assert reproduce._wrong(got, (want, bound), reproduce.ORIGINAL) is None
    assert reproduce._wrong(-got, (want, bound), reproduce.ORIGINAL).startswith("O is off by")


@pytest.mark.gpu
def test_on_a_gpu(tmp_path):
    def save(data):
        recorded.write("reproduce", "int4-gqa", data, tmp_path)

    plan = Plan(batches=(8,), splits=(4, 16), context=1024, rungs=("cu_baseline", "opt10_pad_dequant", "cu_optimized"))
    data = reproduce.measure(save, plan, seconds=120)
    assert [g["problem"] for g in data["groups"]] == list(plan.problems)
    assert not [name for name in data["left_out"] if "fbgemm" not in name]
    assert all(min(c["samples_us"]) > 0 for g in data["groups"] for c in g["cells"])
    assert "ours" in reproduce.text(Ours(json.loads(next(tmp_path.rglob("*.json")).read_text())))
