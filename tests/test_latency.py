"""`labkit latency`: its kernels do what is counted for them, its curves read back, and its pictures show them."""

from __future__ import annotations

import json

import numpy as np
import pytest

import labkit as lk
from labkit import cli
from labkit.models import latency

REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"


@pytest.fixture(scope="module")
def curves():
    return latency.find_recorded("NVIDIA H200")


@pytest.mark.parametrize("width, loads", [(4, 1), (4, 8), (16, 4)])
def test_a_read_loads_each_byte_once(width, loads):
    kernel = latency._kernel("read_in_flight", LOADS=loads, WIDTH=width)
    turns, (grid, block) = 3, (2, 64)
    data = np.ones(turns * loads * grid * block * width // 4, np.float32)
    profile = lk.emulate(kernel, grid, block, [np.zeros(1, np.float32), data, turns])
    assert profile[REQUESTS] == grid * block // 32 * loads * turns
    assert profile["labkit__distinct_bytes_global_op_ld.sum"] == data.nbytes == 32 * profile[SECTORS]


@pytest.mark.parametrize("chains", latency.CHAINS)
def test_chains_share_as_many_multiply_adds(chains):
    kernel = latency._kernel("fma_in_flight", ILP=chains)
    profile = lk.emulate(kernel, 1, 64, [np.zeros(1, np.float32), np.ones(32, np.float32), 5])
    assert profile[FFMA] == 64 * 5 * latency.FMA_PER_TURN


@pytest.mark.parametrize("warps", latency.WARPS)
def test_so_many_warps_are_on_each_multiprocessor(warps):
    grid, block = latency._config(132, warps)
    assert grid * block == 132 * warps * 32 and block <= 1024 and grid % 132 == 0


def test_rates_are_work_over_median_time():
    rate = latency.Rate(8, 2, 16, 1000, 3e9, (1.0, 2.0, 9.0))
    assert rate.rate == pytest.approx(1500)  # 3e9 bytes in 2 ms


def test_what_was_recorded_reads_back(curves):
    again = {"machine": "NVIDIA H200", **json.loads(json.dumps(curves.to_dict()))}
    assert latency._back(latency.Load, again["loads"][3]) == curves.loads[3]
    assert latency._back(latency.Rate, again["reads"][5]) == curves.reads[5]
    assert [load.footprint for load in curves.loads] == latency.footprints()
    assert len(curves.reads) == len(latency.WIDTHS) * len(latency.LOADS) * len(latency.WARPS)
    assert curves.label.startswith("recorded on NVIDIA H200, ")


def test_levels_are_in_order(curves):
    levels = [curves.shared, curves.l1, curves.l2_hit, curves.dram]
    assert [level.median_ns for level in levels] == sorted(level.median_ns for level in levels)
    assert curves.l2_hit.footprint < curves.l2 < curves.dram.footprint / 4


def test_faults_are_one_sentence(curves, monkeypatch):
    monkeypatch.setenv("LABKIT_DEVICE", "emulator")
    with pytest.raises(lk.LabkitError, match="No footprint of 5000 bytes was measured; the nearest is 4096"):
        curves.at(5000)
    with pytest.raises(lk.LabkitError, match="there is none here"):
        latency.measure()
    with pytest.raises(lk.LabkitError, match="No latencies were recorded"):
        latency.find_recorded("a GPU that does not exist")


def test_the_command_shows_and_draws(capsys, tmp_path):
    assert cli.main(["latency", "--recorded", "--html", str(tmp_path / "x.html")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("One load takes: shared memory ") and "268,435,456 bytes" in said
    assert (tmp_path / "x.html").read_text().count("Plotly.newPlot") == 3
    assert cli.main(["latency", "--recorded", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["origin"] == "recorded"


def test_pictures_hold_every_point(curves):
    chase = lk.plots.latency(curves).data[0]
    assert list(chase.y) == [load.median_ns for load in curves.loads]
    figure = lk.plots.littles_law(curves, {"here": 8192})
    *dots, law = figure.data
    assert [(a.text, a.x) for a in figure.layout.annotations] == [("here", pytest.approx(np.log10(8192)))]
    assert sum(len(trace.x) for trace in dots) == len(curves.reads)
    assert law.y[0] == pytest.approx(law.x[0] * curves.sms / curves.dram.median_ns)
    assert max(law.y) == curves.ceilings["read_gbps"]
    assert sum(len(trace.x) for trace in lk.plots.ilp(curves).data) == len(curves.fmas)
