"""`labkit cliff`: what it says of recorded times, of a model, and of bad input; the kernels behind it."""

from __future__ import annotations

import argparse
import json
import re

import pytest

from labkit import cliff, recorded
from labkit.errors import LabkitError
from labkit.models import waves
from labkit.root import root

GEMM = root() / "solutions" / "02_gemm" / "kernels" / "gemm"


def command(*words: str) -> int:
    parser = argparse.ArgumentParser()
    cliff.add_arguments(parser)
    return cliff.run(parser.parse_args(words))


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setenv("LABKIT_DEVICE", "emulator")
    from labkit.kernels import gpu

    gpu.available.cache_clear()
    yield
    gpu.available.cache_clear()


def jittered(microseconds: float, percent: float = 0.2) -> list[float]:
    return [microseconds * (1 + percent / 100 * step) for step in (-2, -1, 0, 1, 2, 0, 0)]


def modelled(sms: int, extra: float = 1.0, slow_at: int | None = None) -> cliff.Study:
    """Times as the model would have them; at `slow_at` they are `extra` times as long."""
    times = {
        N: jittered(N * waves.waves(N, sms).waves / 10 * (extra if N == slow_at else 1)) for N in cliff.GRID
    }
    even = {N: jittered(N**3 / 1e7) for N in cliff.GRID}
    torch = {name: even | {N: jittered(N**3 / 1e6) for N in cliff.ODD} | even for name in cliff.TORCH}
    samples = {"fixed_tile": times, "stream_k": even, "split_k": even, **torch}
    vocabulary = {"logits": {50257: jittered(200), 50304: jittered(100)}}
    power = {"random": jittered(110), "zeros": jittered(100)}
    return cliff.Study("recorded", "NVIDIA Test", "2026-01-01", sms, 132, samples, vocabulary, power)


@pytest.mark.parametrize("sms", [108, 132, 84])
def test_measured_cliffs_are_found_where_the_model_puts_them(sms):
    study = modelled(sms)
    assert [fall.N for fall in study.cliffs("fixed_tile")] == [drop.N for drop in waves.cliffs(sms)]
    assert study.cliffs("stream_k") == []
    rows = cliff.table(study)
    for row in rows:
        assert row["fixed_tile"] == pytest.approx(row["predicted"])


def test_a_drop_that_was_not_predicted_is_in_the_table():
    study = modelled(108, extra=1.5, slow_at=2000)
    assert 2000 in [row["N"] for row in cliff.table(study)]
    assert 2000 not in [drop.N for drop in waves.cliffs(108)]


def test_a_drop_within_the_spread_is_none():
    study = modelled(108)
    study.samples["fixed_tile"][1800] = [300.0, 150.0, 450.0, 160.0, 440.0, 300.0, 310.0]
    assert study.fall("fixed_tile", 1800).drop > 0.15
    assert not study.fall("fixed_tile", 1800).clear
    assert 1800 not in [fall.N for fall in study.cliffs("fixed_tile")]


def test_the_predicted_curve_is_scaled_to_the_measured_one():
    study = modelled(108)
    assert study.scaled()[1] == pytest.approx(study.curve("fixed_tile")[1], rel=1e-6)


def test_sizes_and_series_that_were_not_measured():
    study = modelled(108)
    with pytest.raises(LabkitError, match="nearest size is 1024"):
        study.tflops("fixed_tile", 3)
    with pytest.raises(LabkitError, match="there are fixed_tile"):
        study.curve("cublas")
    assert study.fall("fixed_tile", 1024) is None


@pytest.mark.parametrize("sms", [1, 84, 108, 132])
def test_plan_holds_every_size_once_and_cliffs_first(sms):
    chunks = cliff._plan(sms)
    flat = [N for chunk in chunks for N in chunk]
    assert len(flat) == len(set(flat))
    assert set(flat) == {*cliff.GRID, *cliff.ODD, *cliff.OFF}
    first = {N for drop in waves.cliffs(sms) for N in (drop.before, drop.N)} | set(cliff.ALIGNMENT)
    assert set(flat[: len(first)]) == first


def test_what_is_written_is_what_is_read(tmp_path, monkeypatch, no_gpu):
    study = modelled(108)
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    (tmp_path / "cliff").mkdir()
    (tmp_path / "cliff" / "gemm-108-sms--nvidia-test.json").write_text(json.dumps(study.to_dict()))
    again = cliff.find_recorded(108)
    assert again.samples == study.samples
    assert (again.sms, again.all_sms, again.origin) == (108, 132, "recorded")
    with pytest.raises(LabkitError, match="nearest is --sms 108, and --model --sms 84"):
        cliff.find_recorded(84)


def test_nothing_recorded_and_no_gpu(tmp_path, monkeypatch, no_gpu):
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    with pytest.raises(LabkitError, match="--model"):
        command()


def test_the_model_as_json(capsys):
    assert command("--model", "--sms", "108", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["origin"] == "modelled" and data["sms"] == 108
    assert [row["N"] for row in data["cliffs"]] == [1800, 2568, 3080, 3592, 4104]


def test_the_model_as_a_table_and_a_page(capsys, tmp_path):
    page = tmp_path / "cliff.html"
    assert command("--model", "--sms", "132", "--html", str(page)) == 0
    out = capsys.readouterr().out
    assert [int(N) for N in re.findall(r"^ (\d{4}) ", out, re.MULTILINE)] == [2056, 2824, 3592, 4104]
    text = page.read_text()
    assert "153 tiles" in text and "<script" in text
    assert not re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=.https?:", text)


@pytest.mark.parametrize("sms", [1, 5000])
def test_a_model_with_one_sm_or_more_than_tiles(sms, capsys, tmp_path):
    assert command("--model", "--sms", str(sms), "--html", str(tmp_path / "page.html")) == 0


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--sms", "0"], "take at least 1"),
        (["--sms", "-3", "--model"], "take at least 1"),
        (["--model", "--record"], "leave it out"),
        (["--model", "--html", "/no/such/folder/page.html"], "no folder"),
    ],
)
def test_bad_input_gets_one_sentence(words, sentence):
    with pytest.raises(LabkitError, match=sentence) as caught:
        command(*words)
    assert "\n" not in str(caught.value)


def test_more_sms_than_there_are():
    with pytest.raises(LabkitError, match="has 132 SMs, not 133; take --sms 132"):
        cliff.check_sms(133, 132)
    cliff.check_sms(132, 132)
    cliff.check_sms(None, 132)


def test_the_page_of_a_study_shows_every_picture(tmp_path):
    study = modelled(108)
    shown = cliff.figures(study)
    titles = [figure.layout.title.text for figure in shown]
    for words in ("PyTorch", "never changes", "1792: 98 tiles", "1800: 120 tiles", "consist", "cure", "divisib",
                  "50257", "other numbers"):  # fmt: skip
        assert any(words in title for title in titles), words
    assert all("recorded 2026-01-01" in t or "modeled" in t for t in titles)
    text = cliff._text(study)
    assert "2.00 times as fast" in text and "1.10 times as fast" in text and "recorded" in text
    assert "within the spread" not in text
    study.power["zeros"].append(111)
    assert "within the spread" in cliff._text(study)


# --- the kernels ---------------------------------------------------------------------------------------


def check(name: str, shape: tuple[int, int, int], sms: int = cliff.DEFAULT_SMS):
    from labkit import problems
    from labkit.check import check

    dims = dict(zip("MNK", shape, strict=True))
    kernel = cliff.load_kernel(GEMM / f"{name}.cu", sms)
    return check(problems.get("gemm"), kernel, name, shapes=[dims])


@pytest.mark.parametrize("shape", [(1, 1, 1), (33, 65, 17), (5, 123, 123), (257, 129, 20), (300, 260, 33)])
def test_fixed_tile(shape):
    result = check("fixed_tile", shape)
    assert result.passed, result


# With 8 blocks: some without work; one tile in many shares; shares of several tiles; all at once.
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (33, 65, 17), (64, 64, 128), (65, 65, 203), (130, 140, 40), (320, 200, 9)]
)
def test_stream_k(shape):
    result = check("stream_k", shape, sms=1)
    assert result.passed, result


def test_stream_k_with_more_blocks_than_steps():
    result = check("stream_k", (70, 64, 20))
    assert result.passed, result


def test_stream_k_adds_in_the_same_order_every_time():
    import torch

    from labkit.emulator import Emulation
    from labkit.kernels import emulating

    generator = torch.Generator().manual_seed(0)
    A, B = (torch.randn(shape, generator=generator) for shape in ((65, 300), (300, 70)))
    results = []
    for chunk in (64, 16_384):  # blocks one after the other, and all at once
        C = torch.empty(65, 70)
        with emulating(Emulation(chunk_threads=chunk)):
            cliff.load_kernel(GEMM / "stream_k.cu", sms=1).launch(C, A, B)
        results.append(C)
    assert torch.equal(*results)


def test_one_block_of_fixed_tile_fills_a_multiprocessor():
    """By registers: 256 threads times at least 129 is more than half of the 65536 that there are."""
    source = (GEMM / "fixed_tile.cu").read_text()
    rows, columns, threads = (int(re.search(rf"\b{name} = (\d+)", source)[1]) for name in ("BM", "BN", "THREADS"))
    assert (rows, columns) == waves.TILE
    sums = rows * columns // threads
    assert 2 * threads * (sums + 1) > 65536


@pytest.mark.gpu
def test_on_some_of_the_sms():
    with cliff.limited(16):
        assert cliff.count_sms() == 16
    with pytest.raises(LabkitError, match="take --sms"):
        with cliff.limited(100_000):
            pass


@pytest.mark.gpu
def test_measure_in_little_time():
    study = cliff.measure(seconds=1.0)
    assert study.origin == "measured" and study.sms == study.all_sms
    for drop in waves.cliffs(study.sms)[:1]:
        assert study.fall("fixed_tile", drop.N).drop > 0.15
        assert study.fall("stream_k", drop.N).drop < 0.1
