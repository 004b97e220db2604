"""Profiles without a GPU: run on the emulator and count what the hardware would count."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labkit.emulator.counters import Counters
from labkit.emulator.engine import Emulation
from labkit.emulator.ptx import parse
from labkit.emulator.sampling import Sampled
from labkit.emulator.steps import Steps
from labkit.emulator.trace import Trace
from labkit.errors import LabkitError
from labkit.models.occupancy import occupancy
from labkit.profiling.profile import Profile

if TYPE_CHECKING:
    from labkit.emulator.launch import Launch

ARCH = "sm_90"


class Watched(Emulation):
    """An emulation that tells its trace which launch begins."""

    def run(self, launch: Launch) -> None:
        self.counters.memory = self.memory
        self.trace.begin(launch, parse(launch.ptx).program(launch.entry), self.memory)
        super().run(launch)


def profile_emulated(
    fn: Callable[[], object],
    *,
    label: str | None = None,
    shape: Mapping[str, int] | None = None,
    names: Mapping[str, Any] | None = None,
    trace: Trace | None = None,
    steps: Steps | None = None,
    sample: int | None = None,
) -> Profile:
    """Call `fn` with its numba and CUDA C++ launches run on the emulator, and count them together.

    label, shape : what the profile says of itself; the label defaults to the kernel's name.
    names : tensors by the names that the profile and its pictures use for them.
    trace : which warp's accesses to keep; the first warp of block (0, 0, 0) by default.
    steps : which block's steps to keep; those of block (0, 0, 0) by default.
    sample : run only so many blocks of each launch, spread evenly. Outputs stay incomplete; counts are scaled up, and
    their fidelity is "sampled".
    Raises KernelFault where a kernel does wrong, LabkitError where `fn` launches nothing or a kernel cannot be sampled.
    """
    from labkit.kernels import emulating

    counters = Counters() if sample is None else Sampled(sample)
    trace, steps = trace or Trace(), steps or Steps()
    emulation = Watched(counters=counters, trace=trace, steps=steps, sample=sample)
    with emulating(emulation, names):
        fn()
    steps.finish()
    if not counters.launches:
        raise LabkitError("No kernel was launched, so there is nothing to profile; launch one inside the function.")
    return profile_of(emulation, label, shape)


def profile_of(emulation: Emulation, label: str | None = None, shape: Mapping[str, int] | None = None) -> Profile:
    """What the emulation has counted of its launches so far, with the accesses and steps that it kept."""
    counters, buffers = emulation.counters, emulation.memory.buffers
    fits, said = residence(counters.described)
    claims = dict.fromkeys(fits, counters.fidelity.get("launch__registers_per_thread", "exact"))
    # The driver sets aside less shared memory where something else binds, and ncu tells the blocks by that.
    claims.update(dict.fromkeys((name for name in claims if name.endswith("shared_mem")), "modeled"))
    return Profile(
        origin="emulated",
        kernel=label or " + ".join(dict.fromkeys(counters.kernels)),
        shape=dict(shape or {}),
        metrics={**counters.metrics, **fits},
        fidelity={**counters.fidelity, **claims},
        line_counts=tuple(counters.lines),
        arrays={
            buffers[number].name: {"loaded": used["ld"], "stored": used["st"]}
            for number, used in sorted(counters.buffers.items())
        },
        accesses=tuple(emulation.trace.accesses) if emulation.trace else (),
        steps=emulation.recorder,
        machine={"emulator of": ARCH, "on": platform.machine()},
        notes=(*counters.notes, *dict.fromkeys(said)),
    )


_LIMITS = {"registers": "registers", "shared memory": "shared_mem", "warps": "warps", "blocks": "blocks"}
_RESIDENT = "sm__maximum_warps_per_active_cycle_pct"


def residence(launches: Iterable[Mapping[str, float]]) -> tuple[dict[str, float], list[str]]:
    """Theoretical occupancy under ncu's names, the least of the launches, and what to say of it.

    launches : facts of each launch; those without launch__registers_per_thread tell nothing.
    """
    found: dict[str, float] = {}
    notes = []
    for facts in launches:
        if "launch__registers_per_thread" not in facts:
            continue
        shared = sum(facts[f"launch__shared_mem_per_block_{kind}"] for kind in ("static", "dynamic"))
        sizes = (facts["launch__block_size"], facts["launch__registers_per_thread"], shared)
        try:
            fits = occupancy(*map(int, sizes), ARCH)
        except LabkitError as error:
            notes.append(f"A GPU refuses this launch. {error}")
            continue
        here = {f"launch__occupancy_limit_{_LIMITS[name]}": n for name, n in fits.limits.items() if n is not None}
        here[_RESIDENT] = 100 * fits.fraction
        found = {name: min(found.get(name, value), value) for name, value in {**found, **here}.items()}
        if fits.fraction < 1:
            notes.append(
                f"A multiprocessor holds {fits.blocks} block{'s' * (fits.blocks != 1)} of "
                f"{fits.warps // fits.blocks} warps, {fits.fraction:.0%} of the warps that it could hold; what runs "
                f"out first: {fits.limiter}."
            )
    return {name: float(value) for name, value in found.items()}, notes


def emulate(
    kernel: Any,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Any],
    shared: int = 0,
    arch: str = ARCH,
    *,
    sample: int | None = None,
) -> Profile:
    """Run `kernel[grid, block](*args)` on the emulator and profile it.

    kernel : a numba dispatcher (`@cuda.jit`) or a CUDA kernel (`lk.cuda_kernel`).
    args : numpy arrays or CPU tensors, written in place, and numbers.
    shared : dynamic shared memory in bytes.
    sample : run only so many blocks, spread evenly, and scale the counts up: a labeled estimate, for large grids.
    Raises KernelFault where the kernel does wrong, KernelError where it cannot be compiled or launched.
    """
    if arch != ARCH:
        raise LabkitError(f"The emulator counts as {ARCH} does, not {arch!r}; leave arch out.")
    from labkit.kernels import launchable

    launchable(kernel)
    return profile_emulated(lambda: kernel[grid, block, 0, shared](*args), sample=sample)
