"""How long a kernel takes, measured on this machine's GPU, or as recorded on another one.

Each sample is one launch between two CUDA events, with inputs drawn afresh and an L2 that holds none of them (cold), or
with the inputs just read (warm). A spinning kernel queued ahead of the first event keeps the host's launch cost out.
The baseline (PyTorch's own operator) is timed in turn with the kernel, sample by sample, so that a clock that drifts
moves both. Every timed output is compared.
"""

from __future__ import annotations

import html
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from labkit import recorded
from labkit.check import poison, tolerance
from labkit.errors import LabkitError
from labkit.labels import Label
from labkit.problems import Problem
from labkit.problems.problem import as_argument

if TYPE_CHECKING:

    from labkit.kernels import Kernel
    from labkit.models.bound import Bound

LEAST_SAMPLES = 10
MOST_SAMPLES = 200
MOST_SECONDS = 3.0  # of one kernel's sampling
STANDARD_ERROR = 0.01  # stop once the mean is known to this
SPIN_CYCLES = 200_000  # about 0.1 ms: longer than a launch usually takes on the host; doubled where it is not
MOST_SPIN_CYCLES = 100_000_000


@dataclass(frozen=True)
class Timing:
    """Times of one kernel at one shape; `median_ms`, `spread_ms` (interquartile range) and `origin` are for scripts.

    origin: "measured" here, or "recorded" elsewhere (then `machine` and `date` say where and when).
    baseline_ms: samples of PyTorch's operator, interleaved.  ceilings: measured rates of the same machine.
    """

    label: str
    shape: dict[str, int]
    samples_ms: tuple[float, ...]
    flops: int
    bytes: int
    origin: str
    machine: str
    date: str
    cold: bool = True
    baseline_ms: tuple[float, ...] = ()
    sm_clock_mhz: tuple[int, int] | None = None  # before and after
    throttle: str = ""  # reasons seen, in NVML's words
    math: str = "float32"  # what is multiplied
    read_only: bool = False  # next to nothing is written
    extra: dict[str, Any] = field(default_factory=dict)  # first_launch_s; of a bench check_s, peak_bytes, fingerprint

    @property
    def rung(self) -> str:
        """The rung's name, without its problem, such as "naive"."""
        return Label.of(self.label).rung

    @property
    def language(self) -> str:
        """What the kernel is written in: "numba" or "cuda"."""
        return Label.of(self.label).language

    @property
    def median_ms(self) -> float:
        return statistics.median(self.samples_ms)

    @property
    def spread_ms(self) -> float:
        quartiles = statistics.quantiles(self.samples_ms, n=4)
        return quartiles[2] - quartiles[0]

    @property
    def tflops(self) -> float:
        """Useful operations over the median, in TFLOP/s."""
        return self.flops / self.median_ms / 1e9

    @property
    def gbps(self) -> float:
        """Compulsory bytes over the median, in GB/s: a lower bound of the traffic."""
        return self.bytes / self.median_ms / 1e6

    @property
    def ratio(self) -> float:
        """Speed relative to the baseline, 1.0 being as fast."""
        if not self.baseline_ms:
            raise LabkitError(f"{self.label} was timed without a baseline.")
        return statistics.median(self.baseline_ms) / self.median_ms

    @property
    def ceilings(self) -> dict[str, float]:
        """Measured rates of the machine these times come from: {"fp32_tflops": ..., "copy_gbps": ...}, or {}."""
        return recorded.ceilings(self.machine)

    @property
    def bound(self) -> Bound | None:
        """The least time of this work at this machine's measured ceilings; None if unmeasured."""
        from labkit.models.bound import least

        if not self.ceilings:
            return None
        return least(self.flops, self.bytes, self.ceilings, self.machine, self.math, read_only=self.read_only)

    @property
    def of_ceiling(self) -> tuple[float, str] | None:
        """The largest fraction of a ceiling of this machine that is reached, and its name; None if unmeasured."""
        best = self.bound
        return (best.ms / self.median_ms, best.binds) if best else None

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Timing:
        lists = {k: tuple(v) for k, v in data.items() if isinstance(v, list)}
        return cls(**{**data, **lists})

    def __repr__(self) -> str:
        dims = " ".join(f"{name}={value}" for name, value in self.shape.items())
        text = (
            f"{self.label} {dims}: {self.median_ms:.4g} ms (spread {self.spread_ms:.2g}), {self.tflops:.3g} TFLOP/s, "
            f"{self.gbps:.4g} GB/s"
        )
        if self.of_ceiling:
            fraction, name = self.of_ceiling
            text += f", {fraction:.0%} of the {name} ceiling (at best {self.bound.ms:.4g} ms)"
        if self.baseline_ms:
            text += f", {self.ratio:.1%} of PyTorch"
        warm = "" if self.cold else ", warm L2"
        return f"{text}; {self.origin} on {self.machine}, {self.date}{warm}"

    def _repr_html_(self) -> str:
        return f"<div>{html.escape(repr(self))}</div>"


def time_kernel(problem: Problem, kernel: Kernel, label: str, shape: dict[str, int], *, cold: bool = True) -> Timing:
    """Time `kernel` against the problem's baseline on this machine's GPU.

    Raises LabkitError when a timed output is wrong.
    """
    import torch

    inputs = problem.make_inputs(shape, seed=1, device="cuda")
    outputs = problem.make_outputs(shape, device="cuda")
    ours = as_argument(outputs)
    options = problem.options_of(shape)
    generator = torch.Generator(device="cuda").manual_seed(2)
    theirs = (lambda: problem.baseline(*inputs.values(), **options)) if problem.baseline else None
    run = lambda: kernel.launch(ours, *inputs.values(), **options)  # noqa: E731

    def renew() -> None:
        for name, tensor in inputs.items():
            spec = problem.inputs[name]
            if tensor.is_floating_point() and spec.make is None and spec.derive is None:
                tensor.normal_(generator=generator)
            else:
                tensor.copy_(spec.sample(shape, generator, inputs))

    def verify(base: Any) -> None:
        nonlocal bound
        if bound is None or base is None:
            exact, allowed = tolerance(problem, inputs, options)
            bound = {name: float(limit.max()) * 2 for name, limit in allowed.items()}
            base = tuple(exact.values()) if base is None else base
        for (name, got), want in zip(outputs.items(), _as_tuple(base), strict=True):
            off = (got.to(want.dtype) - want).abs() if got.is_floating_point() else (got != want).float()
            error = float(off.masked_fill(got == want, 0.0).nan_to_num(float("inf")).max())
            if not error <= bound[name]:
                raise LabkitError(
                    f"{label} is wrong at {shape}: {name} is off by {error:.2g}, allowed {bound[name]:.2g}; "
                    "check() it before you time it."
                )

    bound: dict[str, float] | None = None
    started = time.perf_counter()
    run()
    torch.cuda.synchronize()
    first = time.perf_counter() - started  # compiles and loads what is not there yet
    with tf32_off():
        samples, base_samples, clocks, throttle = _sample(run, theirs, renew, outputs, verify, cold)
    return Timing(
        label,
        dict(shape),
        tuple(samples),
        problem.flops(shape),
        problem.bytes(shape),
        "measured",
        torch.cuda.get_device_name(),
        recorded.today(),
        cold,
        tuple(base_samples),
        clocks,
        throttle,
        problem.math,
        problem.read_only(shape),
        {"first_launch_s": round(first, 3)},
    )


class Stopwatch:
    """Times single calls on the GPU, with an L2 that holds none of their inputs (cold), or with them just read."""

    def __init__(self, cold: bool = True):
        import torch

        self.cold, self.spin = cold, SPIN_CYCLES
        size = 2 * torch.cuda.get_device_properties().L2_cache_size
        self.flush = torch.empty(size, dtype=torch.uint8, device="cuda")
        self.clean = torch.zeros(size // 4, device="cuda")

    def once(self, function: Callable[[], Any]) -> tuple[float, Any]:
        """Milliseconds of one call, and what it returned; LabkitError where the call waits for the GPU."""
        import torch

        while self.spin <= MOST_SPIN_CYCLES:
            if self.cold:
                self.flush.random_(0, 255)
                # Read as much again: written lines left in the L2 would go to memory on the kernel's time (9% of a
                # 0.1 ms matvec on an H200).
                self.clean.sum()
            else:
                function()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(self.spin)
            start.record()
            result = function()
            end.record()
            late = start.query()  # the GPU was there before the host had launched all: its wait would be in the time
            end.synchronize()
            if not late:
                return start.elapsed_time(end), result
            self.spin *= 2
        raise LabkitError(
            "The host waits for the GPU within what is timed, so its own time would be counted; launch without waiting."
        )


def _sample(run, theirs, renew, outputs, verify, cold):
    """Interleaved samples of the kernel and of the baseline, in ms."""
    import torch

    once = Stopwatch(cold).once
    for _ in range(3):  # compile, load modules, raise the clocks
        run()
        if theirs:
            theirs()
    torch.cuda.synchronize()
    before, reasons = read_clocks()
    ours: list[float] = []
    base: list[float] = []
    deadline = time.perf_counter() + MOST_SECONDS
    while len(ours) < MOST_SAMPLES:
        renew()
        for tensor in outputs.values():
            poison(tensor)
        elapsed, _ = once(run)
        ours.append(elapsed)
        result = None
        if theirs:
            elapsed, result = once(theirs)
            base.append(elapsed)
        verify(result)
        enough = len(ours) >= LEAST_SAMPLES
        if enough and (_settled(ours) and (not base or _settled(base)) or time.perf_counter() > deadline):
            break
    after, more = read_clocks()
    return ours, base, (before, after), ", ".join(sorted(reasons | more))


def _settled(samples: list[float]) -> bool:
    return statistics.stdev(samples) / len(samples) ** 0.5 < STANDARD_ERROR * statistics.fmean(samples)


def read_clocks() -> tuple[int, set[str]]:
    """SM clock in MHz and the reasons that hold it down, by NVML."""
    import pynvml
    import torch

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(torch.cuda.current_device())
    clock = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
    mask = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    prefix = "nvmlClocksThrottleReason"
    names = {
        name.removeprefix(prefix): getattr(pynvml, name) for name in dir(pynvml) if name.startswith(prefix)
    }
    idle = {"None", "All", "GpuIdle"}
    return clock, {name for name, bit in names.items() if name not in idle and bit & mask}


class tf32_off:
    """float32 products in float32: TF32 keeps 10 bits of mantissa, and would be another operation."""

    def __enter__(self):
        import torch

        self.before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = False

    def __exit__(self, *_):
        import torch

        torch.backends.cuda.matmul.allow_tf32 = self.before


def _as_tuple(result: Any) -> tuple:
    return result if isinstance(result, tuple) else (result,)


def find_recorded(problem: Problem, label: str, shape: dict[str, int], *, cold: bool = True) -> Timing:
    """The recorded timing of `label` at `shape`; LabkitError in one sentence where there is none."""
    shapes = []
    for file in recorded.files("bench", problem.name):
        for entry in json.loads(file.read_text())["timings"]:
            if entry["label"] == label and entry["cold"] == cold:
                if entry["shape"] == dict(shape):
                    return Timing.from_dict({**entry, "origin": "recorded"})
                shapes.append(" ".join(f"{k}={v}" for k, v in entry["shape"].items()))
    known = f"; recorded are {', '.join(sorted(set(shapes)))}" if shapes else ""
    asked = " ".join(f"{k}={v}" for k, v in shape.items())
    raise LabkitError(f"There is no GPU here, and no time of {label} was recorded at {asked}{known}.")
