"""Rooflines: how fast a kernel may be for the bytes that it moves at each level of memory.

At intensity I (FLOP per byte moved at a level) no kernel exceeds min(peak, I x bandwidth of the level). The ridge of a
level is the intensity at which both are equal: left of it bandwidth is the limit, right of it arithmetic.
Williams, Waterman, Patterson: Roofline (2009); by levels: Yang, Kurth, Williams: Hierarchical Roofline Analysis (2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit import recorded
from labkit.errors import LabkitError
from labkit.models import devices

if TYPE_CHECKING:
    from labkit.profiling import Profile
    from labkit.timing import Timing

LEVELS = {"DRAM": "read_gbps", "L2": "l2_gbps", "shared": "shared_gbps"}
UNITS = {"FP32": "fp32_tflops", "tensor": "bf16_tflops"}
BYTES_PER_WAVEFRONT = 128  # of the 32 banks, 4 each: conflicts count as the traffic that they displace


@dataclass(frozen=True)
class Roofs:
    """Ceilings of one machine: `memory` in GB/s and `compute` in TFLOP/s by name; origin: "measured" or "datasheet"."""

    machine: str
    origin: str
    memory: dict[str, float]
    compute: dict[str, float]

    @property
    def ridges(self) -> dict[tuple[str, str], float]:
        """FLOP per byte from which on a unit and not a level of memory is the limit: {("FP32", "DRAM"): 14.3, ...}."""
        return {
            (unit, level): 1e3 * tflops / gbps
            for unit, tflops in self.compute.items()
            for level, gbps in self.memory.items()
        }

    def bound(self, level: str, intensity: float, unit: str = "FP32") -> float:
        """The most TFLOP/s at an intensity in FLOP per byte of that level."""
        return min(self.compute[unit], intensity * self.memory[level] / 1e3)

    def __repr__(self) -> str:
        rates = [f"{name} {rate:,.0f} GB/s" for name, rate in self.memory.items()]
        rates += [f"{name} {rate:,.3g} TFLOP/s" for name, rate in self.compute.items()]
        ridges = [f"{unit} over {level} {at:.3g}" for (unit, level), at in self.ridges.items()]
        return f"{self.machine} ({self.origin}): {', '.join(rates)}; ridges in FLOP/byte: {', '.join(ridges)}"


def roofs(machine: str, *, datasheet: bool = False) -> Roofs:
    """The ceilings measured on a machine (`labkit ceilings`), or the peaks of its datasheet.

    machine: a driver's name, or a part of it that fits one device of the table.
    Raises LabkitError where neither is known, or none was measured and `datasheet` is False.
    """
    rates, origin = recorded.ceilings(machine), "measured"
    if datasheet or not rates:
        device = devices.find(machine)
        machine = device.name
        rates, origin = (device.rates, "datasheet") if datasheet else (recorded.ceilings(machine), "measured")
    if not rates:
        raise LabkitError(f"No ceilings were measured on {machine}; roofs(..., datasheet=True) takes its peaks.")
    memory = {level: rates[name] for level, name in LEVELS.items() if name in rates}
    return Roofs(machine, origin, memory, {unit: rates[name] for unit, name in UNITS.items() if name in rates})


@dataclass(frozen=True)
class Point:
    """One kernel under the roofs: FLOP carried out, bytes moved by level, and milliseconds.

    counts, time: where they come from ("measured", "recorded", "emulated").
    """

    label: str
    shape: dict[str, int]
    machine: str
    flops: float
    bytes: dict[str, float]
    ms: float
    counts: str
    time: str

    @property
    def tflops(self) -> float:
        return self.flops / self.ms / 1e9

    @property
    def intensity(self) -> dict[str, float]:
        """FLOP per byte, by level."""
        return {level: self.flops / moved for level, moved in self.bytes.items()}


def point(profile: Profile, timing: Timing | None = None) -> Point:
    """Where a kernel stands: FLOP and bytes by its counters, time by the profile or, where given, by a timing.

    Emulated counters need a timing of the same shape; their DRAM bytes are the fewest that are possible.
    Raises LabkitError where there is no time, no floating-point work, or the shapes differ.
    """
    m = profile.metrics
    if timing and timing.shape != profile.shape:
        raise LabkitError(
            f"{profile.kernel} was profiled at {_shape(profile.shape)} and timed at {_shape(timing.shape)}; "
            "both must be of one shape."
        )
    ms = timing.median_ms if timing else m.get("gpu__time_duration.sum", 0) / 1e6
    if not ms:
        raise LabkitError(
            f"The {profile.origin} profile of {profile.kernel} has no time; give a timing too: point(profile, timing)."
        )
    op = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
    flops = sum(m.get(op.format(name), 0) for name in ("fadd", "fmul", "ffma", "ffma"))
    flops += sum(v for name, v in m.items() if name.startswith("sm__ops_path_tensor_src_") and "int" not in name)
    if not flops:
        raise LabkitError(
            f"{profile.kernel} carried out no floating-point operations, so it has no place in a roofline."
        )
    wavefronts = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
    moved = {
        "DRAM": m.get("dram__bytes_read.sum", 0) + m.get("dram__bytes_write.sum", 0),
        "L2": 32 * m.get("lts__t_sectors_srcunit_tex.sum", 0),
        "shared": BYTES_PER_WAVEFRONT * sum(m.get(wavefronts.format(kind), 0) for kind in ("ld", "st", "atom")),
    }
    machine = timing.machine if timing else profile.machine.get("machine") or profile.machine.get("GPU", "")
    return Point(
        profile.kernel, dict(profile.shape), machine, flops, {level: b for level, b in moved.items() if b}, ms,
        profile.origin, timing.origin if timing else profile.origin,
    )  # fmt: skip


def _shape(shape: Mapping[str, int]) -> str:
    return " ".join(f"{name}={size}" for name, size in shape.items())
