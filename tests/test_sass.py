"""What ptxas made of a kernel, on kernels compiled here: fusions, splits, drops, registers, spills."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from labkit.emulator import sass
from labkit.emulator.counters import Counters
from labkit.emulator.engine import Emulation
from labkit.emulator.launch import Launch, Pointer
from labkit.emulator.ptx import parse
from labkit.errors import LabkitError

PTXAS = sass.find("ptxas")
WAVES = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"

SOURCE = r"""
#define K extern "C" __global__ void
K tile(float *o, const float *a) {
    __shared__ float s[16][16], t[16][16];
    int x = threadIdx.x, y = threadIdx.y;
    s[y][x] = a[y * 16 + x]; t[y][x] = a[256 + y * 16 + x];
    __syncthreads();
    float v = 0;
    for (int k = 0; k < 16; k++) v += s[y][k] * t[k][x];
    o[y * 16 + x] = v;
}
K padded(float *o, const float *a) {
    __shared__ float s[16][17];
    int x = threadIdx.x, y = threadIdx.y;
    s[y][x] = a[y * 16 + x];
    __syncthreads();
    float v = 0;
    for (int k = 0; k < 16; k++) v += s[y][k] * s[k][x];
    o[y * 16 + x] = v;
}
K after_odd_array(float *o, const float *a) {  // t begins 12 bytes in: nothing to fuse
    __shared__ float first[3];
    __shared__ float t[256];
    int x = threadIdx.x + 16 * threadIdx.y;
    if (x < 3) first[x] = a[x];
    t[x] = a[x];
    __syncthreads();
    float v = first[x % 3];
    for (int k = 0; k < 8; k++) v += t[(x & 7) * 8 + k];
    o[x] = v;
}
K dead_lanes(float *o, const float4 *a) {
    __shared__ float4 s[64];
    int x = threadIdx.x;
    s[x] = a[x];
    __syncthreads();
    float4 q = s[63 - x];
    o[x] = q.x + q.w;
}
K doubles(double *o, const double *a) {
    __shared__ double s[16][16];
    int x = threadIdx.x, y = threadIdx.y;
    s[y][x] = a[y * 16 + x];
    __syncthreads();
    double v = 0;
    for (int k = 0; k < 16; k++) v += s[y][k] * s[k][x];
    o[y * 16 + x] = v;
}
K blocked(float *C, const float *A) {
    __shared__ float s[8][64], t[8][64];
    int i = threadIdx.x, tx = i % 16, ty = i / 16;
    float acc[4][4] = {};
    for (int j = i; j < 512; j += 256) { s[j / 64][j % 64] = A[j]; t[j / 64][j % 64] = A[512 + j]; }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 8; k++)
        for (int r = 0; r < 4; r++)
            for (int c = 0; c < 4; c++) acc[r][c] += s[k][ty * 4 + r] * t[k][tx * 4 + c];
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) C[(ty * 4 + r) * 64 + tx * 4 + c] = acc[r][c];
}
K atomics(int *o, const int *a) {
    int x = threadIdx.x;
    atomicAdd(&o[a[x] & 3], 1 + x);
    int old = atomicAdd(&o[8 + a[x]], x);
    o[x + 64] = old;
}
K division(float *o, const float *a) { int x = threadIdx.x; o[x] = a[x] / a[x + 32]; }
K tail(float *o, const float *a, unsigned long long n) {  // ptxas unrolls it
    for (unsigned long long i = threadIdx.x; i < n; i += 64) o[i] = a[i];
}
K in_arms(float *o, const float *a) {  // a product that is added in one arm of two alone is no part of an FMA
    int x = threadIdx.x;
    float v = a[x], s = a[x + 32], u = v * s;
    if (x % 2) u = s * s + u;
    o[x] = u;
}
K last_for_one(float *o, const float *a) {  // the last additions are moved behind the branch
    int x = threadIdx.x;
    float v = a[x];
    for (int d = 16; d; d /= 2) v = v * 3 + __shfl_xor_sync(~0u, v, d) * v;
    if (!x) o[0] = v;
}
K spilling(float *o, const float *a) {
    float v[64];
#pragma unroll
    for (int i = 0; i < 64; i++) v[i] = a[i * 32 + threadIdx.x];
    __syncthreads();
    float s = 0;
#pragma unroll
    for (int i = 0; i < 64; i++) s += v[i] * v[63 - i] + v[(i * 7) % 64];
    o[threadIdx.x] = s;
}
"""


@cache
def compiled() -> str:
    from cuda.bindings import nvrtc

    _, handle = nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"kernels.cu", 0, [], [])
    options = [b"--gpu-architecture=compute_90", b"-lineinfo"]
    assert nvrtc.nvrtcCompileProgram(handle, len(options), options)[0] == 0
    text = b" " * nvrtc.nvrtcGetPTXSize(handle)[1]
    nvrtc.nvrtcGetPTX(handle, text)
    return text.decode().rstrip("\0 ")


def plan_of(entry, **fields):
    ptx = compiled()
    launch = Launch(ptx, entry, (1, 1, 1), (32, 1, 1), (), **fields)
    return sass.memory_plan(launch, parse(ptx).program(entry))


def loads(entry, plan):
    """The widths of the shared loads that the plan leaves, sorted."""
    found = []
    for instr in parse(compiled()).program(entry).instructions:
        if instr.op == "ld" and "shared" in instr.mods:
            own = ((0, sass._ptx_width(instr)),)
            found += [width for _, width in plan.parts.get(instr.index, own)]
    return sorted(found)


def run(entry, block, *more, counters, size=2048, dtype=np.float32):
    emulation = Emulation(counters=counters)
    out, data = np.zeros(16384, dtype), np.arange(size).astype(dtype) % 61
    pointers = [Pointer(emulation.memory.add(x.view(np.uint8))) for x in (out, data)]
    emulation.run(Launch(compiled(), entry, (1, 1, 1), block, (*pointers, *more)))
    return counters


@pytest.mark.parametrize(
    "entry, widths",
    [
        ("tile", [4] * 16 + [16] * 4),
        ("padded", [4] * 32),
        ("dead_lanes", [4, 4]),
        ("doubles", [8] * 16 + [16] * 8),
        ("blocked", [16] * 16),
    ],
)
def test_shared_loads_as_ptxas_left_them(entry, widths):
    plan = plan_of(entry)
    assert loads(entry, plan) == widths
    assert WAVES not in plan.bounds and plan.notes == ()


def test_a_row_of_a_tile_is_read_16_bytes_at_a_time():
    plan = plan_of("tile")
    fused = [pc for pc, parts in plan.parts.items() if parts]
    instructions = parse(compiled()).program("tile").instructions
    assert [instructions[pc].operands[1].offset for pc in fused] == [0, 16, 32, 48]
    counters = run("tile", (16, 16, 1), counters=Counters())
    # 8 warps: 16 loads of t at one wavefront, 4 fused loads of s at two (lanes agree in pairs)
    assert counters.metrics[WAVES] == 8 * (16 + 4 * 2)
    assert counters.fidelity[WAVES] == "exact"
    assert run("tile", (16, 16, 1), counters=Counters(sass=False)).metrics[WAVES] == 8 * 32


def test_split_vector_keeps_its_live_lanes():
    (parts,) = plan_of("dead_lanes").parts.values()
    assert parts == ((0, 4), (12, 4))


def test_an_array_off_alignment_is_not_fused():
    code = sass.machine_code(compiled(), "after_odd_array").code
    assert Counter(s.op for s in code if s.op.startswith("LDS")) == {"LDS": 9}
    assert loads("after_odd_array", plan_of("after_odd_array")) == [4] * 9


@pytest.fixture
def no_ptxas(monkeypatch, tmp_path):
    """As where the wheel of ptxas is not installed."""
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    find = sass.find
    monkeypatch.setattr(sass, "find", lambda tool: find(tool) if tool != "ptxas" else None)
    sass.machine_code.cache_clear()
    yield
    sass.machine_code.cache_clear()


def test_nvjitlink_makes_the_same_accesses_of_the_whole_program(no_ptxas):
    for entry in ("tile", "padded", "after_odd_array", "dead_lanes", "doubles", "blocked"):
        linked = sass.machine_code(compiled(), entry)
        cubin, _ = sass._ptxas(PTXAS, compiled(), ["-arch=sm_90", "-lineinfo"])
        whole = sass._read(sass._disassemble(cubin), "", entry)
        memory = [Counter(s.op for s in m.code if re.match(r"(LD|ST)[SG]", s.op)) for m in (linked, whole)]
        assert memory[0] == memory[1], entry
        assert not linked.exact


def test_without_ptxas_registers_are_near_and_said_to_be(no_ptxas):
    counters = run("tile", (16, 16, 1), counters=Counters())
    assert counters.fidelity["launch__registers_per_thread"] == "modeled"
    assert counters.fidelity["dram__bytes_read.sum"] == "bound"
    assert counters.fidelity[WAVES] == "exact"


def test_registers_code_and_shared_memory_are_what_ptxas_says():
    machine = sass.machine_code(compiled(), "padded")
    log = sass._ptxas(PTXAS, compiled(), ["-arch=sm_90", "-v"])[1].split("'padded'")[-1]
    assert f"Used {machine.registers} registers" in log and f"{machine.shared} bytes smem" in log
    counters = run("padded", (16, 16, 1), counters=Counters())
    assert counters.fidelity["launch__registers_per_thread"] == "exact"
    assert counters.metrics["launch__registers_per_thread"] == max(machine.registers, 16)
    assert counters.metrics["launch__shared_mem_per_block_static"] == machine.shared
    assert counters.metrics["labkit__code_bytes"] == 16 * len(machine.code)


def test_an_atomic_whose_result_nobody_wants_is_a_reduction():
    counters = run("atomics", (32, 1, 1), counters=Counters(), dtype=np.int32)
    name = "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
    assert [counters.metrics[name.format(kind)] for kind in ("atom", "red")] == [1, 1]


def test_expanded_division_makes_its_flops_a_bound():
    plan = plan_of("division")
    assert "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum" in plan.bounds
    assert "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum" not in plan_of("tile").bounds


def test_a_loop_that_ptxas_unrolls_keeps_its_counts_where_lanes_stay_together():
    assert len(plan_of("tail").repeated) == 2
    together, apart = (run("tail", (64, 1, 1), n.to_bytes(8, "little"), counters=Counters()) for n in (320, 310))
    for kind in ("ld", "st"):
        name = f"l1tex__t_requests_pipe_lsu_mem_global_op_{kind}.sum"
        assert together.metrics[name] == apart.metrics[name] == 10
        assert (together.fidelity[name], apart.fidelity[name]) == ("exact", "bound")


def test_an_operation_that_only_some_threads_need_is_a_bound():
    name = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
    assert [s.op for s in sass.machine_code(compiled(), "in_arms").code if s.guard and s.op.startswith("FFMA")]
    assert name in plan_of("in_arms").bounds
    assert name in plan_of("last_for_one").bounds
    assert "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum" in plan_of("last_for_one").bounds
    assert not plan_of("blocked").bounds


def test_unrolled_loops_are_made_of_whole_turns():
    one, four = Counter(fmul=1, ffma=1), Counter(fmul=4, ffma=4)
    assert sass._repeats([one, four], {"fmul": 30, "ffma": 30})
    assert not sass._repeats([one, four], {"fmul": 30, "ffma": 29})
    assert not sass._repeats([one, four], {"fmul": 4, "ffma": 4})  # one of them is missing
    assert sass._repeats([Counter(fadd=3, fmul=2), Counter(fmul=1)], {"fadd": 6, "fmul": 9})
    assert not sass._repeats([Counter(fadd=3, fmul=2), Counter(fmul=1)], {"fadd": 5, "fmul": 9})


def test_registers_and_spills():
    plain, tight = plan_of("spilling"), plan_of("spilling", max_registers=32)
    assert plain.launch["labkit__spill_bytes"] == 0 and plain.launch["launch__registers_per_thread"] > 32
    assert tight.launch["labkit__spill_bytes"] > 0 and tight.launch["launch__registers_per_thread"] <= 32
    assert "smsp__sass_inst_executed_op_local_ld.sum" in tight.bounds
    assert "spills" in tight.notes[0]
    assert plan_of("division").launch["launch__registers_per_thread"] >= 16


def test_numba_tile_fuses_too():
    from numba import cuda, float32, types

    def smem(C, A):
        s = cuda.shared.array((16, 16), float32)
        t = cuda.shared.array((16, 16), float32)
        x, y = cuda.threadIdx.x, cuda.threadIdx.y
        s[y, x] = A[y, x]
        t[y, x] = A[y + 16, x]
        cuda.syncthreads()
        acc = float32(0)
        for k in range(16):
            acc += s[y, k] * t[k, x]
        C[y, x] = acc

    matrix = types.Array(types.float32, 2, "C")
    ptx, _ = cuda.compile_ptx(smem, (matrix, matrix), cc=(9, 0), lineinfo=True)
    (entry,) = parse(ptx).entries
    program = parse(ptx).program(entry)
    plan = sass.memory_plan(Launch(ptx, entry, (1, 1, 1), (16, 16, 1), ()), program)
    assert sum(parts == ((0, 16),) for parts in plan.parts.values()) == 4
    assert sum(parts == () for parts in plan.parts.values()) == 12


def access(pc, group, offset, width=4, at=1):
    return sass._Access(pc, at, "shared", "ld", (group,), offset, width)


def test_merged_duplicates_are_dropped():
    mine = [access(0, "p", 0), access(1, "p", 0), access(2, "p", 4)]
    assert sass._cover(mine, [access(0, "R0", 0, 8)]) == {0: ((0, 8),), 1: (), 2: ()}
    # Where no address tells which is which, none is taken twice before all are there once.
    mine = [access(pc, "pqpq"[pc], 0) for pc in range(4)] + [access(4, "r", 0)]
    assert sass._cover(mine, [access(pc, f"R{pc}", 0) for pc in range(3)]) == {2: (), 3: ()}


def test_loads_that_never_load_are_not_counted():
    never = [sass.Sass(0, ("k.cu", 1), "LDS", "RZ, [RZ]", "@!PT")] * 3
    loads = [sass.Sass(0, ("k.cu", 2), "LDS", "R2, [R3]", guard) for guard in ("", "@!P0")]
    assert [a.pc for a in sass._sass_accesses((*never, *loads))] == [3, 4]


def test_accesses_that_do_not_fit_are_refused():
    mine = [access(0, "p", 0), access(1, "p", 8)]
    assert sass._cover(mine, [access(0, "R0", 0, 8)]) is None  # bytes 4 to 7 are nobody's
    assert sass._cover(mine, [access(0, "R0", 0)]) is None  # one of them is missing
    assert sass._match(mine, [access(0, "R0", 0), access(1, "R0", 16), access(2, "R0", 64)]) == {}


def test_without_the_tools_counts_are_the_ptxs_and_a_bound(monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    monkeypatch.setattr(sass.metadata, "files", lambda name: [])
    monkeypatch.setattr(sass.shutil, "which", lambda name: None)
    for cached in (sass.machine_code, sass.find):
        cached.cache_clear()
    counters = run("tile", (16, 16, 1), counters=Counters())
    for cached in (sass.machine_code, sass.find):
        cached.cache_clear()
    assert counters.metrics[WAVES] == 8 * 32 and counters.fidelity[WAVES] == "bound"
    assert "pip install nvidia-cuda-nvdisasm" in counters.notes[0]
    assert "launch__registers_per_thread" not in counters.metrics


def test_results_are_kept_on_disk(monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    sass.machine_code.cache_clear()
    first = sass.machine_code(compiled(), "tile")
    sass.machine_code.cache_clear()
    monkeypatch.setattr(sass, "_disassemble", lambda cubin: pytest.fail("compiled again"))
    assert sass.machine_code(compiled(), "tile") == first
    (kept,) = tmp_path.rglob("*.json")
    json.loads(kept.read_text())
    kept.write_text("damaged")  # is made again
    monkeypatch.undo()
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    sass.machine_code.cache_clear()
    assert sass.machine_code(compiled(), "tile") == first


def test_refused_ptx_is_one_sentence():
    broken = ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k() { nonsense; }"
    with pytest.raises(LabkitError, match="ptxas refuses this PTX: .+") as caught:
        sass.machine_code(broken, "k")
    assert "\n" not in str(caught.value)
    with pytest.raises(LabkitError, match="ptxas refuses this PTX: .*sm_20"):
        sass.machine_code(compiled(), "tile", "sm_20")
    plan = sass.memory_plan(Launch(broken, "k", (1, 1, 1), (1, 1, 1), ()), SimpleNamespace(instructions=[]))
    assert WAVES in plan.bounds


# ---------------------------------------------------------------------------- against the hardware

H200 = json.loads((Path(__file__).parent / "sass_h200.json").read_text())
BLOCKS = {
    "tile": (16, 16, 1), "padded": (16, 16, 1), "after_odd_array": (16, 16, 1), "dead_lanes": (64, 1, 1),
    "doubles": (16, 16, 1), "blocked": (256, 1, 1), "atomics": (32, 1, 1), "division": (32, 1, 1),
    "spilling": (32, 1, 1),
}  # fmt: skip
DTYPES = {"doubles": np.float64, "atomics": np.int32}


def compare(counters, recorded):
    """Every counter that claims to be exact is; returns how many were compared."""
    exact = [n for n in H200["metrics"] if counters.fidelity.get(n) == "exact"]
    got = {n: counters.metrics[n] for n in exact if counters.metrics[n]}
    assert got == {n: v for n, v in recorded.items() if n in exact}
    # One reading of each: the memory's other clients are in it now and then.
    assert -2048 < recorded["dram__bytes_read.sum"] - counters.metrics["dram__bytes_read.sum"] < 8192
    return len(exact)


@pytest.mark.parametrize("entry", BLOCKS)
def test_kernels_count_as_on_an_h200(entry):
    counters = run(entry, BLOCKS[entry], counters=Counters(), size=16384, dtype=DTYPES.get(entry, np.float32))
    assert compare(counters, dict(H200["launches"])[entry]) >= (20 if entry != "division" else 17)


@pytest.mark.parametrize("name", [name for name, _ in H200["launches"] if "/" in name])
def test_gemm_counts_as_on_an_h200(name):
    import labkit as lk
    from labkit.kernels import emulating

    rung, language, sizes = name.split("/")
    gemm = lk.problem("gemm")
    try:
        kernel = gemm[rung, language].solution.kernel
    except LabkitError:
        pytest.skip("this checkout has no solutions")
    shape = dict(zip("MNK", map(int, sizes.split("x")), strict=True))
    inputs, outputs = gemm.make_inputs(shape), gemm.make_outputs(shape)
    counters = Counters()
    with emulating(Emulation(counters=counters)):
        kernel.launch(*outputs.values(), *inputs.values())
    assert compare(counters, dict(H200["launches"])[name]) >= 20
