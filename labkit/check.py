"""Is a kernel right? Small odd shapes on the emulator with its sanitizers, large ones on the GPU if there is one.

A run of a kernel is distrusted in these ways: outputs are poisoned before it, inputs are compared bit for bit after
it, the memory around every tensor is guarded, and the result is compared with a float64 reference.
"""

from __future__ import annotations

import dataclasses
import html
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit.errors import LabkitError
from labkit.problems import Problem
from labkit.problems.problem import as_argument

if TYPE_CHECKING:
    import torch

    from labkit.emulator.engine import Modules
    from labkit.emulator.faults import KernelFault
    from labkit.emulator.launch import Launch
    from labkit.emulator.schedules import Delay
    from labkit.kernels import Kernel

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
SEEDS = (0, 1)  # the first shape runs with each of them, the others with the first
MOST_FAILURES = 3
WITNESS_STEPS = 500_000  # of a run that shall show what a race does
FEW_THREADS = 256  # of which a block always fits: a thread has 255 registers at most, a multiprocessor 65536
GUARD_BYTES = 4096  # on each side of a tensor on the GPU; the emulator knows every address and needs none


@dataclass(frozen=True)
class Failure:
    """One way in which a kernel was wrong.

    kind: value, unwritten, input_changed, guard, error (an exception of the kernel file), or the kind of the
    emulator's fault: out_of_bounds (of an array, or through a pointer to another one), misaligned, race (in shared or
    global memory, within a block or between blocks), uninitialized (global, shared or local memory that nothing has
    written), barrier, shuffle (a warp operation that names or reads lanes which are not there), no_progress, trap,
    launch, unsupported.
    schedule: of a race, an order of threads in which the result is wrong, and how; None where none was found.
    """

    kind: str
    shape: dict[str, int]
    message: str
    seed: int = 0
    device: str = "emulator"
    index: tuple[int, ...] | None = None
    got: float | None = None
    want: float | None = None
    line: int | None = None
    schedule: str | None = None

    def __str__(self) -> str:
        dims = " ".join(f"{name}={value}" for name, value in self.shape.items())
        return f"{dims}: {self.message}" if dims else self.message


@dataclass(frozen=True)
class CheckResult:
    """What `check()` found; `passed` and `failures` are what scripts rely on."""

    rung: str
    failures: tuple[Failure, ...]
    runs: tuple[str, ...]  # one label per shape and seed that was tried
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.failures

    def _said(self) -> Iterator[str]:
        """The failures, with a word where two are of one shape."""
        before = None
        for f in self.failures:
            again = f.shape and before == (f.shape, f.device, f.seed - 1)
            yield f"the same, with other inputs: {f.message}" if again else str(f)
            before = f.shape, f.device, f.seed

    def __repr__(self) -> str:
        if self.passed:
            return f"{self.rung}: passed {len(self.runs)} runs in {self.seconds:.1f} s"
        lines = "\n".join(f"  {said}" for said in self._said())
        return f"{self.rung}: failed\n{lines}"

    def _repr_html_(self) -> str:
        if self.passed:
            shapes = ", ".join(dict.fromkeys(self.runs))
            return (
                f"<div><b style='color:#137333'>&#10003; {html.escape(self.rung)} passed</b> "
                f"<details style='display:inline-block;vertical-align:top'><summary>{len(self.runs)} runs, "
                f"{self.seconds:.1f} s</summary>{html.escape(shapes)}</details></div>"
            )
        style = "margin:4px 0;white-space:pre-wrap"  # a message may quote a line of the source below it
        items = "".join(f"<li style='{style}'>{html.escape(said)}</li>" for said in self._said())
        return (
            f"<div style='border-left:4px solid #c5221f;padding:2px 12px'>"
            f"<b style='color:#c5221f'>&#10007; {html.escape(self.rung)} failed</b><ul>{items}</ul></div>"
        )


def check(
    problem: Problem, kernel: Kernel, label: str, *, seed: int = 0, shapes=None, on: str | None = None
) -> CheckResult:
    """Run `kernel` on the problem's shapes and compare; never raises for what the kernel does wrong.

    shapes: the shapes for the emulator in place of the problem's own; with them the GPU is left out.
    on: "emulator" or "cuda", the only one to run on; by default both, where there is a GPU.
    Stops at the first fault of the kernel itself (a fault repeats at every shape) or after three wrong results.
    """
    from labkit.kernels import gpu

    started = time.perf_counter()
    failures: list[Failure] = []
    runs: list[str] = []
    if on not in (None, "emulator", "cuda"):
        raise LabkitError(f"Kernels are checked on \"emulator\" or \"cuda\", not on {on!r}.")
    if on == "cuda" and not gpu.available():
        raise LabkitError("There is no GPU here to check on; leave out on=\"cuda\".")
    modules: Modules = {}
    plan = [(shape, "emulator") for shape in (shapes or problem.shapes) if on != "cuda"]
    if shapes is None and on != "emulator" and gpu.available():
        plan += [(shape, "cuda") for shape in problem.large_shapes]
    for n, (shape, device) in enumerate(plan):
        shape = problem.dims_of(shape)
        for s in SEEDS if n == 0 else SEEDS[:1]:
            runs.append(f"{' '.join(f'{d}={v}' for d, v in shape.items())} ({device})")
            found = list(_run(problem, kernel, shape, seed + s, device, modules))
            if found and modules and device == "emulator":
                anew: Modules = {}
                if not list(_run(problem, kernel, shape, seed + s, device, anew)):
                    found = [dataclasses.replace(f, message=f"{f.message} {_left(modules, anew)}") for f in found]
            failures += found
            if any(f.kind not in ("value", "unwritten") for f in found) or len(failures) >= MOST_FAILURES:
                return CheckResult(
                    label,
                    tuple(failures[:MOST_FAILURES]),
                    tuple(runs),
                    time.perf_counter() - started,
                )
    return CheckResult(label, tuple(failures), tuple(runs), time.perf_counter() - started)


def _left(modules: Modules, anew: Modules) -> str:
    """What it was that earlier runs left, where a run alone, which leaves `anew`, is right."""
    from labkit.emulator.declared import plain_name

    names = " and ".join(sorted(plain_name(key[1]) for key, data in modules.items() if (data != anew.get(key)).any()))
    return (
        f"Alone this run is right: a variable of a module lives on from launch to launch, and an earlier launch left "
        f"another value in {names or 'one'}. Let each launch set it back."
    )


def _run(
    problem: Problem, kernel: Kernel, shape: dict[str, int], seed: int, device: str, modules: Modules | None = None
) -> Iterator[Failure]:
    """One run on one shape; yields what was wrong. modules: what earlier runs left in the kernels' variables."""
    from labkit.emulator.faults import KernelFault

    def failure(kind: str, message: str, **more: Any) -> Failure:
        return Failure(kind, shape, message, seed, device, **more)

    fresh = problem.make_inputs(shape, seed, device="cpu")
    guards = _Guards(device)
    inputs = {name: guards.place(tensor) for name, tensor in fresh.items()}
    outputs = {name: guards.place(poison(tensor)) for name, tensor in problem.make_outputs(shape).items()}
    try:
        launches = _launch(kernel, outputs, inputs, problem.options_of(shape), device, modules=modules)
        refused = next(filter(None, map(_refused, launches)), None)
    except KernelFault as fault:
        schedule = _witness(problem, kernel, fresh, shape, fault) if fault.kind == "race" else None
        message = f"{fault} {schedule}" if schedule else str(fault)
        yield failure(fault.kind, message, line=fault.line, index=fault.index, schedule=schedule)
        return
    except LabkitError as error:
        # The file is the reader's own, or a copy of it: its name will do.
        said = str(error).replace(f"{kernel.path.parent}/", "") if kernel.path else str(error)
        yield failure("error", said, line=getattr(error, "line", None))
        return
    if refused:
        yield failure("launch", refused)
        return
    for name, tensor in inputs.items():
        changed = _first(_bits(tensor) != _bits(fresh[name]))
        if changed is not None:
            yield failure(
                "input_changed",
                f"{_at(name, changed)} is an input, and the kernel changed it from {float(fresh[name][changed]):.6g} "
                f"to {float(tensor.cpu()[changed]):.6g}; write to the output only.",
                index=changed,
            )
            return
    strayed = guards.touched({**inputs, **outputs})
    if strayed:
        yield failure("guard", f"the kernel wrote outside {strayed}; guard every store with its bounds.")
        return
    if device == "cuda":  # where the reference takes a hundredth of the time
        fresh = {name: tensor.to(device) for name, tensor in fresh.items()}
    yield from compare(problem, fresh, outputs, problem.options_of(shape), failure)


def compare(problem: Problem, inputs, outputs, options, failure, known=None) -> Iterator[Any]:
    """Results against the float64 reference, each within `tolerance`; `known` is what that gave before.

    Yields `failure(kind, message, index=..., ...)` for each output that is unwritten in places or off somewhere.
    """
    wanted, allowed = known or tolerance(problem, inputs, options)
    for name, tensor in outputs.items():
        want, bound = wanted[name], allowed[name]
        got = tensor.to(want.device)
        # NaN is wanted of what must stay as it is.
        unwritten = (_bits(got) == _bits(poison(got.clone()))).to(want.device) & (got.double() != want) & ~want.isnan()
        if unwritten.any():
            index = _first(unwritten)
            count = int(unwritten.sum())
            yield failure(
                "unwritten",
                f"{_at(name, index)} was never written ({count} of {got.numel()} elements were not); "
                f"want {want[index]:.6g}.",
                index=index,
                want=float(want[index]),
            )
            continue
        error = (got.double() - want).abs()
        wrong = ~_close(got, want, bound)
        if wrong.any():
            index = _first(wrong)
            count = int(wrong.sum())
            yield failure(
                "value",
                f"{_at(name, index)} got {float(got[index]):.6g} want {want[index]:.6g} "
                f"({count} of {got.numel()} elements are wrong; error {error[index]:.2g}, allowed {bound[index]:.2g}).",
                index=index,
                got=float(got[index]),
                want=float(want[index]),
            )


def tolerance(problem: Problem, inputs: dict[str, torch.Tensor], options: Mapping[str, Any] | None = None):
    """Reference outputs in float64 and the error that each element may have, 0 for integers.

    The bound is twice the largest error that PyTorch itself makes in the same precision, plus
    c * u * (sum of |products|), u the unit roundoff of the output's dtype: so reordered sums pass at every size.
    """
    options = options or {}
    exact = [t.double() if t.is_floating_point() else t for t in inputs.values()]
    want = {name: t.double() for name, t in _named(problem, problem.reference(*exact, **options)).items()}
    magnitude = problem.magnitude or (
        lambda *tensors, **options: problem.reference(*(t.abs() for t in tensors), **options)
    )
    torchs = _named(problem, problem.baseline(*inputs.values(), **options)) if problem.baseline else want
    bound, scale = {}, None
    for name, spec in problem.outputs.items():
        if spec.dtype not in UNIT_ROUNDOFF:
            bound[name] = want[name].new_zeros(want[name].shape)
            continue
        scale = scale or _named(problem, magnitude(*exact, **options))
        own = (torchs[name].double() - want[name]).abs().nan_to_num(0.0, 0.0, 0.0).max()  # where both are infinite
        bound[name] = 2 * own + problem.c * UNIT_ROUNDOFF[spec.dtype] * scale[name]
    return want, bound


def _close(got: torch.Tensor, want: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    """Elementwise: within the bound, or the same infinity, or NaN where NaN is wanted."""
    got = got.double()
    return ((got - want).abs() <= bound) | (got == want) | (got.isnan() & want.isnan())


def _witness(problem: Problem, kernel: Kernel, inputs, shape: dict[str, int], race: KernelFault) -> str | None:
    """An order of threads in which a race makes a result wrong, as a sentence; None where none is found."""
    from labkit.emulator.schedules import delays

    options = problem.options_of(shape)

    def results(delay: Delay | None) -> dict[str, torch.Tensor] | None:
        outputs = {name: poison(tensor) for name, tensor in problem.make_outputs(shape).items()}
        copies = {name: tensor.clone() for name, tensor in inputs.items()}
        try:
            _launch(
                kernel, outputs, copies, options, "emulator", sanitize=False, delay=delay, max_steps=WITNESS_STEPS
            )
        except LabkitError:
            return None
        return outputs

    wanted, allowed = tolerance(problem, inputs, options)
    usual = results(None)
    for delay in delays(race) if usual else ():
        for name, got in (results(delay) or {}).items():
            wrong = ~_close(got, wanted[name], allowed[name]) & (_bits(got) != _bits(usual[name]))
            index = _first(wrong)
            if index is not None:
                want = wanted[name][index]
                return f"For example, {delay}, {_at(name, index)} is {float(got[index]):.6g} and not {want:.6g}."
    return None


def _named(problem: Problem, result) -> dict[str, torch.Tensor]:
    results = result if isinstance(result, tuple) else (result,)
    return dict(zip(problem.outputs, results, strict=True))


def _launch(kernel: Kernel, outputs, inputs, options: Mapping[str, Any], device: str, **how: Any) -> list[Launch]:
    """Run the kernel; gives what the emulator has run of it."""
    out = as_argument(outputs)
    if device == "cuda":
        import torch

        kernel.launch(out, *inputs.values(), **options)
        torch.cuda.synchronize()
        return []
    from labkit.emulator import Emulation
    from labkit.kernels import emulating

    class Noting(Emulation):
        def run(self, launch: Launch) -> None:
            super().run(launch)
            launches.append(launch)

    launches: list[Launch] = []
    with emulating(Noting(**how), names={**outputs, **inputs}, garbage=outputs.values()):
        kernel.launch(out, *inputs.values(), **options)
    return launches


def _refused(launch: Launch) -> str | None:
    """Why a GPU would not run a launch: its blocks need more registers than a multiprocessor has.

    Raises LabkitError where the kernel makes no machine code at all.
    """
    from labkit.emulator import sass
    from labkit.emulator.ptx import short_name
    from labkit.models.occupancy import occupancy

    threads = math.prod(launch.block)
    if threads <= FEW_THREADS or not (sass.find("ptxas") and sass.find("nvdisasm")):
        return None
    code = sass.machine_code(launch.ptx, launch.entry, max_registers=launch.max_registers)
    try:
        occupancy(threads, code.registers)
    except LabkitError as error:
        return (
            f"A GPU refuses to launch {short_name(launch.entry)}. {error} Take smaller blocks, or let the compiler use "
            f"fewer registers, by __launch_bounds__({threads}) in CUDA C++ or @cuda.jit(max_registers=...) in numba."
        )
    return None


def poison(tensor: torch.Tensor) -> torch.Tensor:
    """Fill in place with a NaN that arithmetic on a GPU does not produce (0xFF bytes), or an unlikely integer."""
    import torch

    tensor.view(torch.uint8).fill_(0xFF if tensor.is_floating_point() else 0x81)
    return tensor


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bit patterns as integers, so that NaN equals itself and -0 differs from 0."""
    import torch

    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.cpu().view(whole)


def _first(mask: torch.Tensor) -> tuple[int, ...] | None:
    where = mask.nonzero()
    return tuple(where[0].tolist()) if len(where) else None


def _at(name: str, index: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, index))}]"


class _Guards:
    """Places tensors on a device; on a GPU each between two zones whose bytes are compared afterwards."""

    PATTERN = 0xA5

    def __init__(self, device: str):
        self.device = device
        self.zones: dict[int, torch.Tensor] = {}

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        import torch

        if self.device == "emulator":
            return tensor.clone()
        raw = tensor.view(torch.uint8).reshape(-1)
        whole = torch.full(
            (raw.numel() + 2 * GUARD_BYTES,), self.PATTERN, dtype=torch.uint8, device=self.device
        )
        inside = whole[GUARD_BYTES : GUARD_BYTES + raw.numel()]
        inside.copy_(raw)
        placed = inside.view(tensor.dtype).view(tensor.shape)
        self.zones[placed.data_ptr()] = whole
        return placed

    def touched(self, tensors: dict[str, torch.Tensor]) -> str | None:
        """The name of the first tensor around which something was written, and on which side."""
        for name, tensor in tensors.items():
            whole = self.zones.get(tensor.data_ptr())
            if whole is None:
                continue
            if (whole[:GUARD_BYTES] != self.PATTERN).any():
                return f"{name}, before its beginning"
            if (whole[-GUARD_BYTES:] != self.PATTERN).any():
                return f"{name}, past its end"
        return None
