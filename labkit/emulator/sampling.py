"""Counts of a launch from some of its blocks: an estimate, and labeled as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from labkit.emulator.compiler import result_used
from labkit.emulator.counters import Counters
from labkit.errors import LabkitError

if TYPE_CHECKING:
    from labkit.emulator.launch import Launch
    from labkit.emulator.ptx import Program

# What blocks share: it does not grow with their number.
_SHARED = ("labkit__distinct_bytes", "dram__")
# Facts of the launch and its code, which no sample changes.
_LAUNCH = ("launch__", "labkit__stack", "labkit__spill", "labkit__code")


def choose(total: int, sample: int | None) -> np.ndarray | None:
    """Numbers of `sample` blocks, spread evenly over `total` from the first on; None for all of them."""
    if sample is None or sample >= total:
        return None
    return np.arange(sample) * total // sample


def refuse(program: Program) -> None:
    """LabkitError where blocks may depend on one another, so that some of them cannot run alone."""
    for i in program.instructions:
        if {"shared", "local", "param"} & {m.split("::")[0] for m in i.mods}:
            continue
        asks = i.op == "atom" and result_used(program.steps, program.instructions, i)
        listens = i.op == "ld" and {"volatile", "acquire", "relaxed"} & set(i.mods)
        if asks or listens:
            how = "uses what an atomic returns" if asks else "reads what other blocks write"
            raise LabkitError(
                f"{program.kernel} cannot be sampled: line {i.line} {how}, so its blocks may depend on each other;"
                " leave sample out, and take a smaller shape."
            )


class Sampled(Counters):
    """Counters that scale what some blocks of a launch have counted to all of its blocks.

    The fidelity of every count is then "sampled", and bytes that blocks share are left out.
    """

    def __init__(self, sample: int, *, sass: bool = True) -> None:
        super().__init__(sass=sass)
        self.sample = sample
        self.partial = False

    def begin(self, launch: Launch, instructions: list) -> None:
        super().begin(launch, instructions)
        total = int(np.prod(launch.grid))
        self._scale = (total, min(self.sample, total))
        if self.sample < total:
            self.partial = True
            self.notes.append(
                f"{self.kernels[-1]}: {self.sample} of {total} blocks ran (sample={self.sample}). The counts are scaled"
                " up from theirs, and the outputs are incomplete; bytes that blocks share are left out."
            )

    def end(self, busiest: int = 0) -> None:
        total, ran = self._scale
        if ran < total:
            for counts in (self._warps, self._threads, self._on, self._divergent, *self._access.values()):
                counts[:] = [round(int(n) * total / ran) for n in counts]
        super().end(busiest)
        if self.partial:
            self.buffers.clear()

    @property
    def metrics(self) -> dict[str, float]:
        return self._own(super().metrics)

    @property
    def lines(self) -> list[dict]:
        return [self._own(line) for line in super().lines]

    @property
    def fidelity(self) -> dict[str, str]:
        found = super().fidelity
        if not self.partial:
            return found
        return {name: claim if name.startswith(_LAUNCH) else "sampled" for name, claim in found.items()}

    def _own(self, found: dict) -> dict:
        return {k: v for k, v in found.items() if not (self.partial and k.startswith(_SHARED))}
