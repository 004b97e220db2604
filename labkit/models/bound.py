"""The time that physics allows: no kernel is faster than its useful work at the ceilings of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit import recorded
from labkit.errors import LabkitError
from labkit.models import devices

if TYPE_CHECKING:
    from labkit.problems import Problem

RATES = {  # by the dtype of what is multiplied: the ceiling, in 1e12 operations per second, and its name
    "float32": ("fp32_tflops", "FP32"),
    "bfloat16": ("bf16_tflops", "tensor"),
    "float16": ("bf16_tflops", "tensor"),
    "int8": ("int8_tops", "int8 tensor"),
}
COPY, READ = "copy bandwidth", "read bandwidth"


@dataclass(frozen=True)
class Bound:
    """The least time of some work: the longer of `flops_ms` and `bytes_ms`.

    unit: what does the arithmetic.  machine, origin: whose ceilings, "measured" or "datasheet".
    memory: which ceiling of the memory.
    """

    flops_ms: float
    bytes_ms: float
    unit: str
    machine: str
    origin: str
    memory: str = COPY

    @property
    def ms(self) -> float:
        return max(self.flops_ms, self.bytes_ms)

    @property
    def binds(self) -> str:
        """Which of the two is longer: `unit` or `memory`."""
        return self.unit if self.flops_ms >= self.bytes_ms else self.memory

    def __repr__(self) -> str:
        return (
            f"at best {self.ms:.4g} ms, bound by {self.binds} ({self.unit} {self.flops_ms:.4g} ms, "
            f"{self.memory} {self.bytes_ms:.4g} ms; {self.origin} ceilings of the {self.machine})"
        )


def least(
    flops: float,
    moved: float,
    rates: Mapping[str, float],
    machine: str,
    dtype: str = "float32",
    origin: str = "measured",
    read_only: bool = False,
) -> Bound:
    """The bound of `flops` operations and `moved` bytes at `rates`, by the names of `labkit ceilings`.

    read_only: next to nothing is written, so that the ceiling is that of reading, where it is known.
    """
    rate, unit = RATES[dtype]
    memory = READ if read_only and "read_gbps" in rates else COPY
    bandwidth = rates["read_gbps" if memory == READ else "copy_gbps"]
    return Bound(flops / rates[rate] / 1e9, moved / bandwidth / 1e6, unit, machine, origin, memory)


def bound(problem: Problem, shape: Mapping[str, int], machine: str = "NVIDIA H200") -> Bound:
    """The least time of a problem's useful operations and compulsory bytes at `shape`.

    By the ceilings measured on `machine`, or the peaks of its datasheet where none were.
    Raises LabkitError for a machine of which neither is known, and for a shape that is none of the problem's.
    """
    dims = problem.dims_of(shape)
    rates, origin = recorded.ceilings(machine), "measured"
    if not rates:
        device = devices.find(machine)
        machine, rates, origin = device.name, device.rates, "datasheet"
    dtype = problem.math
    if dtype not in RATES or RATES[dtype][0] not in rates:
        raise LabkitError(f"No ceiling of the {machine} is known for products of {dtype}.")
    return least(problem.flops(dims), problem.bytes(dims), rates, machine, dtype, origin, problem.read_only(dims))
