"""Launches of a size at which time means something: what the speed-of-light model and `explain` are scored on.

On a GPU, `record` times each of them and reads its counters with Nsight Compute. Anywhere, `labkit speed` sets the
model's times beside the recorded ones. What binds each kernel was written down here, from how the kernel is made,
before any verdict on it was seen; kernels of which that cannot be told beforehand have none.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from labkit import recorded
from labkit.errors import LabkitError
from labkit.labels import Label
from labkit.profiling import corpus, ncu
from labkit.profiling.metrics import DEFAULT, STALLS
from labkit.profiling.profile import Profile

SOURCE = Path(__file__).with_name("speed.cu")
SAMPLES = 15
SPIN_CYCLES = 200_000
MIB = 2**20
F, D, H, B, W, U = np.float32, np.float64, np.float16, np.uint8, np.int32, np.uint32
PERMUTED, CYCLE = -1, -2  # as a limit: every number below the size once; a list that goes once around
METRICS = tuple(dict.fromkeys((*DEFAULT, *(m.name for m in STALLS))))
PIPES = tuple(
    f"sm__inst_executed_pipe_{pipe}.avg.pct_of_peak_sustained_active"
    for pipe in ("alu", "fp64", "xu", "lsu", "fmaheavy")
)

CORPUS, LIMITS, LEARNER = "corpus", "limits", "detective"


@dataclass(frozen=True)
class Case:
    """A launch: `kernel[grid, block](*args)`; an array is written (dtype, elements) or (dtype, elements, limit).

    binds: what is its limit by construction, "" where that cannot be told beforehand.  held_out: no rule of `explain`
    and no figure of the model was chosen on it.
    """

    name: str
    source: str
    kernel: str
    grid: Any
    block: Any
    args: tuple
    binds: str = ""
    held_out: bool = False

    @property
    def fitted(self) -> bool:
        """Whether rules of `explain`, and the order of the model's norm, were chosen on it."""
        return bool(self.binds) and not self.held_out


def _corpus() -> list[Case]:
    """The corpus's kernels on 1 to 4 million elements."""
    n = 4 * MIB

    def line(name: str, kernel: str, *args: Any, size: int = n, block: int = 256, grid: Any = None) -> Case:
        return Case(name, CORPUS, kernel, grid or -(-size // block), block, args)

    side = 2048
    square = [
        Case(name, CORPUS, name, (side // 32, side // 32), (32, 32), ((F, side**2), (F, side**2), side))
        for name in ("transpose", "transpose_padded", "transpose_swizzled", "transpose_naive")
    ]
    blocks = 4096
    return [
        *(line(f"load stride {s}", "strided", (F, n), (F, n * s), s, n) for s in (1, 2, 3, 8, 17, 33)),
        *(line(f"store stride {s}", "strided_store", (F, n * s), (F, n), s, n) for s in (2, 5, 32)),
        *(line(f"offset {s}", "offset", (F, n + s), (F, n + s), s, n) for s in (1, 8)),
        line("bytes", "bytes", (B, n), (B, n), n),
        line("halves", "halves", (H, n), (H, n), n),
        *(line(f"doubles stride {s}", "doubles", (D, n), (D, n * s), s, n) for s in (1, 3)),
        *(line(f"float2 stride {s}", "pairs", (F, 2 * n), (F, 2 * n * s), s, n) for s in (1, 5)),
        *(line(f"float4 stride {s}", "quads", (F, n), (F, n * s), s, n // 4, size=n // 4) for s in (1, 2, 3)),
        line("array of structures", "structures", (F, 3 * n), (F, 3 * n), n),
        line("one field of eight", "one_field", (F, n), (F, 8 * n), n),
        *(line(f"broadcast to {g}", "broadcast", (F, n), (F, n), g, n) for g in (3, 32)),
        line("gather", "gather", (F, n), (F, n), (W, n, PERMUTED), n),
        line("scatter", "scatter", (F, n), (F, n), (W, n, PERMUTED), n),
        line("reversed", "reversed", (F, n), (F, n), n),
        line("blocks of 40 threads", "strided", (F, n), (F, n), 1, n, block=40),
        line("blocks of 100 threads", "strided", (F, n), (F, 3 * n), 3, n, block=100),
        *(
            line(f"shared stride {s}", "shared_stride", (F, blocks * 256), (F, 1088), s, grid=blocks)
            for s in (1, 32)
        ),
        line("shared float2 stride 16", "shared_pairs", (F, blocks * 512), (F, 2048), 16, grid=blocks),
        line("shared float4 stride 8", "shared_quads", (F, blocks * 1024), (F, 2048), 8, grid=blocks),
        *square,
        line("divergent_loop", "divergent_loop", (F, n), (F, n + 8), n),
        line("two_ways", "two_ways", (F, n), (F, n + 8), n),
        line("early_exit", "early_exit", (F, n), (F, n), n),
        line("warp_sum", "warp_sum", (F, n // 32), (F, n), n),
        line("block_sum", "block_sum", (F, n // 256), (F, n), n),
        Case("softmax_rows", CORPUS, "softmax_rows", blocks, 32, ((F, n), (F, n), 1024)),
        line("count", "count", (W, 64), (W, n, 64), n),
        line("count_shared", "count_shared", (W, 64), (W, n, 64), n),
        line("sum_floats", "sum_floats", (F, 5), (F, MIB), MIB, size=MIB),
        line("largest", "largest", (W, 64), (W, n, 10**6), n),
        line("local_array", "local_array", (F, n), (F, n), (W, n, 16), n),
        line("stencil", "stencil", (F, n), (F, n), n),
        line("half_pairs", "half_pairs", (H, 2 * n), (H, 2 * n), (H, 2 * n), n),
        Case("matvec", CORPUS, "matvec", 512, 256, ((F, 4096), (F, 4096 * 1024), (F, 1024), 4096, 1024)),
        line("async_copy", "async_copy", (F, n), (F, n), n, grid=blocks),
    ]


def _limits() -> list[Case]:
    """Kernels made to have one limit each, and what that is; the second list is held out."""
    big, sms = 64 * MIB, 132
    full = 8 * sms  # blocks of 256 threads that fill an H200

    def case(name: str, binds: str, kernel: str, grid: Any, block: Any, *args: Any) -> Case:
        return Case(name, CORPUS if kernel == "matvec" else LIMITS, kernel, grid, block, args, binds)

    first = [
        # 2 x 256 MiB move once, in whole lines, many in flight.
        case("copy", "DRAM", "copy4", full, 256, (F, big), (F, big), big // 4),
        case("fill", "DRAM", "fill4", full, 256, (F, big), 1.5, big // 4),
        case("sum of 256 MiB", "DRAM", "sum4", full, 256, (F, 1), (F, big), big // 4, 1),
        # 16 MiB, 20 times over, by loads that pass L1 by: only L2 serves them.
        case("sum from L2", "L2", "sum4", full, 256, (F, 1), (F, 4 * MIB), MIB, 20),
        # Every lane its own line of an array that L1 holds: 32 lines per request, of which L1 serves one per clock.
        case("lines in L1", "L1", "lines", full, 256, (F, full * 256), (F, 4096 + 32), 512),
        # One element of each bank's 32: every load is 32 wavefronts.
        case("one bank", "shared", "banks", full, 256, (F, full * 256), 32, 512),
        case("quads in shared", "shared", "quads_in_shared", full, 256, (F, full * 256), 2048),
        # 8 chains per thread and 64 warps: nothing but multiply-adds.
        case("multiply-adds", "FP32", "multiply_add", full, 256, (F, full * 256), 0.5, 2048),
        # Two pipes take turns; each has room, and the slots are full.
        case("mixed arithmetic", "issue", "mixed", full, 256, (F, full * 256), 0.5, 1024),
        case("exponentials", "special functions", "exponentials", full, 256, (F, full * 256), 1024),
        case("double multiply-adds", "FP64", "doubles_fma", full, 256, (D, full * 256), 0.5, 1024),
        # Rotations and xor go to the integer pipe alone, which takes half a warp per clock.
        case("rotations", "integer", "logic", full, 256, (U, full * 256), 77, 1024),
        case("tensor", "tensor", "tensor", 2 * sms, 256, (F, 2 * sms * 256), (W, 1024, 1), 1024),
        # One warp per multiprocessor, one load after the other.
        case("list of one warp", "latency", "chase", sms, 32, (U, sms * 32), (U, 4 * MIB, CYCLE), 400),
        # One warp per scheduler, each multiply-add waits for the one before.
        case("one chain", "latency", "one_chain", sms, 128, (F, sms * 128), 0.5, 16384),
        case("meetings", "latency", "meetings", sms, 64, (F, sms * 64), 2048),
        # A quarter of the multiprocessors have a block.
        case("33 blocks", "tail", "multiply_add", 33, 1024, (F, 33 * 1024), 0.5, 2048),
        case("one long block", "tail", "one_long", full, 128, (F, full * 128), 0.5, 512, 64),
    ]
    second = [
        case("triad", "DRAM", "triad", full, 256, (F, big), (F, big), (F, big), big),
        # A sector for each element of the 8 that it holds: whole sectors travel.
        case("every eighth", "DRAM", "every", full, 256, (F, 1), (F, 2 * big), 8, big // 4),
        case("matvec of 256 MiB", "DRAM", "matvec", 2048, 256, (F, 16384), (F, big), (F, 4096), 16384, 4096),
        case("smaller sum from L2", "L2", "sum4", full, 256, (F, 1), (F, 2 * MIB), MIB // 2, 40),
        case("refill in L2", "L2", "refill4", full, 256, (F, 2 * MIB), 1.5, MIB // 2, 40),
        # 16 bytes per lane, all from L1: 4 wavefronts per request, and little else.
        case("quads in L1", "L1", "quads_in_l1", full, 256, (F, full * 1024), (F, 4096), 2048),
        case("two banks' worth", "shared", "banks", full, 256, (F, full * 256), 2, 2048),
        case("shared stores", "shared", "shared_stores", full, 256, (F, full * 256), 2048),
        case("polynomials", "FP32", "polynomial", 4 * sms, 512, (F, 4 * sms * 512), (F, 512), 4096),
        # Every instruction goes eight times, for an eighth of the lanes: slots are full, FLOP few.
        case("many ways", "issue", "many_ways", full, 256, (F, full * 256), 0.5, 16),
        case("roots", "special functions", "roots", full, 256, (F, full * 256), 1024),
        case("double additions", "FP64", "doubles_add", full, 256, (D, full * 256), 0.5, 1024),
        case("integer maxima", "integer", "largest_of", full, 256, (W, full * 256), 77, 1024),
        # Four lists per multiprocessor are four loads in flight.
        case("lists of four warps", "latency", "chase", sms, 128, (U, sms * 128), (U, 4 * MIB, CYCLE), 400),
        case("chain of roots", "latency", "root_chain", sms, 128, (F, sms * 128), 4096),
        case("small trees", "latency", "small_trees", sms, 256, (F, sms * 256), (F, 256), 256),
        case("16 blocks", "tail", "sum4", 16, 1024, (F, 1), (F, 4 * MIB), MIB, 4),
        case("triangle", "tail", "triangle", sms, 512, (F, sms * 512), 0.5, 8192),
    ]
    return [*first, *(replace(c, held_out=True) for c in second)]


def _detectives() -> list[Case]:
    """The kernels of the notebook on profiling: a file each, launched by itself."""
    heads, times = 32, 8192
    return [
        # 256 MiB are read once; each warp stores one float, which is a millionth of the traffic.
        Case("first", LEARNER, "first", 0, 0, ((F, (16384,)), (F, (16384, 4096)), (F, (4096,))), "DRAM", True),
        # Each thread walks along its own row of 64 floats: all lanes of a warp in one or two banks.
        Case("second", LEARNER, "second", 0, 0, ((F, (2**19, 64)), (F, (2**19, 64))), "shared", True),
        # 128 warps on 132 multiprocessors, each adding up 8192 numbers one after the other.
        Case(
            "third", LEARNER, "third", 0, 0,
            ((F, (heads, 128)), (F, (heads, times)), (F, (times, heads, 128))), "latency", True,
        ),
    ]  # fmt: skip


@cache
def cases() -> dict[str, Case]:
    """Every launch by its name."""
    found = [*_corpus(), *_limits(), *_detectives()]
    return {case.name: case for case in found}


# ---------------------------------------------------------------------------- running


def text_of(case: Case) -> str:
    """The source that a case's kernel stands in."""
    return _path(case).read_text(encoding="utf-8")


def _path(case: Case) -> Path:
    if case.source == LEARNER:
        return Path(__file__).parent / "detective" / f"{case.kernel}.py"
    return corpus.SOURCE if case.source == CORPUS else SOURCE


def prepare(case: Case, device: str) -> tuple[Callable[[], object], list[Any]]:
    """A function that launches the case once, and its arguments: tensors on `device` with the same contents always."""
    import torch

    from labkit.kernels import cuda_kernel, load

    def tensor(number: int, dtype: type, shape: Any, limit: int = 64) -> Any:
        kind = getattr(torch, {"uint32": "int32"}.get(np.dtype(dtype).name, np.dtype(dtype).name))
        size = int(np.prod(shape))
        if limit in (PERMUTED, CYCLE):
            order = np.random.default_rng(number).permutation(size)
            if limit == CYCLE:
                around = np.empty(size, np.int64)
                around[order] = np.roll(order, -1)
                order = around
            return torch.from_numpy(order.astype(np.int32)).to(device)
        generator = torch.Generator(device=device).manual_seed(number)
        if not kind.is_floating_point:
            return torch.randint(0, limit, (size,), generator=generator, device=device, dtype=kind)
        made = torch.randn(size, generator=generator, device=device, dtype=torch.float32).to(kind)
        return made.reshape(shape)

    args = [tensor(n, *a) if isinstance(a, tuple) else a for n, a in enumerate(case.args)]
    if case.source == LEARNER:
        launch = load(_path(case)).launch
        return lambda: launch(*args), args
    kernel = cuda_kernel(text_of(case), case.kernel, path=str(_path(case)))
    return lambda: kernel[case.grid, case.block](*args), args


# ---------------------------------------------------------------------------- measuring

EXTRA = (  # read where the chip has them: what L1 did, and Nsight Compute's speed of light
    *PIPES,
    "l1tex__data_pipe_lsu_wavefronts.sum",
    "l1tex__t_output_wavefronts_pipe_lsu_mem_global_op_ld.sum",
)
SPEED_OF_LIGHT = tuple(
    f"{unit}.avg.pct_of_peak_sustained_{over}"
    for unit, over in (
        ("sm__throughput", "elapsed"),
        ("gpu__dram_throughput", "elapsed"),
        ("lts__throughput", "elapsed"),
        ("l1tex__throughput", "active"),
    )
)


def record(folder: Path | None = None) -> Path:
    """Measure latencies, time every case, read its counters, and write the recorded file.

    Raises LabkitError where there is no GPU. Where ncu fails, times are kept and its sentence stands in the file.
    """
    from labkit.kernels import gpu

    if not gpu.available():
        raise LabkitError("Launches are timed on a GPU, and there is none here; leave --record out.")
    data: dict[str, Any] = {"latencies": latencies(), "entries": []}
    for case in cases().values():
        data["entries"].append({"case": case.name, "fingerprint": fingerprint(case), "samples_ms": _times(case)})
    recorded.write("speed", "launches", data, folder)
    names = list(cases())
    try:
        counters = _read(names, (*METRICS, *EXTRA))
        for entry, found in zip(data["entries"], counters, strict=True):
            entry["metrics"] = found
        recorded.write("speed", "launches", data, folder)
        learners = [name for name in names if cases()[name].source == LEARNER]
        for name, found in zip(learners, _read(learners, SPEED_OF_LIGHT), strict=True):
            data["entries"][names.index(name)]["metrics"].update(found)
    except LabkitError as error:
        data["failed"] = str(error)
    return recorded.write("speed", "launches", data, folder)


def fingerprint(case: Case) -> str:
    """A hash of what is launched, without comments and layout: what a recorded figure belongs to."""
    import ast
    import hashlib
    import re

    from labkit.kernels.cuda import without_comments

    text = text_of(case)
    if case.source == LEARNER:
        tree = ast.parse(text)
        tree.body = [node for node in tree.body if not isinstance(node, ast.Expr)]
        text = ast.unparse(tree)
    else:
        text = without_comments(text)
        found = re.search(rf"__global__ void {case.kernel}\(.*?\n}}", text, re.DOTALL)
        text = "".join(found[0].split())
    what = (text, case.grid, case.block, [str(a) for a in case.args])
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def _times(case: Case) -> list[float]:
    """Milliseconds of single launches, the L2 holding none of the inputs."""
    import torch

    run, args = prepare(case, "cuda")
    flush = torch.empty(2 * torch.cuda.get_device_properties().L2_cache_size, dtype=torch.uint8, device="cuda")
    times = []
    for n in range(SAMPLES + 2):
        flush.random_(0, 255)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(SPIN_CYCLES)
        start.record()
        run()
        end.record()
        end.synchronize()
        if n >= 2:
            times.append(start.elapsed_time(end))
    del args
    return times


LATENCIES = {  # name -> kernel, what it is given, threads, operations per step
    "L1 hit": ("latency_of_global", ((U, 2048, CYCLE), 2048), 1, 1),
    "L2 hit": ("latency_of_global", ((U, MIB, CYCLE), MIB), 1, 1),
    "DRAM": ("latency_of_first_touch", ((U, 64 * MIB, CYCLE), 16384), 1, 1),
    "shared": ("latency_of_shared", (4096,), 32, 1),
    "multiply-add": ("latency_of_fma", (0.5, 256), 32, 32),
    "integer": ("latency_of_integer", (77, 256), 32, 64),
    "special function": ("latency_of_root", (256,), 32, 32),
    "double": ("latency_of_double", (0.5, 256), 32, 32),
    "shuffle": ("latency_of_shuffle", (256,), 32, 32),
    "barrier": ("latency_of_barrier", (256,), 256, 32),
    "tensor": ("latency_of_tensor", ((W, 256, 1), 256), 32, 32),
    "atomic": ("latency_of_atomic", ((U, 8, 1), 1024), 1, 1),
}


def latencies() -> dict[str, list[float]]:
    """Cycles per operation of one warp alone, five readings each; and of an empty kernel the milliseconds."""
    found: dict[str, list[float]] = {}
    for name, (kernel, args, threads, per_step) in LATENCIES.items():
        case = Case(name, LIMITS, kernel, 1, threads, ((F, 1 + 256), *args))
        run, made = prepare(case, "cuda")
        readings = []
        for _ in range(5):
            run()
            readings.append(float(made[0][0]) / per_step)
        found[name] = readings
    found["empty launch, ms"] = _times(Case("empty", LIMITS, "nothing", 1, 32, ((F, 1),)))
    found["empty launch of 1056 blocks, ms"] = _times(Case("empty", LIMITS, "nothing", 1056, 256, ((F, 1),)))
    return found


def _read(names: list[str], metrics: tuple[str, ...]) -> list[dict[str, float]]:
    """Nsight Compute's counters of each case, in a process of its own."""
    found = ncu.find()
    if found is None:
        raise LabkitError("Nsight Compute (ncu) is not installed, so no counters were read.")
    metrics = tuple(dict.fromkeys(metrics))
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.ncu-rep")
        command = [
            found, "--target-processes", "all", "--clock-control", "none", "--cache-control", "all",
            "--nvtx", "--nvtx-include", ncu.RANGE, "--metrics", ",".join(metrics), "-f", "-o", str(report),
            sys.executable, "-m", "labkit.profiling.speed", *names,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=400, env=os.environ)
        if not report.exists():
            raise LabkitError(f"Nsight Compute wrote no report: {(done.stdout + done.stderr)[-300:]}")
        raw = subprocess.run(
            [found, "--import", str(report), "--page", "raw", "--csv", "--print-units", "base"],
            capture_output=True, text=True, timeout=120,
        ).stdout  # fmt: skip
    launches = ncu.parse_raw(raw, metrics)
    if len(launches) != len(names):
        raise LabkitError(f"Nsight Compute saw {len(launches)} launches of {len(names)}: {done.stdout[-300:]}")
    return [ncu.combine([launch]) for launch in launches]


def _main(names: list[str]) -> None:
    """Launch each case once, inside the range that Nsight Compute watches."""
    import nvtx
    import torch

    for name in names:
        run, args = prepare(cases()[name], "cuda")
        run()  # compiles, and loads the module
        torch.cuda.synchronize()
        with nvtx.annotate("kernel", domain="labkit"):
            run()
            torch.cuda.synchronize()
        del run, args


# ---------------------------------------------------------------------------- what was recorded


@cache
def _recorded() -> dict[str, Any]:
    files = recorded.files("speed", "launches")
    if not files:
        raise LabkitError("No launches are recorded; on a GPU, labkit speed --record keeps them.")
    return json.loads(files[0].read_text())


def measured(name: str) -> float:
    """The recorded time of a case in ms, median."""
    return statistics.median(_entry(name)["samples_ms"])


def profile(name: str) -> Profile:
    """The recorded profile of a case, with stalls."""
    about = {key: _recorded()[key] for key in ("machine", "driver", "date")}
    return Profile("recorded", name, {}, _entry(name)["metrics"], machine=about)


def _entry(name: str) -> dict[str, Any]:
    for entry in _recorded()["entries"]:
        if entry["case"] == name:
            return entry
    raise LabkitError(f"No launch {name!r} is recorded.")


# ---------------------------------------------------------------------------- the model's score


@dataclass(frozen=True)
class Compared:
    """A measured and a modeled time in ms; group: "limits, fitted", "limits, held out", "corpus", or "gemm 1024"."""

    name: str
    group: str
    measured: float
    modelled: float
    binds: str

    @property
    def error(self) -> float:
        """By how much the modeled time is off, as a fraction of the measured one."""
        return self.modelled / self.measured - 1


def compare_launches(names: Iterable[str] | None = None) -> Iterator[Compared]:
    """Each recorded launch (or those named) beside its modeled time."""
    from labkit.models.speed import predict
    from labkit.profiling.sample import works

    for name in names or [entry["case"] for entry in _recorded()["entries"]]:
        case = cases()[name]
        if fingerprint(case) != _entry(name)["fingerprint"]:
            raise LabkitError(f"{name} has changed since it was recorded; record it again.")
        run, args = prepare(case, "cpu")
        found = predict(works(run))
        del args
        group = "corpus" if not case.binds else "limits, fitted" if case.fitted else "limits, held out"
        yield Compared(name, group, profile(name)["gpu__time_duration.sum"] / 1e6, found.ms, found.binds)


def compare_rungs(problem: str, size: int | None = None, names: Iterable[str] | None = None) -> Iterator[Compared]:
    """Each rung of which a profile is recorded (at all shapes, or at M = `size`; all, or by label), in the ladder's
    order, beside its modeled time."""
    from labkit.ladder import problem as ladder
    from labkit.models.speed import predict
    from labkit.profiling.sample import works

    rungs, inputs, made = ladder(problem), None, None
    for file in recorded.files("profiles", problem)[:1]:
        for entry in json.loads(file.read_text())["entries"]:
            shape, label = entry["shape"], entry["label"]
            if size not in (None, next(iter(shape.values()))) or names is not None and label not in names:
                continue
            of = Label.of(label)
            rung = rungs[of.rung, of.language].solution
            wanted = shape, rung.problem.inputs
            if made != wanted:  # an INT4 cache takes a minute to make
                inputs, made = rung.problem.make_inputs(shape), wanted
            run = rung.launches(shape, inputs)
            found = predict(works(run["fn"], run["names"]))
            group = f"{problem} {next(iter(shape.values()))}"
            yield Compared(label, group, entry["metrics"]["gpu__time_duration.sum"] / 1e6, found.ms, found.binds)


def order(rows: Sequence[Compared], gap: float = 0.1) -> tuple[int, int]:
    """Of neighbors whose measured times differ by more than `gap`, how many the model has in the right order, and of
    how many."""
    right = total = 0
    for a, b in zip(rows, rows[1:], strict=False):
        same = a.group == b.group and Label.of(a.name).language == Label.of(b.name).language
        if same and max(a.measured, b.measured) > (1 + gap) * min(a.measured, b.measured):
            total += 1
            right += (a.measured < b.measured) == (a.modelled < b.modelled)
    return right, total


def neighbours(rows: Iterable[Compared]) -> list[Compared]:
    """Rungs so ordered that those of one language and one shape follow each other."""
    return sorted(rows, key=lambda row: (row.group, Label.of(row.name).language == "cuda"))


if __name__ == "__main__":
    _main(sys.argv[1:])
