"""Profiles from the emulator, what moved between two, and Nsight Compute's answers and refusals."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import cuda

import labkit as lk
from labkit.emulator.counters import LAUNCH_BYTES
from labkit.errors import LabkitError
from labkit.profiling import Profile, ncu, profile_emulated, profile_measured
from labkit.profiling.metrics import BY_NAME, DEFAULT, METRICS, SETS, STALLS, amount

RATIO = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"


@cuda.jit
def copy(out, source, stride):
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] = source[i * stride]


def profiled(stride, n=256):
    out, source = np.zeros(n, np.float32), np.arange(n * stride).astype(np.float32)
    profile = lk.emulate(copy, n // 64, 64, (out, source, stride))
    assert (out == source[::stride]).all()
    return profile


def test_a_ratio_of_nothing_asks_for_the_work():
    @cuda.jit
    def stub(out):
        pass

    with pytest.raises(LabkitError, match="no sectors per global load request, for there are no global load requests"):
        lk.emulate(stub, 1, 32, (np.zeros(32, np.float32),))[RATIO]


def test_a_page_without_rows_names_those_that_have_some():
    with pytest.raises(LabkitError, match="nothing for the page 'speed of light'; there are memory, shared, launch"):
        lk.report(profiled(1))


@pytest.fixture(scope="module")
def one():
    return profiled(1)


@pytest.fixture(scope="module")
def eight():
    return profiled(8)


def test_emulate_a_numba_kernel(one, eight):
    assert (one.origin, one.kernel) == ("emulated", "copy")
    assert (one[REQUESTS], one[SECTORS], one[RATIO]) == (8, 32, 4)
    assert (eight[SECTORS], eight[RATIO]) == (256, 32)
    assert eight.arrays["source"] == {"loaded": 1024, "stored": 0}
    assert eight["dram__bytes_read.sum"] == 8192 + eight["labkit__code_bytes"] + LAUNCH_BYTES
    assert one["launch__registers_per_thread"] >= 16
    assert one.fidelity[SECTORS] == "exact" and one.fidelity["dram__bytes_read.sum"] == "modeled"


def test_emulate_a_cuda_kernel_with_shared_memory():
    kernel = lk.cuda_kernel(
        """extern "C" __global__ void turn(float *out, const float *in) {
            extern __shared__ float tile[];
            int i = threadIdx.x;
            tile[i * 32 % 1024] = in[i];
            __syncthreads();
            out[i] = tile[i * 32 % 1024];
        }""",
        "turn",
    )
    source, out = np.arange(32).astype(np.float32), np.zeros(32, np.float32)
    profile = lk.emulate(kernel, 1, 32, (out, source), shared=4096)
    assert (out == source).all()
    assert profile["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"] == 31
    assert profile["launch__shared_mem_per_block_dynamic"] == 4096
    assert {a.array for a in profile.accesses} == {"in", "out", "tile"}


def test_only_the_emulated_architecture_is_taken():
    with pytest.raises(LabkitError, match="counts as sm_90 does, not 'sm_80'"):
        lk.emulate(copy, 1, 32, (), arch="sm_80")


def test_nothing_launched_is_an_error():
    with pytest.raises(LabkitError, match="No kernel was launched"):
        profile_emulated(lambda: None)


def test_unknown_metric_names_the_nearest(one):
    with pytest.raises(LabkitError, match="The nearest are .*l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"):
        one["l1tex__t_sectors_pipe_lsu_mem_global_op_ld"]
    with pytest.raises(LabkitError, match="wavefronts_mem_shared_op_ld"):
        one["shared load wavefronts"]
    with pytest.raises(LabkitError, match=r"has no gpu__time_duration.sum \(time\)"):
        one["gpu__time_duration.sum"]


def test_lines_are_a_frame(one):
    number = 1 + Path(__file__).read_text().splitlines().index("        out[i] = source[i * stride]")
    line = one.lines.set_index("line").loc[number]
    assert (line[REQUESTS], line[RATIO], line["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"]) == (8, 4, 32)
    assert one.lines[SECTORS].sum() == one[SECTORS]


def test_shapes_and_names_of_a_ladder():
    rows = np.zeros(64, np.float32)
    profile = profile_emulated(
        lambda: copy[1, 64](rows, rows, 1), label="copy/one", shape={"N": 64}, names={"X": rows}
    )
    assert repr(profile).startswith("copy/one at N=64 (emulated): 2 global load requests, 4 sectors per")
    assert set(profile.arrays) == {"X"}


def test_a_way_through_json(one):
    again = Profile.from_dict(json.loads(json.dumps(one.to_dict())))
    assert again == one and again.accesses[0].indices[3] == (3,)


def test_difference_says_what_moved_and_by_how_much(one, eight):
    diff = eight.diff(one)
    assert diff[SECTORS].words == "8x more" and diff[SECTORS].good is False
    assert one.diff(eight)[SECTORS].words == "8x less" and one.diff(eight)[SECTORS].good is True
    assert REQUESTS in diff.same and REQUESTS not in [c.metric for c in diff.changes]
    assert repr(diff).splitlines()[2].split() == "sectors per global load request 4 32 8x more".split()
    assert diff.warnings == ()
    assert "nothing moved" in repr(one.diff(one)) and one.diff(one).changes == ()


def test_runs_are_read_apart_in_one_run_of_ncu(fake_ncu):
    fake_ncu()
    out, source = np.zeros(64, np.float32), np.ones(64, np.float32)
    first, second = ncu.read_each(2 * [lambda: copy[1, 64](out, source, 1)], metrics=(SECTORS, REQUESTS))
    both = ncu.combine([first, second])
    assert first[REQUESTS] != second[REQUESTS] and (both[SECTORS], both[REQUESTS]) == (2097159, 262146)
    with pytest.raises(LabkitError, match="saw 2 launches where 1 ran"):
        ncu.read_each([lambda: copy[1, 64](out, source, 1)])


@pytest.mark.parametrize(
    "before, after, words",
    [(0, 5, "new"), (5, 0, "gone"), (100, 112, "+12%"), (100, 60, "-40%"), (100, 100.1, "same"), (2, 9, "4.5x more")],
)
def test_words_of_a_change(before, after, words):
    from labkit.profiling.profile import Change

    assert Change(SECTORS, before, after).words == words


def test_difference_warns_of_unlike_runs(one):
    other = Profile("measured", "copy", {"N": 8}, dict(one.metrics))
    assert one.diff(other).warnings == (
        "The shapes differ: N=8 against none given.",
        "One is measured, the other emulated.",
    )


def test_html_explains_and_escapes(one, eight):
    text = one._repr_html_()
    assert BY_NAME[RATIO].text in text and "(modeled)" in text
    assert "out[i] = source[i * stride]" in text
    strange = Profile("recorded", "<b>", {}, {SECTORS: 1.0}, notes=("a < b",))
    assert "<b><b>" not in strange._repr_html_() and "a &lt; b" in strange._repr_html_()
    assert "<b>8x more</b>" in eight.diff(one)._repr_html_()


def test_the_table_of_metrics():
    assert len(BY_NAME) == len(METRICS + STALLS)
    assert all(m.title and m.unit and m.text.endswith(".") for m in METRICS + STALLS)
    assert not [n for n in DEFAULT if n.startswith("labkit")]
    produced = profiled(1).metrics
    assert set(produced) <= set(BY_NAME)
    assert [amount(v) for v in (1048576.0, 8.5, 1 / 3, 1234.56)] == ["1,048,576", "8.5", "0.333", "1,234.6"]


# ---------------------------------------------------------------------------- Nsight Compute

CSV = f'''==PROF== chatter
"ID","Process ID","{SECTORS}","{REQUESTS}","{RATIO}","gpu__time_duration.sum","launch__block_size"
"","","sector","request","","ns",""
"0","1","2,097,152","262,144","8","1,000","256"
"1","1","7","2","3.5","3,000","32"
'''


@pytest.fixture
def fake_ncu(monkeypatch, tmp_path):
    """Puts a program called ncu on PATH that prints `says`, exits `code`, and writes a report or not."""

    def make(says="", code=0, report=True, csv=CSV):
        path = tmp_path / "bin" / "ncu"
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            f"#!{sys.executable}\nimport sys\na = sys.argv\n"
            f"if '--import' in a:\n    print({csv!r})\n    sys.exit(0)\n"
            f"open({str(tmp_path / 'args')!r}, 'w').write('\\n'.join(a))\n"
            f"if {report}: open(a[a.index('-o') + 1], 'w').close()\n"
            f"print({says!r})\nsys.exit({code})\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setenv("PATH", str(path.parent))
        return tmp_path / "args"

    return make


def test_ncu_is_run_on_the_replay(fake_ncu):
    arguments = fake_ncu()
    metrics = (SECTORS, REQUESTS, RATIO, "gpu__time_duration.sum", "launch__block_size")
    found = ncu.combine(ncu.run("some/folder", metrics))
    assert found == {
        SECTORS: 2097159,
        REQUESTS: 262146,
        RATIO: 2097159 / 262146,
        "gpu__time_duration.sum": 4000,
        "launch__block_size": 256,
    }
    text = arguments.read_text()
    assert "--clock-control\nnone\n--cache-control\nall\n--nvtx\n--nvtx-include\nlabkit@kernel/" in text
    assert text.endswith("-m\nlabkit.kernels.replay\nsome/folder\n--repeats\n1")


def test_measured_profile_of_recorded_launches(fake_ncu):
    fake_ncu()
    out, source = np.zeros(64, np.float32), np.ones(64, np.float32)
    metrics = (SECTORS, REQUESTS, RATIO)

    def twice():
        copy[1, 64](out, source, 1)
        copy[1, 64](out, source, 1)

    profile = profile_measured(twice, label="copy/one", metrics=metrics)
    assert (profile.origin, profile.kernel, profile[REQUESTS]) == ("measured", "copy/one", 262146)
    with pytest.raises(LabkitError, match="saw 2 launches where 1 ran"):
        profile_measured(lambda: copy[1, 64](out, source, 1), metrics=metrics)
    assert not out.any(), "nothing runs while it is recorded"
    with pytest.raises(LabkitError, match="No kernel was launched"):
        profile_measured(lambda: None)
    with pytest.raises(LabkitError, match="no addresses to draw"):
        lk.plots.access_map(profile, "out")


@pytest.mark.parametrize(
    "case, sentence",
    [
        ({"says": "==ERROR== ERR_NVGPUCTRPERM - no permission", "code": 1}, "cap-add=SYS_ADMIN"),
        ({"says": "Failed to initialize the profiler: LibraryNotLoaded", "code": 1}, "LibraryNotLoaded"),
        ({"says": "==WARNING== No kernels were profiled."}, "saw no kernel in the recorded range"),
        ({"report": False}, "saw no kernel in the recorded range"),
        ({"csv": "nothing", "says": "ok"}, "failed: ok"),
        ({"says": "==PROF== x\nkernel k went wrong\n==ERROR== code (2).", "code": 2}, "failed: kernel k went wrong"),
        ({"says": "==ERROR== The application crashed", "code": 139}, "failed: The application crashed"),
    ],
)
def test_refusals_are_one_sentence(fake_ncu, case, sentence):
    fake_ncu(**case)
    with pytest.raises(LabkitError, match=sentence.replace("(", r"\(")) as caught:
        ncu.run("folder", [SECTORS])
    assert "\n" not in str(caught.value)


def test_a_metric_that_the_chip_has_not_is_named(fake_ncu):
    fake_ncu()
    with pytest.raises(LabkitError, match="no metric dram__nonsense.sum on this chip"):
        ncu.run("folder", [SECTORS, "dram__nonsense.sum"])


def test_without_ncu(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ncu, "_PLACES", ())
    assert not ncu.available()
    with pytest.raises(LabkitError, match="not installed"):
        ncu.run("folder", [SECTORS])


def test_sets_of_metrics_have_what_their_names_say():
    assert set(SETS["full"]) == {*DEFAULT, *(m.name for m in STALLS)}
    for name, members in SETS.items():
        assert "gpu__time_duration.sum" in members and set(members) <= set(SETS["full"])
        assert name == "full" or len(members) < len(SETS["full"]) * 0.7
    assert {m.name for m in STALLS if "stalled" in m.name} <= set(SETS["stalls"])
    assert RATIO in SETS["memory"] and "smsp__thread_inst_executed_per_inst_executed.ratio" in SETS["compute"]
    with pytest.raises(LabkitError, match="no set of metrics 'fast'; there are full, quick, memory"):
        lk.problem("gemm")["naive"].solution.profile(metrics="fast")


@pytest.mark.parametrize("threads, drawn", [(4096, True), (2**24, False)])
def test_a_measured_profile_can_be_drawn_where_emulation_is_quick(threads, drawn, monkeypatch):
    from labkit.kernels import gpu
    from labkit.profiling import Profile, measured

    def by_ncu(fn, *, label, shape, names, metrics, **options):
        return Profile("measured", label, shape, {REQUESTS: 7.0, "launch__thread_count": threads})

    monkeypatch.setattr(ncu, "profile_measured", by_ncu)
    monkeypatch.setattr(gpu, "available", lambda: True)
    out, source = np.zeros(64, np.float32), np.ones(64, np.float32)

    def fn():
        monkeypatch.setattr(gpu, "available", lambda: False)
        copy[1, 64](out, source, 1)

    profile = measured.profile(fn, label="copy/one", shape={}, names={"out": out})
    assert (profile.origin, profile[REQUESTS], bool(profile.accesses)) == ("measured", 7.0, drawn)
