"""The speed-of-light model: its arithmetic by hand, its samples against whole launches, its score on an H200."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

import labkit as lk
from labkit.errors import LabkitError
from labkit.models import speed as model
from labkit.models.speed import Work, figures, norm_of
from labkit.profiling import sample, speed
from labkit.profiling.speed import Compared

H200 = figures("NVIDIA H200")
FULL = {"blocks": 132 * 8, "threads": 256, "registers": 32}  # every multiprocessor full, once


def test_the_norm_lies_between_the_longest_and_the_sum():
    assert norm_of([3.0, 4.0], 2) == pytest.approx(5)
    assert norm_of([3.0, 4.0], 1) == pytest.approx(7)
    assert norm_of([3.0, 4.0], 200) == pytest.approx(4, rel=1e-3)
    assert norm_of([0.0, 0.0], 3) == 0


@pytest.mark.parametrize(
    ("what", "amount", "term", "ns"),
    [
        ("dram_read", 4249e6, "DRAM", 1e6),  # at 4249 GB/s
        ("l2_loaded", 8382e6 / 32, "L2", 1e6),
        ("l2_stored", 8382e6 / 64, "L2", 1e6),  # twice the cost
        ("lines", 132 * 1.98e6, "L1", 1e6),  # one per clock and multiprocessor
        ("wavefronts", 132 * 1.98e6, "shared", 1e6),
        ("instructions", 4 * 132 * 1.98e6, "issue", 1e6),
        ("fp32", 64.53e9, "FP32", 1e6),
        ("tensor", 800e9, "tensor", 1e6),
        ("fp64", 64 * 132 * 1.98e6, "FP64", 1e6),
        ("special", 16 * 132 * 1.98e6, "special functions", 1e6),
        ("integer", 64 * 132 * 1.98e6, "integer", 1e6),
    ],
)
def test_each_resource_alone(what, amount, term, ns):
    found = model.predict([Work(**FULL, **{what: amount})])
    assert found.terms[term] == pytest.approx(ns / 1e6, rel=1e-3)
    assert found.binds == term and found.origin == "modelled"
    assert found.ms == pytest.approx((ns + H200.launch) / 1e6, rel=1e-3)
    assert not found.certain and "bound from below" in repr(found)


def test_what_is_written_stays_in_l2_while_there_is_room():
    assert "DRAM" not in model.predict([Work(**FULL, dram_written=1e7)]).terms
    found = model.predict([Work(**FULL, dram_written=1e9, dram_filled=1e9)])
    assert found.terms["DRAM"] == pytest.approx(2 * (1e9 - H200.dirty) / H200.dram / 1e6)


def test_rounds_of_blocks_wait_one_after_the_other():
    def waiting(blocks: int) -> float:
        return model.predict([Work(blocks, 256, 32, chain=19800.0)]).terms["latency"]

    assert waiting(132) == waiting(132 * 8) == pytest.approx(0.01)  # 8 fit side by side
    assert waiting(132 * 8 + 1) == pytest.approx(0.02)
    assert waiting(132 * 80) == pytest.approx(0.1)


def test_a_tail_is_what_an_even_division_would_save():
    one = model.predict([Work(133, 1024, 64, instructions=133e6, chain=1.0)])
    assert one.tail_ms == pytest.approx(one.ms * (1 - 133 / 264), rel=0.05)
    assert one.binds == "tail"
    even = model.predict([Work(132 * 10, 1024, 64, instructions=133e6, chain=1.0)])
    assert even.tail_ms == pytest.approx(0, abs=1e-6) and even.binds == "issue"


def test_no_block_is_faster_than_alone():
    found = model.predict([Work(**FULL, instructions=1e6, chain=100.0, alone=1.98e6)])
    assert found.ms == pytest.approx(1 + H200.launch / 1e6, rel=1e-6)


def test_launches_add_up_and_devices_differ():
    work = Work(**FULL, dram_read=1e9)
    assert model.predict([work, work]).ms == pytest.approx(2 * model.predict([work]).ms)
    assert model.predict([work], "T4").terms["DRAM"] == pytest.approx(1e9 / 320 / 1e6)
    with pytest.raises(LabkitError, match="no launch"):
        model.predict([])
    with pytest.raises(LabkitError, match="names no one device"):
        model.predict([work], "GTX 480")


# ---------------------------------------------------------------------------- samples of launches


def one_work(kernel, grid, block, *args, blocks=sample.BLOCKS):
    (work,) = sample.works(lambda: kernel[grid, block](*args), blocks=blocks)
    return work


KERNELS = """
extern "C" __global__ void add(float *out, const float *in, int stride)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i * stride] + 1;
}
extern "C" __global__ void halves(float *out, const float *in)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[2 * i] = in[i];
}
extern "C" __global__ void again(float *out, const float *in, int turns)
{
    float sum = 0;
    for (int t = 0; t < turns; ++t)
        sum += in[threadIdx.x];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
extern "C" __global__ void past(float *out, const float *in, int turns)
{
    float sum = 0;
    for (int t = 0; t < turns; ++t)
        sum += __ldcg(in + threadIdx.x);
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
extern "C" __global__ void follow(int *out, const int *next, int turns)
{
    int at = 0;
    for (int t = 0; t < turns; ++t)
        at = next[at];
    out[threadIdx.x] = at;
}
extern "C" __global__ void wait_for_all(int *count, int blocks)
{
    if (threadIdx.x == 0) {
        atomicAdd(count, 1);
        while (*(volatile int *)count < blocks);
    }
}
"""


@pytest.fixture(scope="module")
def kernel():
    return lambda name: lk.cuda_kernel(KERNELS, name)


@pytest.mark.parametrize("stride", [1, 2, 8])
def test_a_sample_says_what_the_whole_launch_moves(kernel, stride):
    blocks, n = 64, 64 * 256
    work = one_work(kernel("add"), blocks, 256, np.zeros(n, "f4"), np.zeros(n * stride, "f4"), stride)
    assert (work.blocks, work.threads) == (blocks, 256)
    assert work.dram_read == 4 * n * min(stride, 16) and work.dram_written == 4 * n
    assert work.l2_loaded == n * min(stride, 8) / 8 and work.l2_stored == n / 8 and work.l2_partly == 0
    assert work.lines == n / 32 * (1 + min(stride, 32))
    assert work.fp32 == n


def test_samples_and_the_whole_agree(kernel):
    args = np.zeros(64 * 256, "f4"), np.zeros(64 * 256, "f4"), 1
    few, all_ = (one_work(kernel("add"), 64, 256, *args, blocks=blocks) for blocks in (3, 64))
    for name in ("dram_read", "l2_loaded", "lines", "instructions", "fp32", "integer"):
        assert getattr(few, name) == pytest.approx(getattr(all_, name)), name


def test_partial_stores_are_told_from_whole_ones(kernel):
    work = one_work(kernel("halves"), 8, 256, np.zeros(2 * 8 * 256, "f4"), np.zeros(8 * 256, "f4"))
    assert work.l2_partly == 8 * 256 / 4 and work.l2_stored == 0
    assert work.dram_filled == work.dram_written == 8 * 256 * 8


def test_l1_keeps_what_a_block_reads_again_unless_it_is_passed_by(kernel):
    args = np.zeros(4 * 64, "f4"), np.zeros(64, "f4"), 16
    assert one_work(kernel("again"), 4, 64, *args).l2_loaded == 4 * 8
    # Some of the loads of one address ptxas makes one.
    assert 4 * 8 * 16 >= one_work(kernel("past"), 4, 64, *args).l2_loaded >= 4 * 8 * 8


def test_a_chain_of_loads_waits_for_each(kernel):
    order = np.random.default_rng(0).permutation(4096).astype("i4")
    around = np.empty(4096, "i4")
    around[order] = np.roll(order, -1)
    short, long = (one_work(kernel("follow"), 1, 1, np.zeros(1, "i4"), around, n).chain for n in (100, 200))
    waits = model.latencies()
    assert waits["L2 hit"] < (long - short) / 100 < waits["DRAM"] + 40


def test_blocks_that_wait_for_each_other_are_told(kernel):
    with pytest.raises(LabkitError, match="waits for another block"):
        one_work(kernel("wait_for_all"), 4, 32, np.zeros(1, "i4"), 4)


def test_nothing_to_predict_is_said():
    with pytest.raises(LabkitError, match="No kernel was launched"):
        lk.predict(lambda: None)
    with pytest.raises(LabkitError, match="takes a rung, a profile, or a function"):
        lk.predict(3)


def test_a_rung_and_a_profile():
    tiled = lk.problem("gemm")["smem_tile"].solution
    small = lk.predict(tiled, M=128, N=128, K=64)
    assert small.certain and small.label.endswith("M=128 N=128 K=64") and "<table>" in small._repr_html_()
    measured = tiled.recorded()
    bound = measured.predict()
    assert not bound.certain and bound.binds == "shared"
    assert bound.ms < 1.1 * measured["gpu__time_duration.sum"] / 1e6
    with pytest.raises(LabkitError, match="own shape"):
        lk.predict(measured, M=1, N=1, K=1)


def test_a_rung_with_tensor_cores_and_asynchronous_copies():
    found = lk.predict(lk.problem("gemm_f16")["mma_async", "cuda"].solution, M=256, N=256, K=128)
    assert found.certain and found.terms["tensor"] > 0


# ---------------------------------------------------------------------------- the score

QUICK = (  # of every kind, those that take the emulator a second
    "load stride 1", "doubles stride 3", "float4 stride 2", "array of structures", "bytes", "blocks of 40 threads",
    "count_shared", "lines in L1", "rotations", "list of one warp", "roots", "integer maxima", "triangle",
    "refill in L2",
)  # fmt: skip


def test_the_score_on_recorded_launches():
    rows = list(speed.compare_launches(QUICK))
    assert statistics.median(abs(row.error) for row in rows) < 0.1
    assert sum(abs(row.error) < 0.25 for row in rows) >= 0.9 * len(rows)


def test_the_score_on_rungs():
    rungs = ("naive", "coalesced", "smem_tile", "register_1d", "vectorized")
    rows = list(speed.compare_rungs("gemm", 1024, [f"gemm/{rung} (CUDA C++) (solution)" for rung in rungs]))
    assert len(rows) == 5 and statistics.median(abs(row.error) for row in rows) < 0.2
    right, total = speed.order(rows)
    assert total == 4 and right >= 3


def test_order_counts_neighbours_of_one_ladder_that_differ_enough():
    def row(name, measured, modelled, group="g"):
        return Compared(name, group, measured, modelled, "DRAM")

    rows = [row("a", 1, 1), row("b", 2, 3), row("c", 2.1, 1), row("d", 1, 2)]
    rows += [row("e (CUDA C++)", 5, 1), row("f (CUDA C++)", 1, 2, "h")]
    assert speed.order(rows) == (1, 2)  # a-b right; b-c too near; c-d wrong; d-e and e-f are not neighbours


def test_every_recorded_launch_is_that_of_the_table():
    for entry in speed._recorded()["entries"]:
        assert entry["fingerprint"] == speed.fingerprint(speed.cases()[entry["case"]]), entry["case"]
    assert len(speed._recorded()["entries"]) >= 40
