"""What a kernel has to compute, what that costs at least, and the ladder of ways to do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from labkit.errors import LabkitError

if TYPE_CHECKING:
    import torch

Shape = Mapping[str, int]


@dataclass(frozen=True)
class Tensor:
    """An argument of a problem: its dimensions, and its dtype.

    dims : each a number, a dimension's name, or an expression of names such as "K // 32 * 34".
    make : (shape, generator) -> the tensor on the generator's device, for inputs that are not just random numbers.
    derive : the inputs before it, the dimensions and the options, by name -> the tensor, for what follows from them.
    """

    dims: tuple[str | int, ...]
    dtype: str = "float32"
    make: Callable[[tuple[int, ...], torch.Generator], torch.Tensor] | None = None
    derive: Callable[[Mapping[str, Any]], torch.Tensor] | None = None

    def shape(self, dims: Shape) -> tuple[int, ...]:
        return tuple(d if isinstance(d, int) else eval(d, {"__builtins__": {}}, dict(dims)) for d in self.dims)

    def sample(
        self, dims: Shape, generator: torch.Generator, before: Mapping[str, torch.Tensor] | None = None
    ) -> torch.Tensor:
        """Random contents: standard normal, or any integer of the dtype, or what `make` or `derive` gives.

        before : the inputs that stand before this one, which `derive` takes.
        """
        import torch

        if self.derive:
            return self.derive({**dims, **(before or {})})
        shape, dtype = self.shape(dims), getattr(torch, self.dtype)
        if self.make:
            return self.make(shape, generator)
        if dtype.is_floating_point:
            return torch.randn(shape, generator=generator, device=generator.device).to(dtype)
        info = torch.iinfo(dtype)
        return torch.randint(info.min, info.max, shape, generator=generator, device=generator.device, dtype=dtype)


@dataclass(frozen=True)
class Step:
    """One line of a ladder: a rung's name, what it changes against the rung below, what that moves.

    `defines` and `arch` specialize the CUDA C++ compilation; `languages` lists the kernel files there are, and `why`
    says why one is missing; `options` are the rung's further arguments with their defaults. `dtypes` are those of the
    arguments that the rung has in another precision than the problem. `bench_shape` stands in for the problem's where
    that would take a slow rung minutes. `gates` are metrics that tell this rung from the one below it, counted at
    `gate_shape` or else the problem's profile shape, and `timed` says that its time does: the grader gives points for
    both.
    """

    name: str
    change: str
    moves: str
    languages: tuple[str, ...] = ("numba", "cuda")
    defines: tuple[str, ...] = ()
    arch: str | None = None
    why: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    bench_shape: Mapping[str, int] | None = None
    gates: tuple[str, ...] = ()
    gate_shape: Mapping[str, int] | None = None
    timed: bool = False


@dataclass(frozen=True)
class Question:
    """A prediction to make before measuring; `value` computes the answer each time it is asked for.

    names : numbers that the notebook has under these names, which answers may use, each computed when it is asked for.
    """

    text: str
    value: Callable[[], float]
    unit: str = ""
    explain: str = ""
    relative: float = 0.02  # an answer this close is right
    names: Mapping[str, Callable[[], float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """An operation: its arguments, reference, costs, tolerance, test shapes and ladder.

    reference : takes the inputs, floating-point ones as float64 tensors; returns the output(s).
    baseline  : the same in the working precision by PyTorch, as people would call it; None where PyTorch has no such
                operator.
    magnitude : an elementwise bound on the sum of |products| that make up an output (float64), to which
                rounding errors are relative; by default the reference on absolute values.
    flops     : useful operations of a shape.  math: the dtype of what is multiplied, which names their ceiling.
    traffic   : compulsory bytes of a shape, where they are not those of reading each input and writing each output
                once.
    options   : further arguments with their defaults, numbers; a shape may give others, and `reference`, `baseline`
                and `launch` take them as keywords.
    kernels   : the problem whose kernel files serve this one, compiled with the steps' `defines`; by default its own.
    odd_shape : a shape that no tile divides, for comparing counters; by default near the profile shape.
    rivals    : other ways to have PyTorch do it, such as compiled; timed beside the ladder, called as `baseline` is.
    recorded_at : by kind of recording ("bench", "profiles"), the shapes that one is taken at, where these are not each
                rung's bench shape.
    """

    name: str
    lab: str
    formula: str
    dims: tuple[str, ...]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    reference: Callable[..., Any]
    baseline: Callable[..., Any] | None
    flops: Callable[[Shape], int]
    ladder: tuple[Step, ...]
    shapes: tuple[dict[str, int], ...]
    large_shapes: tuple[dict[str, int], ...]
    profile_shape: dict[str, int]  # small: the emulator runs it in a second
    bench_shape: dict[str, int]  # fills a large GPU
    questions: dict[str, Question] = field(default_factory=dict)
    magnitude: Callable[..., Any] | None = None
    traffic: Callable[[Shape], int] | None = None
    math: str = "float32"
    options: Mapping[str, int | float] = field(default_factory=dict)
    odd_shape: dict[str, int] | None = None
    kernels: str = ""
    rivals: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    recorded_at: Mapping[str, tuple[dict[str, int], ...]] = field(default_factory=dict)

    # c in the tolerance: for zero-mean data the error of a float sum of any length stays near
    # u * sum|products|; 8 leaves room for the tail of millions of elements, and none for tf32 or bf16.
    c: float = 8.0

    def step(self, rung: str) -> Step:
        for step in self.ladder:
            if step.name == rung:
                return step
        raise LabkitError(unknown("rung", rung, [step.name for step in self.ladder], f" of {self.name}"))

    def of(self, step: Step) -> Problem:
        """The problem as `step` has it: with its dtypes."""
        if not step.dtypes:
            return self
        inputs, outputs = (
            {name: replace(tensor, dtype=step.dtypes.get(name, tensor.dtype)) for name, tensor in tensors.items()}
            for tensors in (self.inputs, self.outputs)
        )
        return replace(self, inputs=inputs, outputs=outputs)

    def dims_of(self, shape: Shape) -> dict[str, int]:
        """`shape` checked, options filled in: every dimension there, nothing else, positive integers."""
        strange = [name for name in shape if name not in (*self.dims, *self.options)]
        missing = [name for name in self.dims if name not in shape]
        if strange or missing:
            wrong = f"{strange[0]} is none of them" if strange else f"{missing[0]} is missing"
            options = f" and the options {', '.join(self.options)}" if self.options else ""
            raise LabkitError(f"{self.name} has the dimensions {', '.join(self.dims)}{options}; {wrong}.")
        for name in self.dims:
            value = shape[name]
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise LabkitError(f"{name} of {self.name} must be an integer of at least 1, not {value!r}.")
        return {name: shape[name] for name in self.dims} | {**self.options, **self.options_of(shape)}

    def options_of(self, shape: Shape) -> dict[str, int | float]:
        """The options that `shape` gives: the keywords of `reference`, `baseline` and `launch`."""
        return {name: shape[name] for name in self.options if name in shape}

    def bytes(self, shape: Shape) -> int:
        """Compulsory traffic in bytes: every input read once, every output written once."""
        if self.traffic:
            return self.traffic(shape)
        import math

        import torch

        tensors = [*self.inputs.values(), *self.outputs.values()]
        return sum(math.prod(t.shape(shape)) * getattr(torch, t.dtype).itemsize for t in tensors)

    def read_only(self, shape: Shape) -> bool:
        """Whether outputs are less than a hundredth of the traffic, so that the ceiling is that of reading."""
        import math

        import torch

        written = sum(math.prod(t.shape(shape)) * getattr(torch, t.dtype).itemsize for t in self.outputs.values())
        return 100 * written < self.bytes(shape)

    def make_inputs(self, shape: Shape, seed: int = 0, device: str = "cpu") -> dict[str, torch.Tensor]:
        """Random inputs of `shape` (`Tensor.sample`), the same for the same seed on the same kind of device."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        inputs: dict[str, torch.Tensor] = {}
        for name, tensor in self.inputs.items():
            inputs[name] = tensor.sample(shape, generator, inputs)
        return inputs

    def make_outputs(self, shape: Shape, device: str = "cpu") -> dict[str, torch.Tensor]:
        """Output tensors, uninitialized."""
        import torch

        return {
            name: torch.empty(t.shape(shape), dtype=getattr(torch, t.dtype), device=device)
            for name, t in self.outputs.items()
        }


def as_argument(outputs: Mapping[str, torch.Tensor]) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """Outputs as `launch` takes them: one is a tensor, several are a tuple."""
    tensors = tuple(outputs.values())
    return tensors[0] if len(tensors) == 1 else tensors


def unknown(what: str, name: str, known: list[str], of: str = "") -> str:
    """One sentence for a name that is not there, with the nearest that is."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."
    return f"No {what}{of} is called {name!r}; {hint}"
