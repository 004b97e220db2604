"""Profiles and traces of people's own programs: on the emulator, under a made-up ncu, and of recorded traces."""

from __future__ import annotations

import gzip
import json
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import cuda

import labkit as lk
from labkit import cli
from labkit.errors import LabkitError
from labkit.kernels import gpu
from labkit.profiling import measured, ncu, source
from labkit.profiling.trace import GRAPH_GAP_US, GpuTrace, Kernel, draw, read

HERE = Path(__file__).parent
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
RATIO = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"

PROGRAM = '''\
"""A program of someone's own: it knows nothing of labkit's emulator."""

import argparse
import sys
import threading

import numpy as np
import nvtx
import torch
from helper import factor
from numba import cuda

import labkit as lk


@cuda.jit
def saxpy(y, x, a):
    i = cuda.grid(1)
    if i < y.shape[0]:
        y[i] = a * x[i] + y[i]


scale = lk.cuda_kernel(
    """extern "C" __global__ void scale(float *y, float a, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n)
            y[i] *= a;
    }""",
    "scale",
)


@nvtx.annotate("numpy")
def with_numpy(n):
    y = np.zeros(n, np.float32)
    saxpy[1, 128](y, np.ones(n, np.float32), 2)
    assert (y == 2).all()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--end", default="well")
    a = parser.parse_args()
    assert __name__ == "__main__" and sys.modules["__main__"].main is main
    x, y = torch.ones(a.n, device="cuda"), torch.zeros(a.n).cuda()
    before = y.cpu()
    with nvtx.annotate("steps"):
        for k in range(a.steps):
            with nvtx.annotate(f"step {k}", domain="mine"):
                saxpy[(a.n + 127) // 128, 128](y, x, 2.0)
                scale[(a.n + 255) // 256, 256](y, np.float32(0.5), a.n)
    if a.end == "badly":
        raise ValueError("that was it")
    if a.end == "exit":
        sys.exit(3)
    torch.cuda.nvtx.range_push("thread")
    d = cuda.to_device(np.zeros(64, np.float32))
    worker = threading.Thread(target=lambda: saxpy[1, 64](d, d, 1.0))
    worker.start()
    worker.join()
    torch.cuda.nvtx.range_pop()
    with_numpy(100)
    torch.cuda.synchronize()
    assert not before.any(), "what was copied to the host before stays as it was"
    print("result", float(y.sum()) * factor / a.n)


main()
'''


@pytest.fixture
def program(tmp_path, monkeypatch) -> Path:
    """A program in a folder outside of any project, with a module of its own beside it."""
    (tmp_path / "helper.py").write_text("factor = 2\n")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LABKIT_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    return path


TINY = """\
import numpy as np
from numba import cuda


@cuda.jit
def copy(out, a):
    out[cuda.grid(1)] = a[cuda.grid(1)]


for _ in range(3):
    copy[1, 64](np.zeros(64, np.float32), np.ones(64, np.float32))
"""


@pytest.fixture
def tiny(tmp_path, monkeypatch) -> Path:
    """A program that launches one kernel three times, and takes no torch."""
    path = tmp_path / "tiny.py"
    path.write_text(TINY)
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LABKIT_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    return path


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """The profiles of PROGRAM with --n 1000."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "helper.py").write_text("factor = 2\n")
    (folder / "program.py").write_text(PROGRAM)
    with (folder / "printed").open("w") as printed:
        found = lk.profile_script(folder / "program.py", ["--n", 1000, "--steps", "2"], stdout=printed.fileno())
    assert "result 3.0" in (folder / "printed").read_text()  # ((0 + 2) / 2 + 2) / 2 * 2
    return found


def test_a_program_runs_unchanged_and_is_counted(counted):
    found = counted
    assert (found.origin, found.status, len(found)) == ("emulated", 0, 2)
    assert [k["kernel"] for k in found.launches] == ["saxpy", "scale", "saxpy", "scale", "saxpy", "saxpy"]

    @cuda.jit
    def saxpy(y, x, a):
        i = cuda.grid(1)
        if i < y.shape[0]:
            y[i] = a * x[i] + y[i]

    y = np.zeros(1000, np.float32)
    alone = lk.emulate(saxpy, 8, 128, (y, np.ones(1000, np.float32), 2.0))
    first = found.first["saxpy"]
    assert first.metrics == alone.metrics and first.fidelity == alone.fidelity
    assert [a.indices for a in first.accesses] == [a.indices for a in alone.accesses]
    together = found["saxpy"]
    # 1000 elements in 32 warps twice, 64 in 2 and 100 in 4; two loads each.
    assert together[REQUESTS] == 2 * (32 + 32 + 2 + 4)
    assert together[SECTORS] == 2 * (125 + 125 + 8 + 13)
    assert together[RATIO] == together[SECTORS] / together[REQUESTS]
    assert (together["launch__grid_size"], together["launch__block_size"]) == (8 + 8 + 1 + 1, 128)
    line = 1 + PROGRAM.splitlines().index("        y[i] = a * x[i] + y[i]")
    lines = together.lines.set_index("line")
    assert lines.loc[line, SECTORS] == together[SECTORS] and lines.loc[line, RATIO] == together[RATIO]
    assert set(together.arrays) == {"x", "y"}


def test_ranges_stand_beside_launches_and_choose_them(program, counted):
    assert [k["ranges"] for k in counted.launches] == [
        ["steps", "mine@step 0"], ["steps", "mine@step 0"], ["steps", "mine@step 1"], ["steps", "mine@step 1"],
        [], ["numpy"],
    ]  # fmt: skip
    found = lk.profile_script(program, ["--n", "256"], range="mine@step 1")
    assert [k["kernel"] for k in found.launches] == ["saxpy", "scale"]
    second = lk.profile_script(program, ["--n", "256"], kernel="saxpy", launch_skip=1, launch_count=2)
    assert [k["ranges"] for k in second.launches] == [["steps", "mine@step 1"], []]


def test_a_kernel_that_is_not_there(tiny):
    with pytest.raises(LabkitError, match="No launch fits .* the program launched copy, 3 in all"):
        lk.profile_script(tiny, kernel="cpoy")


def test_the_table_and_the_frame(counted):
    found = counted
    frame = found.frame.set_index("kernel")
    assert list(frame["launches"]) == [4, 2] and frame.loc["scale", "grid"] == (4, 1, 1)
    assert frame.loc["saxpy", SECTORS] == found["saxpy"][SECTORS]
    text = repr(found)
    row = next(line for line in text.splitlines() if line.startswith("saxpy"))
    assert row.split()[:6] == ["saxpy", "4", "8,", "...", "128,", "..."] and "n/a" in row
    assert "the emulator counts, and has no clock" in text
    assert "<td style='text-align:left'>saxpy</td>" in found._repr_html_()
    assert [p.kernel for p in found] == ["saxpy", "scale"] and found[1] is found["scale"]
    with pytest.raises(LabkitError, match="launched no kernel 'sgemm'; it launched saxpy, scale"):
        found["sgemm"]


def test_a_frame_of_every_metric(counted):
    profile = counted.first["scale"]
    frame = profile.frame.set_index("metric")
    assert list(frame.columns) == ["value", "unit", "description"] and len(frame) == len(profile.metrics)
    assert frame.loc[REQUESTS, "value"] == profile[REQUESTS] and frame.loc[REQUESTS, "unit"] == "requests"
    assert "Warp instructions" in frame.loc[REQUESTS, "description"]


@pytest.mark.parametrize("end, status, words", [("badly", 1, "ValueError: that was it"), ("exit", 3, "")])
def test_what_ran_before_the_end_is_counted(program, end, status, words, capfd):
    found = lk.profile_script(program, ["--end", end])
    assert found.status == status and len(found.launches) == 4
    assert f"ended with exit status {status}" in repr(found) and words in repr(found)
    shown = capfd.readouterr().err
    assert words in shown and "labkit/profiling" not in shown, "the traceback is the program's own"


def test_a_fault_of_a_kernel_is_a_sentence(tmp_path, capfd):
    path = tmp_path / "stray.py"
    path.write_text(
        "import numpy as np\nfrom numba import cuda\n\n\n@cuda.jit\ndef stray(a):\n    a[cuda.threadIdx.x + 1] = 0\n"
        "\n\nstray[1, 32](np.zeros(32, np.float32))\n"
    )
    with pytest.raises(LabkitError, match="stray.py.*before a kernel had run to its end"):
        lk.profile_script(path)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("print('nothing')", "launched no kernel"),
        ("import sys; sys.exit(4)", "ended with exit status 4 before a kernel had run to its end"),
        ("import os; os._exit(5)", "ended with exit status 5 before its launches could be written down"),
        ("import os; os.abort()", "was killed by signal 6"),
    ],
)
def test_programs_without_launches(tmp_path, text, sentence):
    (tmp_path / "p.py").write_text(text)
    with pytest.raises(LabkitError, match=sentence):
        lk.profile_script(tmp_path / "p.py")


def test_mistakes_in_the_asking(program, tmp_path):
    with pytest.raises(LabkitError, match="There is no file .*nosuch.py"):
        lk.profile_script(tmp_path / "nosuch.py")
    with pytest.raises(LabkitError, match="There is no set of metrics 'fast'"):
        lk.profile_script(program, metrics="fast")
    with pytest.raises(LabkitError, match="launch_count 1 or more"):
        lk.profile_script(program, launch_count=0)


def test_time_and_graphs_are_refused_in_a_sentence(tmp_path, capfd):
    clock = "a, b = (torch.cuda.Event(enable_timing=True) for _ in 'ab')\na.record()\nb.record()\na.elapsed_time(b)"
    for text, sentence in ((clock, "has no clock"), ("torch.cuda.CUDAGraph()", "captures no CUDA graphs")):
        (tmp_path / "p.py").write_text(f"import torch\n{text}\n")
        with pytest.raises(LabkitError, match=sentence):
            lk.profile_script(tmp_path / "p.py")


def test_the_command_line(program, tiny, capfd):
    assert cli.main(["profile", str(tiny), "--kernel", "copy"]) == 0
    shown = capfd.readouterr().out
    assert "out[cuda.grid(1)] = a[cuda.grid(1)]" in shown and "bound by" in shown
    assert cli.main(["profile", str(program), "--json", "--", "--end", "badly"]) == 1
    shown = capfd.readouterr()
    assert json.loads(shown.out)["kernels"]["saxpy"]["metrics"][REQUESTS] and "that was it" in shown.err
    with pytest.raises(SystemExit, match="2"):
        cli.main(["profile", str(program), "--n", "300"])
    assert "own arguments behind --" in capfd.readouterr().err
    assert cli.main(["profile", str(program), "--cuda"]) == 1
    assert cli.main(["profile", "gemm/naive", "--kernel", "x"]) == 1
    assert "are for programs" in capfd.readouterr().err


LARGE = """\
import numpy as np
from numba import cuda


@cuda.jit
def first(out, a):
    i = cuda.grid(1)
    out[i % 32] = a[i % 32]


first[2**13, 1024](np.zeros(32, np.float32), np.ones(32, np.float32))
"""


def test_large_launches_are_announced_and_can_be_sampled(tmp_path, capfd):
    path = tmp_path / "p.py"
    path.write_text(LARGE)
    found = lk.profile_script(path)
    assert "first has 8,388,608 threads, which the emulator runs for a while; --sample" in capfd.readouterr().err
    assert cli.main(["profile", str(path), "--sample", "4", "--json"]) == 0
    shown = capfd.readouterr()
    sampled = json.loads(shown.out)
    assert shown.err == ""
    profile = sampled["kernels"]["first"]
    assert profile["metrics"][SECTORS] == found["first"][SECTORS] == 4 * 2**13 * 32
    assert profile["fidelity"][SECTORS] == "sampled" and found["first"].fidelity[SECTORS] == "exact"
    assert "At most 4 blocks of each launch ran" in sampled["notes"][1]
    with pytest.raises(LabkitError, match="1 or more"):
        lk.profile_script(path, sample=0)


# ---------------------------------------------------------------------------- under ncu

RAW = f'''"ID","Process ID","thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg","Kernel Name",\
"Block Size","Grid Size","{SECTORS}","{REQUESTS}","gpu__time_duration.sum","launch__thread_count"
"","","","","","","sector","request","ns",""
"0","1","9  ""<default domain>:a: b:none:none:RGB:0xff:REGISTERED:a: b""  ""mine:s 0:none:none:none:none:none:none"" ",\
"__main__::saxpy[abi:v1,cw51](Array<float, 1, C>, double)","(128, 1, 1)","(4, 2, 1)","8","2","1,000","1024"
"1","1","","void at::vectorized_elementwise_kernel<4, at::MulFunctor<float>>(int, T2)","(64, 1, 1)","(1, 1, 1)",\
"4","1","3,000","64"
"2","1","","__main__::saxpy[abi:v1,cw51](Array<float, 1, C>, double)","(128, 1, 1)","(4, 1, 1)","4","2","2,000","512"
'''
SOURCE = '''"File Path","/there/program.py"
"Function Name","saxpy"
"Line No","Source","Address","Source","# Samples","Instructions Executed","Thread Instructions Executed",\
"Predicated-On Thread Instructions Executed","Divergent Branches","L2 Theoretical Sectors Global"
"7","y[i] = a","-","-","9","6","192","192","1","40"
"","","0x10","      LDG.E R1, desc[UR4][R2.64]","5","2","64","64","0","16"
"","","...","...","-","-","-","-","-","-"
"","","0x40","@!P0  LDG.E R1, desc[UR4][R4.64]","3","2","64","32","0","8"
"","","0x50","@P1   BRA 0x10","0","2","64","64","1","0"
"8","nothing","-","-","0","0","0","0","0","0"
"","","0x60","      NOP","0","0","0","0","0","0"
"9","z","-","-","0","0","0","0","0","0"
"","","0x70","      STG.E desc[UR4][R4.64], R1","1","2","64","64","0","16"
"","","0x80","      HFMA2 R1, R2, R3, R4","0","2","64","64","0","0"
'''


@pytest.fixture
def fake_ncu(monkeypatch, tmp_path):
    """A program called ncu on PATH. It says `log`, runs the program if `runs`, and has a report if `raw` is given."""

    def make(*, log="", code=0, raw=RAW, lines=SOURCE, version="2025.3.1.0", runs=False):
        path = tmp_path / "bin" / "ncu"
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            f"#!{sys.executable}\nimport subprocess, sys\na = sys.argv\n"
            f"if '--version' in a:\n    print('Version {version} (build 1)')\n    sys.exit(0)\n"
            f"if '--import' in a:\n    print({lines!r} if 'source' in a else {raw!r})\n    sys.exit(0)\n"
            f"open({str(tmp_path / 'args')!r}, 'w').write('\\n'.join(a[1:]))\n"
            f"open(a[a.index('--log-file') + 1], 'w').write({log!r})\n"
            "at = a.index('-o') + 2\n"
            f"status = subprocess.run(a[at:]).returncode if {runs} else {code}\n"
            f"if {bool(raw)}: open(a[at - 1], 'w').write('report')\n"
            "sys.exit(status)\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setenv("PATH", str(path.parent))
        monkeypatch.setattr(gpu, "available", lambda: True)
        return tmp_path / "args"

    return make


def test_a_program_under_ncu(fake_ncu, program):
    arguments = fake_ncu()
    found = lk.profile_script(program, ["--n", "7"], kernel=None, metrics="quick", launch_skip=2, launch_count=5)
    said = arguments.read_text()
    assert f"-o\n{said.split('-o')[1].split()[0]}\n{sys.executable}\n{program}\n--n\n7" in said
    assert "--launch-skip\n2\n--launch-count\n5" in said and "--nvtx\n" in said and "--section" not in said
    assert (found.origin, [p.kernel for p in found]) == (
        "measured", ["saxpy", "vectorized_elementwise_kernel<MulFunctor>"],
    )  # fmt: skip
    assert found["saxpy"]["gpu__time_duration.sum"] == 3000
    assert found.first["saxpy"]["gpu__time_duration.sum"] == 1000
    assert found.launches[0]["ranges"] == ("a: b", "mine@s 0") and found.launches[0]["grid"] == (4, 2, 1)
    row = next(line for line in repr(found).splitlines() if line.startswith("saxpy"))
    assert row.split()[:5] == ["saxpy", "2", "4x2,", "...", "128"] and "3" in row
    assert Path(found.report).read_text() == "report" and f"{found.report} (ncu-ui opens it)" in repr(found)


def test_a_kernel_is_found_by_its_plain_name(fake_ncu, program):
    arguments = fake_ncu()
    found = lk.profile_script(program, kernel="saxpy", range="mine@s 0")
    assert "--kernel-name\nregex:^(saxpy)(\\[.*)?$\n--nvtx-include\nmine@s 0/" in arguments.read_text()
    assert [p.kernel for p in found] == ["saxpy"]


def test_lines_by_ncu_have_the_emulators_names(fake_ncu, program):
    arguments = fake_ncu()
    found = lk.profile_script(program, metrics="source")
    said = arguments.read_text()
    assert "--section\nSourceCounters\n--import-source\nyes" in said
    assert "labkit.profiling.host" in said, "numba keeps line information"
    seven, nine = found["saxpy"].line_counts
    assert (seven["file"], seven["line"], seven[SECTORS]) == ("/there/program.py", 7, 24)
    assert REQUESTS not in seven and RATIO not in seven, "how many warps were off is not known"
    assert seven["smsp__sass_branch_targets_threads_divergent.sum"] == 1 and seven[source.SAMPLES] == 8
    assert nine["l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio"] == 8
    assert nine["smsp__sass_thread_inst_executed_op_hfma_pred_on.sum"] == 128
    assert found.first["saxpy"].line_counts == (), "they are of both launches"


def test_lines_add_up(fake_ncu):
    twice = source.together([source.read(SOURCE)["saxpy"]] * 2)
    assert [line["line"] for line in twice] == [7, 9]
    assert twice[0][SECTORS] == 48 and REQUESTS not in twice[0]
    assert twice[1]["l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"] == 4


REFUSALS = {
    "permission": ({"log": "==ERROR== ERR_NVGPUCTRPERM", "code": 1, "raw": ""}, "cap-add=SYS_ADMIN"),
    "library": ({"log": "==ERROR== LibraryNotLoaded", "code": 1, "raw": ""}, "LibraryNotLoaded"),
    "busy": ({"log": "==ERROR== a driver resource was unavailable.", "code": 9, "raw": ""}, "dcgmi profile --pause"),
    "replay": ({"log": '==ERROR== Failed to profile "k" in process 1', "code": 1, "raw": ""}, "could not replay"),
    "old": ({"version": "2021.1.0.0"}, "Nsight Compute 2021.1, which is too old; install 2022.3"),
    "chip": ({"log": "==ERROR== Profiling is not supported on device 0", "code": 1, "raw": ""}, "know this GPU"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_the_emulator_stands_in_where_ncu_refuses(fake_ncu, tiny, case, capfd):
    how, sentence = REFUSALS[case]
    fake_ncu(**how)
    found = lk.profile_script(tiny)
    assert found.origin == "emulated" and found["copy"][SECTORS] == 24 and found.report is None
    assert sentence in found.notes[-1] and "\n" not in found.notes[-1]
    assert "The emulator stands in." in capfd.readouterr().err

    out, ones = np.zeros(64, np.float32), np.ones(64, np.float32)

    @cuda.jit
    def copy(out, a):
        out[cuda.grid(1)] = a[cuda.grid(1)]

    one = measured.profile(lambda: copy[1, 64](out, ones), label="copy", shape={}, names={})
    assert one.origin == "emulated" and one[SECTORS] == 8 and sentence in one.notes[-1]


def test_without_ncu_the_emulator_stands_in(tiny, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu, "available", lambda: True)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ncu, "_PLACES", ())
    found = lk.profile_script(tiny)
    assert found.origin == "emulated" and "ncu) is not installed" in found.notes[-1]


def test_what_no_emulator_could_mend_is_an_error(fake_ncu, program):
    nothing = "==WARNING== No kernels were profiled.\nAvailable Kernels:\n1. dot_kernel\n2. saxpy[abi:v1,cw]\n"
    fake_ncu(log=nothing, raw="")
    sentence = "No launch fits .*nosuch.*; the program's kernels are dot_kernel, saxpy"
    with pytest.raises(LabkitError, match=sentence):
        lk.profile_script(program, kernel="nosuch")
    fake_ncu(log="==WARNING== No kernels were profiled.", raw="")
    with pytest.raises(LabkitError, match="launched no kernel on the GPU"):
        lk.profile_script(program)
    fake_ncu(log="==ERROR== The application returned an error code (3).", code=3, raw="")
    with pytest.raises(LabkitError, match="ended with exit status 3 before a kernel was profiled"):
        lk.profile_script(program)


def test_a_program_that_crashed_after_some_kernels(fake_ncu, program):
    fake_ncu(log="==ERROR== The application returned an error code (6).", code=6)
    found = lk.profile_script(program)
    assert (found.origin, found.status) == ("measured", 6) and "ended with exit status 6" in repr(found)


def test_reports_are_kept_where_one_says_and_not_without_end(fake_ncu, program, tmp_path, monkeypatch):
    fake_ncu()
    monkeypatch.setattr(ncu, "KEPT", 3)
    kept = [lk.profile_script(program, metrics="quick").report for _ in range(5)]
    folder = tmp_path / "cache" / "reports"
    assert sorted(map(str, folder.glob("*"))) == sorted(kept[2:])
    (tmp_path / "labs").mkdir()  # now it is a project
    assert lk.profile_script(program).report.startswith(str(tmp_path / ".labkit" / "reports"))
    assert lk.profile_script(program, keep=False).report is None
    assert lk.profile_script(program, keep=tmp_path / "mine.ncu-rep").report == str(tmp_path / "mine.ncu-rep")
    out, ones = np.zeros(64, np.float32), np.ones(64, np.float32)

    @cuda.jit
    def copy(out, a):
        out[cuda.grid(1)] = a[cuda.grid(1)]

    def three():
        for _ in range(3):
            copy[1, 64](out, ones)

    one = measured.profile(three, label="copy/one", shape={}, names={}, metrics="source", keep=tmp_path / "there")
    assert one.origin == "measured" and Path(one.report).parent == tmp_path / "there" and "copy-one" in one.report
    assert f"Nsight Compute's report: {one.report} (ncu-ui opens it)" in repr(one) and one.report in one._repr_html_()
    assert one.line_counts[0][SECTORS] == 24, "ncu's lines, not the emulator's"
    assert one.accesses and "addresses, which pictures show, are emulated" in one.notes[-1]
    again = type(one).from_dict(json.loads(json.dumps(one.to_dict())))
    assert again.report == one.report and again == one


def test_recorded_lines_are_the_emulators(tmp_path, monkeypatch):
    """What ncu printed of tests/lined_kernels.py on an H200, against the emulator's lines of the same program.

    Not of the FFMA there: PTX executes it in all lanes and selects, ptxas predicates it.
    """
    text = gzip.decompress((HERE / "lined_kernels_h200.csv.gz").read_bytes()).decode()
    measured = source.read(text)
    emulated = lk.profile_script(HERE / "lined_kernels.py")
    shared = "l1tex__data_{}_mem_shared_op_{}.sum".format
    agreed = [
        SECTORS, SECTORS.replace("_ld.", "_st."), REQUESTS, REQUESTS.replace("_ld.", "_st."),
        *(shared(what, kind) for what in ("pipe_lsu_wavefronts", "bank_conflicts_pipe_lsu") for kind in ("ld", "st")),
        "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
    ]  # fmt: skip
    assert list(measured) == [p.kernel for p in emulated] == ["turn", "mix"]
    for profile in emulated:
        both = [
            {at["line"]: {n: at[n] for n in agreed if at.get(n)} for at in lines if any(at.get(n) for n in agreed)}
            for lines in (measured[profile.kernel], profile.line_counts)
        ]
        assert both[0] == both[1] and len(both[0]) >= 2
    assert sum(at.get(source.SAMPLES, 0) for at in measured["turn"]) > 0


# ---------------------------------------------------------------------------- traces


def kernel(start, time, launched, *, call=0, graph=False, name="k"):
    return Kernel(name, start, time, 7, launched=launched, call=call, graph=graph)


def test_gaps_have_causes():
    kernels = (
        kernel(10, 2, 0, call=1), kernel(20, 2, 11, call=2), kernel(50, 2, 40, call=3),
        kernel(60, 2, 55, call=4, graph=True), kernel(62.5, 2, 55, call=4, graph=True), kernel(63, 5, 56, call=5),
        kernel(1068, 2, 1000, call=6),
    )  # fmt: skip
    trace = GpuTrace("p.py", "measured", kernels, waits=(25.0,))
    causes = ["launch", "host", "launch", "graph", "host"]
    assert [(g.time, g.cause) for g in trace.gaps] == list(zip([8, 28, 8, 0.5, 1000], causes, strict=True))
    assert (trace.span_us, trace.idle_us, trace.busy_us) == (1060, 1044.5, 15.5)
    assert trace.graph_saves_us == 16 - 2 * GRAPH_GAP_US
    assert list(trace.frame["total_us"]) == [17] and list(trace.frame["launches"]) == [7]


def test_a_trace_without_a_gpu_lists_launches(program, tiny, capfd):
    trace = lk.trace_script(program, ["--n", "256"])  # torch, nvtx, threads
    assert [k.name for k in trace.kernels] == ["saxpy", "scale", "saxpy", "scale", "saxpy", "saxpy"]
    assert trace.kernels[3].ranges == ("steps", "mine@step 1") and trace.kernels[0].start is None
    assert "no GPU here" in str(trace) and "saxpy  grid 2, block 128  in steps > mine@step 0" in str(trace)
    with pytest.raises(LabkitError, match="no times to draw"):
        lk.plots.gpu_trace(trace)
    with pytest.raises(LabkitError, match="has no times"):
        _ = trace.graph_saves_us
    capfd.readouterr()
    assert cli.main(["trace", str(tiny), "--json"]) == 0
    assert len(json.loads(capfd.readouterr().out)["kernels"]) == 3
    with pytest.raises(LabkitError, match="There is no file"):
        lk.trace_script("nosuch.py")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> dict[str, GpuTrace]:
    """What torch's profiler wrote of tests/small_kernels.py on an H200, launch by launch and as a graph."""
    found = {}
    for name in ("eager", "graph"):
        path = tmp_path_factory.mktemp("traces") / f"{name}.json"
        path.write_bytes(gzip.decompress((HERE / f"trace_{name}_h200.json.gz").read_bytes()))
        found[name] = read(path, "small_kernels.py")
    return found


def test_a_recorded_trace_and_what_a_graph_saves(recorded):
    eager, graph = recorded["eager"], recorded["graph"]
    inside = [[k for k in t.kernels if "rounds" in k.ranges] for t in (eager, graph)]
    assert [len(own) for own in inside] == [200, 200] and {k.name for own in inside for k in own} == {"increment"}
    assert not any(k.graph for k in inside[0]) and all(k.graph for k in inside[1])
    spans = [own[-1].end - own[0].start for own in inside]
    gaps = [g for g in eager.gaps if g.cause == "launch" and "rounds" in g.before.ranges]
    saved = sum(g.time - GRAPH_GAP_US for g in gaps)
    assert saved == pytest.approx(spans[0] - spans[1], rel=0.1), "the estimate against the graph itself"
    assert "CUDA graphs would save at most" in str(eager) and "H200" in str(eager)
    assert {g.cause for g in graph.gaps if "rounds" in g.before.ranges and g.before.call == g.after.call} <= {"graph"}


def test_the_timeline_is_one_file(recorded, tmp_path):
    drawn = draw(recorded["eager"], tmp_path / "t.html")
    text = (tmp_path / "t.html").read_text()
    assert drawn.html == str(tmp_path / "t.html") and 'src="http' not in text and "increment" in text
    figure = lk.plots.gpu_trace(recorded["eager"])
    bars = next(t for t in figure.data if t.name == "increment")
    own = [k for k in recorded["eager"].kernels if k.name == "increment"]
    assert list(bars.base) == [k.start for k in own] and list(bars.x) == [k.time for k in own]
    busy = next(t for t in figure.data if t.y[0] == "GPU busy")
    total = sum(share * width for share, width in zip(busy.customdata, busy.x, strict=True))
    assert total == pytest.approx(recorded["eager"].busy_us, rel=1e-6) and 0 <= min(busy.customdata)
    ((name, start, _),) = recorded["eager"].ranges
    inside = [k for k in recorded["eager"].kernels if name in k.ranges]
    assert list(figure.layout.xaxis.range) == [start, inside[-1].end]


def test_what_is_no_trace_is_said(tmp_path):
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(LabkitError, match="is no trace of torch's profiler"):
        read(tmp_path / "t.json")
    (tmp_path / "t.json").write_text('{"traceEvents": []}')
    with pytest.raises(LabkitError, match="launched no kernel on the GPU"):
        read(tmp_path / "t.json")
