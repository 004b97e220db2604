"""What a kernel has to compute, what that costs at least, and the ladder of ways to do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from labkit.errors import LabkitError

if TYPE_CHECKING:
    import torch

Shape = Mapping[str, int]


@dataclass(frozen=True)
class Tensor:
    """An argument of a problem: its dimensions by name (or fixed), and its dtype."""

    dims: tuple[str | int, ...]
    dtype: str = "float32"

    def shape(self, dims: Shape) -> tuple[int, ...]:
        return tuple(dims[d] if isinstance(d, str) else d for d in self.dims)


@dataclass(frozen=True)
class Step:
    """One line of a ladder: a rung's name, what it changes against the rung below, what that moves.

    `defines` and `arch` specialize the CUDA C++ compilation; `languages` lists the kernel files there are; `options`
    are the rung's further arguments with their defaults.
    """

    name: str
    change: str
    moves: str
    languages: tuple[str, ...] = ("numba", "cuda")
    defines: tuple[str, ...] = ()
    arch: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """A prediction to make before measuring; `value` computes the answer each time it is asked for."""

    text: str
    value: Callable[[], float]
    unit: str = ""
    explain: str = ""
    relative: float = 0.02  # an answer this close is right


@dataclass(frozen=True)
class Problem:
    """An operation: its arguments, reference, costs, tolerance, test shapes and ladder.

    reference : takes the inputs as float64 tensors; returns the output(s) in float64.
    baseline  : the same in the working precision by PyTorch, as people would call it.
    magnitude : an elementwise bound on the sum of |products| that make up an output (float64), to which
                rounding errors are relative; by default the reference on absolute values.
    flops     : useful floating-point operations of a shape.  bytes: compulsory traffic (each input read once,
                each output written once).
    """

    name: str
    lab: str
    formula: str
    dims: tuple[str, ...]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    reference: Callable[..., Any]
    baseline: Callable[..., Any]
    flops: Callable[[Shape], int]
    ladder: tuple[Step, ...]
    shapes: tuple[dict[str, int], ...]
    large_shapes: tuple[dict[str, int], ...]
    profile_shape: dict[str, int]  # small: the emulator runs it in a second
    bench_shape: dict[str, int]  # fills a large GPU
    questions: dict[str, Question] = field(default_factory=dict)
    magnitude: Callable[..., Any] | None = None

    # c in the tolerance: for zero-mean data the error of a float sum of any length stays near
    # u * sum|products|; 8 leaves room for the tail of millions of elements, and none for tf32 or bf16.
    c: float = 8.0

    def step(self, rung: str) -> Step:
        for step in self.ladder:
            if step.name == rung:
                return step
        raise LabkitError(unknown("rung", rung, [step.name for step in self.ladder], f" of {self.name}"))

    def dims_of(self, shape: Shape) -> dict[str, int]:
        """`shape` checked: every dimension there, nothing else, positive integers."""
        strange = [name for name in shape if name not in self.dims]
        missing = [name for name in self.dims if name not in shape]
        if strange or missing:
            wrong = f"{strange[0]} is none of them" if strange else f"{missing[0]} is missing"
            raise LabkitError(f"{self.name} has the dimensions {', '.join(self.dims)}; {wrong}.")
        for name, value in shape.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise LabkitError(f"{name} of {self.name} must be an integer of at least 1, not {value!r}.")
        return {name: shape[name] for name in self.dims}

    def bytes(self, shape: Shape) -> int:
        """Compulsory traffic in bytes: every input read once, every output written once."""
        import math

        import torch

        tensors = [*self.inputs.values(), *self.outputs.values()]
        return sum(math.prod(t.shape(shape)) * getattr(torch, t.dtype).itemsize for t in tensors)

    def make_inputs(self, shape: Shape, seed: int = 0, device: str = "cpu") -> dict[str, torch.Tensor]:
        """Standard-normal inputs of `shape`, the same for the same seed on the same kind of device."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        return {
            name: torch.randn(t.shape(shape), generator=generator, device=device).to(getattr(torch, t.dtype))
            for name, t in self.inputs.items()
        }

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
