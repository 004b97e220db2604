"""The matmul cliff, `labkit cliff`: predicted from tiles and waves, measured, taken apart.

What is measured: square products of N x N by PyTorch (bf16, fp16, fp32) and by float32 kernels of our own, the rungs
fixed_tile, stream_k and split_k of gemm, on all SMs of the GPU or on exactly some of them. One sample is one product
between two events, inputs out of L2 (cold), on random data. Sizes that are neighbors, and all kernels, take turns,
so that a clock that drifts moves all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import html
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit import recorded
from labkit.bench import progress
from labkit.errors import LabkitError
from labkit.models import waves

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from labkit.kernels import Kernel

TORCH = {"torch bf16": "bfloat16", "torch fp16": "float16", "torch fp32": "float32"}
OURS = ("fixed_tile", "stream_k", "split_k")
SERIES = (*OURS, *TORCH)

ALIGNMENT = (1792, 1793, 1794, 1796, 1800, 1808)
GRID = range(waves.FIRST, waves.LAST + 1, waves.STEP)
ODD = (*range(1784, 1809), *range(2040, 2065))
OFF = tuple(N + off for N in range(waves.FIRST, waves.LAST, 128) for off in (1, 2, 4))  # for the bands
VOCABULARY = (50257, 50304)
TOKENS, WIDTH = 4096, 768  # rows and columns of the activations in front of the vocabulary, as in a small GPT

LEAST_SAMPLES, MOST_SAMPLES = 7, 15
SETTLED = 0.01  # interquartile range over median at which sampling of a size stops
CHUNK = 6  # sizes that take turns
SECONDS = 120.0  # of sampling, per setting; what does not fit is left out, sizes far from predicted cliffs first
DEFAULT_SMS = 132


# --- the data ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fall:
    """Throughput at N against N - 8: `drop` is the fraction lost; `clear` if it is beyond the spread."""

    before: int
    N: int
    drop: float
    clear: bool


@dataclass
class Study:
    """Measured times of one setting.

    samples   : series -> N -> times of one N x N product in microseconds.
    vocabulary: product -> columns -> times in microseconds.  power: "random" or "zeros" -> the same for 8192.
    origin    : "measured" here or "recorded" elsewhere, on `machine` at `date`.  sms: SMs in use, of `all_sms`.
    """

    origin: str
    machine: str
    date: str
    sms: int
    all_sms: int
    samples: dict[str, dict[int, list[float]]]
    vocabulary: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    power: dict[str, list[float]] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)  # clocks, throttle reasons, what was left out

    @property
    def label(self) -> str:
        return f"{self.sms} of {self.all_sms} SMs, {self.machine}, {self.origin} {self.date}"

    def sizes(self, series: str) -> list[int]:
        """The sizes measured, in order; LabkitError where the series was not measured."""
        if series not in self.samples:
            raise LabkitError(f"There are no times of {series!r}; there are {', '.join(self.samples)}.")
        return sorted(self.samples[series])

    def microseconds(self, series: str, N: int) -> float:
        """The median time."""
        if N not in self.sizes(series):
            near = min(self.sizes(series), key=lambda size: abs(size - N))
            raise LabkitError(f"{series} was not measured at N = {N}; the nearest size is {near}.")
        return statistics.median(self.samples[series][N])

    def tflops(self, series: str, N: int) -> float:
        """2 N^3 operations over the median time, in TFLOP/s."""
        return 2 * N**3 / self.microseconds(series, N) / 1e6

    def curve(self, series: str, step: int = waves.STEP) -> tuple[list[int], list[float]]:
        """Sizes that are multiples of `step`, and throughput there in TFLOP/s."""
        sizes = [N for N in self.sizes(series) if N % step == 0]
        return sizes, [self.tflops(series, N) for N in sizes]

    def fall(self, series: str, N: int) -> Fall | None:
        """From N - 8 to N; None where either was not measured."""
        before = N - waves.STEP
        times = self.samples.get(series, {})
        if before not in times or N not in times:
            return None
        drop = 1 - self.tflops(series, N) / self.tflops(series, before)
        slowest = 2 * before**3 / statistics.quantiles(times[before], n=4)[2]  # still faster than ...
        fastest = 2 * N**3 / statistics.quantiles(times[N], n=4)[0]
        return Fall(before, N, drop, slowest > fastest)

    def cliffs(self, series: str, threshold: float = waves.THRESHOLD) -> list[Fall]:
        """The drops of more than `threshold` that are beyond the spread."""
        falls = (self.fall(series, N) for N in self.sizes(series) if N % waves.STEP == 0)
        return [fall for fall in falls if fall and fall.clear and fall.drop > threshold]

    def scaled(self, series: str = "fixed_tile") -> tuple[list[int], list[float]]:
        """The predicted curve on the scale of the measured one, in TFLOP/s.

        The scale is the rate at which the kernel works where nothing is lost: the median of measured throughput over
        predicted efficiency.
        """
        sizes, values = self.curve(series)
        predicted = waves.curve(sizes, self.sms)
        scale = statistics.median(value / share for value, share in zip(values, predicted, strict=True))
        return sizes, [scale * share for share in predicted]

    def to_dict(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "date": self.date,
            "sms": self.sms,
            "all_sms": self.all_sms,
            "unit": "microseconds",
            "cold": True,
            **self.about,
            "vocabulary": self.vocabulary,
            "power": self.power,
            "samples": self.samples,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], origin: str) -> Study:
        def by_size(times: dict[str, dict[str, list[float]]]) -> dict[str, dict[int, list[float]]]:
            return {name: {int(N): values for N, values in sizes.items()} for name, sizes in times.items()}

        about = {key: data[key] for key in ("clocks_mhz", "throttle", "left_out") if key in data}
        return cls(
            origin, data["machine"], data["date"], data["sms"], data["all_sms"],
            by_size(data["samples"]), by_size(data["vocabulary"]), data["power"], about,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"Study({self.label}: {', '.join(self.samples)})"


def find_recorded(sms: int | None = None) -> Study:
    """The newest recorded study on `sms` SMs, or on all of its machine's; LabkitError where there is none."""
    known = set()
    for path in recorded.files("cliff"):
        data = json.loads(path.read_text())
        if data["sms"] == (data["all_sms"] if sms is None else sms):
            return Study.from_dict(data, "recorded")
        known.add(data["sms"])
    if not known:
        raise LabkitError("There is no GPU here and no recorded cliff; --model computes where the cliffs lie.")
    nearest = min(known, key=lambda there: abs(there - (sms or there)))
    raise LabkitError(
        f"No cliff on {sms} SMs was recorded; nearest is --sms {nearest}, and --model --sms {sms} computes it."
    )


def study(sms: int | None = None) -> Study:
    """Measured on this machine's GPU where there is one, else recorded.

    Measures in a process of its own: what PyTorch keeps from work on some of the SMs is of no use on all of them.
    """
    from labkit.kernels import gpu

    if not gpu.available():
        return find_recorded(sms)
    some = [] if sms is None else ["--sms", str(sms)]
    done = subprocess.run([sys.executable, "-m", "labkit", "cliff", "--json", *some], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise LabkitError("The measurement failed; its own message says why.")
    return Study.from_dict(json.loads(done.stdout), "measured")


# --- some of the SMs -----------------------------------------------------------------------------------

_SMID = """
extern "C" __global__ void smid(int *seen)
{
    if (threadIdx.x == 0) {
        unsigned sm;
        asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
        seen[sm] = 1;
        for (long long start = clock64(); clock64() - start < 20000;) {}  // long enough for all SMs to get a block
    }
}
"""


def check_sms(sms: int | None, there: int) -> None:
    """LabkitError unless `sms` is None or from 1 to `there`, with the nearest count that works."""
    if sms is not None and sms < 1:
        raise LabkitError(f"--sms {sms} leaves nothing to run on; take 1 to {there}.")
    if sms is not None and sms > there:
        raise LabkitError(
            f"This GPU has {there} SMs, not {sms}; take --sms {there}, or --model --sms {sms} to compute the cliffs."
        )


def count_sms() -> int:
    """On how many SMs blocks of the current context run, as they themselves say (%smid)."""
    import torch

    from labkit.kernels import cuda_kernel

    seen = torch.zeros(1024, dtype=torch.int32, device="cuda")
    blocks = 16 * torch.cuda.get_device_properties().multi_processor_count
    cuda_kernel(_SMID, "smid", path="smid.cu")[blocks, 1024](seen)
    return int(seen.sum())


@contextlib.contextmanager
def limited(sms: int) -> Iterator[None]:
    """Inside, all of this thread's GPU work, PyTorch's too, runs on exactly `sms` SMs (a green context).

    Raises LabkitError where the GPU or its driver cannot do that, or gives another count.
    """
    import torch
    from cuda.bindings import driver

    from labkit.kernels import KernelError, gpu

    torch.cuda.init()
    torch.cuda.synchronize()
    gpu.current_context()
    there = torch.cuda.get_device_properties().multi_processor_count
    check_sms(sms, there)
    device = gpu.call("cuCtxGetDevice")
    kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    try:
        whole = gpu.call("cuDeviceGetDevResource", device, kind)
        # CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING is 1; without it the count is rounded up to multiples of 8.
        groups, *_ = gpu.call("cuDevSmResourceSplitByCount", 1, whole, 1, sms)
        given = groups[0].sm.smCount
        if given != sms:
            raise LabkitError(f"This GPU gives out {given} SMs where {sms} are asked for; take --sms {given}.")
        description = gpu.call("cuDevResourceGenerateDesc", groups[:1], 1)
        green = gpu.call("cuGreenCtxCreate", description, device, 1)  # 1: with a default stream, as it must be
        context = gpu.call("cuCtxFromGreenCtx", green)
    except (KernelError, RuntimeError, AttributeError) as error:
        raise LabkitError(
            f"This GPU or its driver has no green contexts ({' '.join(str(error).split()).rstrip('.')}); "
            f"leave --sms out to measure on all {there} SMs, or take --model --sms {sms}."
        ) from error
    gpu.call("cuCtxPushCurrent", context)  # and never destroyed: cuBLAS's handles and loaded kernels live in it
    try:
        seen = count_sms()
        if seen != sms:
            raise LabkitError(f"Blocks ran on {seen} SMs where {sms} were asked for; leave --sms out.")
        yield
        torch.cuda.synchronize()
        if int(gpu.call("cuCtxGetCurrent")) != int(context) or count_sms() != sms:
            raise LabkitError(f"The GPU left the {sms} SMs amid the measurement; measure again, without --sms.")
    finally:
        gpu.call("cuCtxPopCurrent")


# --- measuring -----------------------------------------------------------------------------------------


def measure(sms: int | None = None, *, seconds: float = SECONDS) -> Study:
    """Measure on this machine's GPU: on all SMs, or on exactly `sms`.

    Raises LabkitError where there is no GPU, where that count cannot be had, or where a kernel is wrong.
    """
    from labkit.kernels import gpu

    if not gpu.available():
        raise LabkitError("There is no GPU here to measure on; --recorded shows what was measured elsewhere.")
    import torch

    there = torch.cuda.get_device_properties().multi_processor_count
    check_sms(sms, there)
    used = sms or there
    with limited(used) if used != there else contextlib.nullcontext():
        return _Bench(used, there, seconds).run()


class _Bench:
    def __init__(self, sms: int, there: int, seconds: float):
        import torch

        self.sms, self.there, self.seconds = sms, there, seconds
        # Random numbers for A, B and C of the largest size; smaller ones lie at their beginning.
        numbers = torch.randn(3, max(GRID) ** 2, device="cuda")
        self.flat = {dtype: numbers.to(getattr(torch, dtype)) for dtype in TORCH.values()}
        self.flush_buffer = torch.empty(
            2 * torch.cuda.get_device_properties().L2_cache_size, dtype=torch.uint8, device="cuda"
        )
        self.left_out: dict[str, str] = {}
        self.kernels = {name: kernel for name in OURS if (kernel := self.own(name))}
        self.samples: dict[str, dict[int, list[float]]] = {}
        self.host: dict[str, float] = {}  # how many seconds the host takes to launch each series

    def own(self, name: str) -> Any:
        """One of our kernels, checked against float64; None, with the reason kept, where it is not here."""
        import torch

        from labkit import problems
        from labkit.check import tolerance

        path = _kernel_file(name)
        if path is None:
            self.left_out[name] = "its file is not here; run its cell in the notebook 04_the_cliff"
            return None
        try:
            kernel = load_kernel(path, sms=self.sms)
        except LabkitError as error:
            self.left_out[name] = str(error).rstrip(".")
            return None
        problem = problems.get("gemm")
        for N in (1793, 1800):
            inputs = problem.make_inputs({"M": N, "N": N, "K": N}, device="cuda")
            C = torch.full((N, N), float("nan"), device="cuda")
            kernel.launch(C, *inputs.values())
            want, allowed = tolerance(problem, inputs)
            if not bool(((C.double() - want["C"]).abs() <= allowed["C"]).all()):
                self.left_out[name] = f"{path} is wrong at N = {N}; check() it"
                return None
        return kernel

    def run(self) -> Study:
        import torch

        from labkit.timing import read_clocks, tf32_off

        clocks, throttle = read_clocks()
        with tf32_off():
            left = self.sweep()
            vocabulary, power = self.vocabulary(), self.power()
        after, more = read_clocks()
        about = {"clocks_mhz": [clocks, after], "throttle": sorted(throttle | more), "left_out": self.left_out}
        if left:
            self.left_out[f"{left} sizes"] = f"{self.seconds:.0f} s were too short for them"
        return Study(
            "measured", torch.cuda.get_device_name(), recorded.today(), self.sms, self.there,
            self.samples, vocabulary, power, about,
        )  # fmt: skip

    def sweep(self) -> int:
        """Sample all sizes, a chunk after the other; returns how many did not fit into the time."""
        ours = {*ALIGNMENT, *GRID}  # between them, PyTorch alone
        chunks = _plan(self.sms)
        deadline = time.perf_counter() + self.seconds
        for done, chunk in enumerate(chunks):
            if time.perf_counter() > deadline:
                return sum(len(c) for c in chunks[done:])
            progress(done, len(chunks), f"N = {chunk[0]} to {chunk[-1]}")
            jobs = [(name, N) for N in chunk for name in SERIES if name in TORCH or N in ours and name in self.kernels]
            self.sample({job: self.product(*job) for job in jobs})
        progress(len(chunks), len(chunks), "done")
        return 0

    def product(self, series: str, N: int) -> Callable[[], object]:
        import torch

        A, B, C = (flat[: N * N].view(N, N) for flat in self.flat[TORCH.get(series, "float32")])
        if series in TORCH:
            return lambda: torch.mm(A, B, out=C)
        return lambda: self.kernels[series].launch(C, A, B)

    def sample(self, jobs: dict[tuple[str, int], Callable[[], object]]) -> None:
        """Samples of all jobs in turns, until each is settled or has enough."""
        import torch

        for (name, _), run in jobs.items():
            run()  # compiles, chooses an algorithm, loads modules
            torch.cuda.synchronize()
            started = time.perf_counter()
            run()
            self.host[name] = min(self.host.get(name, 1e-3), time.perf_counter() - started)
            torch.cuda.synchronize()
        times: dict[tuple[str, int], list[float]] = {job: [] for job in jobs}
        for turn in range(MOST_SAMPLES):
            open_jobs = [job for job in jobs if turn < LEAST_SAMPLES or not _settled(times[job])]
            events = [(job, self.once(jobs[job], self.host[job[0]])) for job in open_jobs]
            torch.cuda.synchronize()
            for job, (start, end) in events:
                times[job].append(round(1e3 * start.elapsed_time(end), 2))
        for (name, N), values in times.items():
            self.samples.setdefault(name, {})[N] = values

    def once(self, run: Callable[[], object], host: float) -> tuple[Any, Any]:
        import torch

        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.flush_buffer.zero_()
        torch.cuda._sleep(int(5e9 * host) + 50_000)  # until the host has surely launched what is timed
        start.record()
        run()
        end.record()
        return start, end

    def vocabulary(self) -> dict[str, dict[int, list[float]]]:
        """The products around a vocabulary in bf16: logits, and the two of the backward pass."""
        import torch

        kind = {"device": "cuda", "dtype": torch.bfloat16}
        X = torch.randn(TOKENS, WIDTH, **kind)
        jobs = {}
        for V in VOCABULARY:
            W, dY = torch.randn(V, WIDTH, **kind), torch.randn(TOKENS, V, **kind)
            jobs["logits", V] = functools.partial(torch.mm, X, W.T, out=torch.empty_like(dY))
            jobs["gradient of the activations", V] = functools.partial(torch.mm, dY, W)
            jobs["gradient of the weights", V] = functools.partial(torch.mm, dY.T, X)
        self.sample(jobs)
        return {name: self.samples.pop(name) for name in dict.fromkeys(name for name, _ in jobs)}

    def power(self, N: int = 8192, batch: int = 150, turns: int = 7) -> dict[str, list[float]]:
        """Products of 8192 x 8192 in bf16 back to back, on random numbers and on zeros, in turns.

        Batches are long because clocks follow the power that is drawn with a delay.
        """
        import torch

        A, B = (torch.randn(N, N, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        C, Z = torch.empty_like(A), torch.zeros_like(A)
        times: dict[str, list[float]] = {"random": [], "zeros": []}
        for turn in range(turns + 1):
            for name, (a, b) in {"random": (A, B), "zeros": (Z, Z)}.items():
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                for i in range(2 * batch):  # the first half warms up, and draws the power
                    if i == batch:
                        start.record()
                    torch.mm(a, b, out=C)
                end.record()
                end.synchronize()
                if turn:
                    times[name].append(round(1e3 * start.elapsed_time(end) / batch, 2))
        return times


def _settled(times: Sequence[float]) -> bool:
    low, middle, high = statistics.quantiles(times, n=4)
    return high - low < SETTLED * middle


def _plan(sms: int) -> list[list[int]]:
    """All sizes in chunks of neighbors: predicted cliffs and alignment first, then ever finer."""
    predicted = {N for drop in waves.cliffs(sms) for N in (drop.before, drop.N)}
    edges = {N + off for N in GRID if N % 128 == 0 for off in (0, waves.STEP)} & set(GRID)
    groups = [predicted | set(ALIGNMENT), edges, {N for N in GRID if N % 32 == 0}, {*ODD, *OFF}, set(GRID)]
    chunks, planned = [], set()
    for group in groups:
        sizes = sorted(group - planned)
        planned |= group
        chunks += [sizes[i : i + CHUNK] for i in range(0, len(sizes), CHUNK)]
    return chunks


def load_kernel(path: Path, sms: int = DEFAULT_SMS) -> Kernel:
    """The gemm kernel of a CUDA C++ file, compiled for `sms` SMs where it asks how many there are."""
    from labkit import problems
    from labkit.kernels import Signature, load

    options = next((step.options for step in problems.get("gemm").ladder if step.name == path.stem), {})
    names = Signature(("C",), ("A", "B"), {"M": ("C", 0), "K": ("A", 1), "N": ("B", 1)}, dict(options))
    return load(path, names=names, defines=(f"SMS={sms}",))


def _kernel_file(name: str) -> Path | None:
    """The file of one of our kernels: the project's own, else the learner's."""
    from labkit.root import root

    for folder in ("solutions", "labs"):
        with contextlib.suppress(LabkitError):
            path = root() / folder / "02_gemm" / "kernels" / "gemm" / f"{name}.cu"
            if path.exists():
                return path
    return None


# --- showing -------------------------------------------------------------------------------------------


def table(study: Study) -> list[dict[str, Any]]:
    """Predicted and measured cliffs side by side: one row per size at which either has one.

    Keys: N, predicted (drop by the model, of fixed_tile), then each series' measured drop from N - 8, or None.
    """
    predicted = {drop.N for drop in waves.cliffs(study.sms)}
    own = {fall.N for fall in study.cliffs("fixed_tile")} if "fixed_tile" in study.samples else set()
    rows = []
    for N in sorted(predicted | own):
        row: dict[str, Any] = {"N": N, "predicted": waves.change(N - waves.STEP, N, study.sms).drop}
        for series in study.samples:
            fall = study.fall(series, N)
            row[series] = fall.drop if fall else None
        rows.append(row)
    return rows


def _text(study: Study) -> str:
    lines = [f"Throughput lost from N - 8 to N, square products, {study.label}, cold L2", ""]
    names = list(study.samples)
    lines.append("    N  tiles  waves  predicted  " + "  ".join(f"{name:>10}" for name in names))
    for row in table(study):
        w = waves.waves(row["N"], study.sms)
        cells = "  ".join("         -" if row[name] is None else f"{row[name]:>10.1%}" for name in names)
        lines.append(f"{row['N']:5d}  {w.tiles:5d}  {w.waves:5d}  {row['predicted']:>9.1%}  {cells}")
    lines += ["", "Alignment (TFLOP/s)", "  N     divisible by  " + "  ".join(f"{name:>10}" for name in TORCH)]
    for N in ALIGNMENT:
        if all(N in study.samples[name] for name in TORCH):
            cells = "  ".join(f"{study.tflops(name, N):>10.1f}" for name in TORCH)
            lines.append(f"  {N}  {waves.divisibility(N):>12}  {cells}")
    if study.vocabulary:
        lines += ["", f"Vocabulary of {VOCABULARY[0]} padded to {VOCABULARY[1]} (bf16, {TOKENS} tokens of {WIDTH})"]
        for name, by_size in study.vocabulary.items():
            plain, padded = (statistics.median(by_size[V]) for V in VOCABULARY)
            lines.append(f"  {name:28} {plain:8.0f} us -> {padded:8.0f} us: {plain / padded:.2f} times as fast")
    if study.power:
        random, zeros = (statistics.median(study.power[name]) for name in ("random", "zeros"))
        lows, highs = zip(*((min(times), max(times)) for times in study.power.values()), strict=True)
        clear = "" if max(lows) > min(highs) else ", within the spread"
        times = f"{random / zeros:.2f} times as fast{clear}"
        lines += ["", f"Zeros against random numbers (bf16, 8192, back to back): {times}"]
    lines += ["", *(f"{name} left out: {why}." for name, why in study.about.get("left_out", {}).items())]
    return "\n".join(lines).rstrip()


def _model_text(sms: int) -> str:
    lines = [
        f"Cliffs of a fixed 256 x 128 tile on {sms} SM{'s' * (sms > 1)}, one block each, "
        f"N from {waves.FIRST} to {waves.LAST} in steps of {waves.STEP}; modeled",
        "",
        "    N  tiles  waves  in the last  drop from N - 8  of it tiles  of it waves",
    ]
    for drop in waves.cliffs(sms):
        w = waves.waves(drop.N, sms)
        tile = 1 - drop.tile_factor
        lines.append(
            f"{drop.N:5d}  {w.tiles:5d}  {w.waves:5d}  {w.tail:>11d}  {drop.drop:>15.1%}  {tile:>11.1%}  "
            f"{drop.drop - tile:>11.1%}"
        )
    return "\n".join(lines)


def figures(study: Study) -> list[go.Figure]:
    """The pictures of a study, in the order of the explanation."""
    from labkit.plots.waves import bands, bars, decomposition, throughput

    predicted = waves.cliffs(study.sms)
    where = f"<br><sub>{html.escape(study.label)}, cold L2, medians</sub>"
    shown = [throughput(
        {name: study.curve(name, 1) for name in TORCH}, f"Square products by PyTorch, every size measured{where}",
        lines=False,
    )]  # fmt: skip
    if "fixed_tile" in study.samples:
        own = {name: study.curve(name) for name in OURS if name in study.samples}
        shown.append(throughput(
            {"fixed_tile": own["fixed_tile"]}, f"A kernel whose tile never changes, multiples of 8{where}",
            predicted=study.scaled(), cliffs=[drop.N for drop in predicted],
        ))  # fmt: skip
    shown += model_figures(study.sms)[1:]
    if "fixed_tile" in study.samples:
        falls = {name: [_drop(study, name, drop.N) for drop in predicted] for name in own}
        shown.append(decomposition(predicted, falls, f"What the cliffs consist of{where}"))
        shown.append(throughput(own, f"The cure: float32 kernels, multiples of 8{where}"))
    shown.append(bands(*study.curve("torch bf16", 1), f"bf16 by divisibility of N{where}"))
    if study.vocabulary:
        V = VOCABULARY
        shown.append(bars(
            {f"{name}, {v}": statistics.median(times[v]) for name, times in study.vocabulary.items() for v in V},
            f"A vocabulary of {V[0]}, and padded to {V[1]}{where}", unit="microseconds",
        ))  # fmt: skip
    if study.power:
        rates = {name: 2 * 8192**3 / statistics.median(times) / 1e6 for name, times in study.power.items()}
        shown.append(bars(rates, f"The same product on other numbers, 8192, bf16{where}", unit="TFLOP/s"))
    return shown


def _drop(study: Study, name: str, N: int) -> float | None:
    fall = study.fall(name, N)
    return fall.drop if fall else None


def model_figures(sms: int) -> list[go.Figure]:
    """The predicted curve, and SMs over time on both sides of the first cliff."""
    from labkit.plots.waves import throughput
    from labkit.plots.waves import waves as picture

    cliffs = waves.cliffs(sms)
    shown = [throughput(
        {f"256 x 128 tiles on {sms} SMs": (list(GRID), waves.curve(GRID, sms))},
        "Predicted from tiles and waves<br><sub>modeled</sub>",
        cliffs=[drop.N for drop in cliffs], unit="fraction of what full waves of full tiles reach",
    )]  # fmt: skip
    for N in (cliffs[0].before, cliffs[0].N) if cliffs else ():
        w = waves.waves(N, sms)
        shown.append(picture(
            waves.schedule(N, sms), sms,
            f"N = {N}: {w.tiles} tiles on {sms} SMs, {w.waves} wave{'s' * (w.waves > 1)}<br><sub>modeled</sub>",
        ).update_xaxes(range=[0, waves.waves(cliffs[0].N, sms).waves]))  # fmt: skip
    return shown


def page(title: str, text: str, shown: Sequence[go.Figure]) -> str:
    """One HTML page that needs nothing but itself."""
    divs = [figure.to_html(full_html=False, include_plotlyjs=(i == 0)) for i, figure in enumerate(shown)]
    style = "body{font-family:sans-serif;max-width:1000px;margin:2em auto}pre{overflow-x:auto}"
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{html.escape(title)}</title>"
        f"<style>{style}</style></head><body><h1>{html.escape(title)}</h1><pre>{html.escape(text)}</pre>"
        + "\n".join(divs)
        + "</body></html>\n"
    )


# --- the command ---------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `labkit cliff`."""
    parser.add_argument("--sms", type=int, metavar="N", help="run on exactly N multiprocessors (default: all)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--model", action="store_true", help="measure nothing: compute where the cliffs lie")
    what.add_argument("--recorded", action="store_true", help="show what was recorded, even where there is a GPU")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with all pictures")
    recorded.add_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Do what `labkit cliff` was asked for; returns 0. Raises LabkitError."""
    from labkit.kernels import gpu

    sms = arguments.sms
    if sms is not None and sms < 1:
        raise LabkitError(f"--sms {sms} leaves nothing to run on; take at least 1.")
    if arguments.html and not arguments.html.absolute().parent.is_dir():
        raise LabkitError(f"There is no folder {arguments.html.absolute().parent} for {arguments.html.name}.")
    recorded.refuse(arguments)
    if arguments.model:
        sms = sms or _own_sms() or DEFAULT_SMS
        text, shown = _model_text(sms), lambda: model_figures(sms)
        data: dict[str, Any] = {"origin": "modelled", "sms": sms, "cliffs": _as_rows(sms)}
    else:
        found = measure(sms) if gpu.available() and not arguments.recorded else find_recorded(sms)
        if arguments.record:
            recorded.write("cliff", f"gemm-{found.sms}-sms", found.to_dict(), arguments.record)
        text, shown = _text(found), lambda: figures(found)
        data = {
            "origin": found.origin, "predicted": _as_rows(found.sms), "table": table(found),
            "measured": {s: [vars(fall) for fall in found.cliffs(s)] for s in found.samples}, **found.to_dict(),
        }  # fmt: skip
    print(json.dumps(data) if arguments.json else text)
    if arguments.html:
        arguments.html.write_text(page("The matmul cliff", text, shown()), encoding="utf-8")
        if not arguments.json:
            print(f"\nPictures: {arguments.html}")
    return 0


def _as_rows(sms: int) -> list[dict[str, Any]]:
    return [
        {"before": d.before, "N": d.N, "drop": d.drop, "tile_factor": d.tile_factor, "wave_factor": d.wave_factor}
        for d in waves.cliffs(sms)
    ]


def _own_sms() -> int | None:
    """How many SMs this machine's GPU has; None where there is none."""
    from labkit.kernels import gpu

    if not gpu.available():
        return None
    import torch

    return torch.cuda.get_device_properties().multi_processor_count
