"""What a problem may ask for beyond one product of matrices: integers, packed rows, options, no operator of PyTorch."""

from __future__ import annotations

import re

import pytest
import torch

import labkit as lk
from labkit.check import check
from labkit.ladder import Rung
from labkit.problems import Problem, Step, Tensor

SOURCE = """
// launch row_sums<<<(R), (32), 0>>>(y, q, n, R, K, negate)
extern "C" __global__ void row_sums(int *y, const signed char *q, int *n, int R, int K, int negate)
{
    int row = blockIdx.x, sum = 0;
    for (int k = threadIdx.x; k < K; k += 32)
        sum += q[row * (K + 2) + 2 + k];
    sum = __reduce_add_sync(0xffffffff, sum);
    if (threadIdx.x == 0)
        y[row] = negate ? -sum : sum;
}
"""


def _rows(shape, generator):
    rows = torch.randint(-3, 3, shape, generator=generator, device=generator.device, dtype=torch.int8)
    rows[:, :2] = 99  # a header, which is not to be summed
    return rows


def _sums(q, n, negate=0):
    sums = q[:, 2:].long().sum(1)
    return -sums if negate else sums


PROBLEM = Problem(
    name="row_sums",
    lab="01_gpu_basics",
    formula="y[r] = sum over k of q[r, 2 + k]",
    dims=("R", "K"),
    inputs={"q": Tensor(("R", "K + 2"), "int8", _rows), "n": Tensor(("K",), "int32")},
    outputs={"y": Tensor(("R",), "int32")},
    reference=_sums,
    baseline=None,
    flops=lambda d: d["R"] * d["K"],
    ladder=(Step("warp", "a warp per row", "nothing", languages=("cuda",), why="numba has no reduce_add"),),
    shapes=({"R": 3, "K": 5}, {"R": 2, "K": 70, "negate": 1}),
    large_shapes=(),
    profile_shape={"R": 4, "K": 64},
    bench_shape={"R": 4, "K": 64},
    options={"negate": 0},
)


@pytest.fixture
def rung(tmp_path):
    def make(source):
        path = tmp_path / "warp.cu"
        path.write_text(source)
        return Rung(PROBLEM, PROBLEM.ladder[0], "cuda", "file", path)

    return make


def test_integers_packed_rows_and_options_pass(rung):
    result = rung(SOURCE).check()
    assert result.passed, result
    assert result.runs[-1] == "R=2 K=70 negate=1 (emulator)"


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("2 + k]", "1 + k]", r"y\[0\] got .*error .*, allowed 0\)"),
        ("negate ? -sum : sum", "sum", r"negate=1: y\[0\] got"),
        ("y[row] =", "if (row) y[row] =", r"y\[0\] was never written"),
        ("k < K", "k <= K", r"reads q\[3, 0\], outside q"),
    ],
)
def test_wrong_ones_do_not(rung, old, new, says):
    assert old in SOURCE
    result = rung(SOURCE.replace(old, new)).check()
    assert not result.passed
    assert re.search(says, str(result.failures[0])), result


def test_integers_have_no_tolerance(rung):
    result = check(PROBLEM, rung(SOURCE.replace("sum = __reduce", "sum = 1 + __reduce")).kernel, "off by one")
    assert result.failures[0].kind == "value"


def test_shapes_may_leave_options_out():
    assert PROBLEM.dims_of({"R": 1, "K": 2}) == {"R": 1, "K": 2, "negate": 0}
    with pytest.raises(lk.LabkitError, match="dimensions R, K and the options negate; rows is none of them"):
        PROBLEM.dims_of({"rows": 1, "K": 2})


def test_compulsory_bytes_follow_dtypes_and_packed_rows():
    assert PROBLEM.bytes({"R": 3, "K": 10}) == 3 * 12 + 4 * 10 + 4 * 3


def test_profile_passes_options(rung):
    assert rung(SOURCE).profile(R=2, K=32, negate=1).shape == {"R": 2, "K": 32, "negate": 1}


def test_a_rung_may_have_its_own_dtypes():
    precision = lk.problem("precision")
    full, half = precision["fp32"].problem, precision["fp16"].problem
    assert (full.bytes({"N": 10}), half.bytes({"N": 10})) == (80, 40)
    assert half.make_inputs({"N": 3})["x"].dtype == half.make_outputs({"N": 3})["y"].dtype == torch.float16
    assert precision.bytes({"N": 10}) == 80


def test_recorded_times_of_rivals():
    fusion = lk.problem("fusion")
    compiled = fusion.rival("compiled")
    assert compiled.label == "fusion/compiled" and compiled.origin == "recorded" and not compiled.baseline_ms
    with pytest.raises(lk.LabkitError, match="No rival of fusion is called 'compile'; did you mean compiled"):
        fusion.rival("compile")


def test_a_bench_shows_what_pytorch_has_no_operator_for():
    from labkit.bench import show_recorded

    table = show_recorded("divergence").table
    assert len(table) and table["of PyTorch"].isna().all()
