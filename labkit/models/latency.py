"""Latency and what it takes to hide it, measured: Little's law on this machine's GPU, or as recorded on another.

Three measurements, raw samples kept: the time of one load against the footprint of what is read (a pointer chase by one
thread), bandwidth against bytes in flight, and multiply-adds per second against warps and independent chains.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit import recorded
from labkit.errors import LabkitError

SAMPLES = 7
LINE = 128  # bytes from one word of the chase to the next it could be: a line of the caches
SMALLEST, LARGEST = 2**10, 2**30  # footprints of the chase, in bytes
HOPS = 4096
MOST_WARM = 2**19  # hops: every line of 64 MiB
WARPS = (1, 2, 4, 8, 16, 32, 64)  # per multiprocessor
LOADS, WIDTHS, CHAINS = (1, 2, 4, 8), (4, 16), (1, 2, 4, 8)
TARGET_MS = 2.0  # of one run of a bandwidth
BUFFER = 2**31  # bytes, many times any L2: no run finds what the one before it read
FMA_PER_TURN = 64


@dataclass(frozen=True)
class Load:
    """The time of one load that hits a footprint: samples in cycles and ns, each the mean of thousands of hops."""

    footprint: int
    cycles: tuple[float, ...]
    ns: tuple[float, ...]

    @property
    def median_ns(self) -> float:
        return statistics.median(self.ns)

    @property
    def median_cycles(self) -> float:
        return statistics.median(self.cycles)


@dataclass(frozen=True)
class Rate:
    """What `warps` per multiprocessor reach with `each` independent operations per thread.

    width: bytes of each load; 0 for multiply-adds.  in_flight: bytes, or multiply-adds of a thread, on the whole GPU.
    work: bytes or FLOP of one run.
    """

    warps: int
    each: int
    width: int
    in_flight: int
    work: float
    samples_ms: tuple[float, ...]

    @property
    def rate(self) -> float:
        """GB/s, or GFLOP/s."""
        return self.work / statistics.median(self.samples_ms) / 1e6


@dataclass(frozen=True)
class Curves:
    """What was measured on one machine; `origin` is "measured" or "recorded"."""

    origin: str
    machine: str
    date: str
    sms: int
    l2: int
    shared: Load
    loads: tuple[Load, ...]
    reads: tuple[Rate, ...]
    fmas: tuple[Rate, ...]
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.origin} on {self.machine}, {self.date}"

    def at(self, footprint: int) -> Load:
        """The load at a measured footprint in bytes; LabkitError with the nearest one otherwise."""
        near = min(self.loads, key=lambda load: abs(load.footprint - footprint))
        if near.footprint != footprint:
            raise LabkitError(f"No footprint of {footprint} bytes was measured; the nearest is {near.footprint}.")
        return near

    @property
    def l1(self) -> Load:
        """A load that hits the L1 cache: 16 KiB are read over and over."""
        return self.at(2**14)

    @property
    def l2_hit(self) -> Load:
        """A load that hits the L2 cache: 4 MiB, past any L1."""
        return self.at(2**22)

    @property
    def dram(self) -> Load:
        """A load from device memory: the smallest power of two from four times the L2 on."""
        return self.at(max(2**28, 1 << (4 * self.l2 - 1).bit_length()))

    @property
    def ceilings(self) -> dict[str, float]:
        return recorded.ceilings(self.machine)

    def to_dict(self) -> dict[str, Any]:
        return {
            "l2": self.l2,
            "shared": _plain(self.shared),
            "loads": [_plain(load) for load in self.loads],
            "reads": [_plain(rate) for rate in self.reads],
            "fmas": [_plain(rate) for rate in self.fmas],
        }

    def __repr__(self) -> str:
        levels = {"shared memory": self.shared, "L1": self.l1, "L2": self.l2_hit, "device memory": self.dram}
        times = ", ".join(f"{name} {load.median_cycles:.0f} cycles ({load.median_ns:.0f} ns)"
                          for name, load in levels.items())  # fmt: skip
        return f"One load takes: {times}; {self.label}"


def _plain(item: Load | Rate) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__dataclass_fields__}


def _back(kind: type, data: dict[str, Any]) -> Any:
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in data.items()})


def curves() -> Curves:
    """Measured here where there is a GPU (half a minute), else recorded."""
    from labkit.kernels import gpu

    return measure() if gpu.available() else find_recorded()


def find_recorded(machine: str | None = None) -> Curves:
    """What was recorded, the newest first; LabkitError where nothing was, or not of `machine`."""
    for path in recorded.files("latency"):
        data = json.loads(path.read_text())
        if machine in (None, data["machine"]):
            about = {name: data[name] for name in ("driver", "torch", "cuda", "command")}
            return Curves(
                "recorded", data["machine"], data["date"], data["sms"], data["l2"], _back(Load, data["shared"]),
                tuple(_back(Load, load) for load in data["loads"]),
                tuple(_back(Rate, rate) for rate in data["reads"]),
                tuple(_back(Rate, rate) for rate in data["fmas"]),
                about,
            )  # fmt: skip
    raise LabkitError("No latencies were recorded; on a GPU, labkit latency --record keeps them.")


# --- measuring -----------------------------------------------------------------------------------------


def measure() -> Curves:
    """Measure all of it on this machine's GPU; LabkitError where there is none."""
    from labkit.kernels import gpu

    if not gpu.available():
        raise LabkitError("Latencies are measured on a GPU, and there is none here; see labkit latency --recorded.")
    import torch

    about = torch.cuda.get_device_properties()
    return Curves(
        "measured", about.name, recorded.today(), about.multi_processor_count, about.L2_cache_size,
        _shared(), tuple(_chase(size) for size in footprints()), _reads(about.multi_processor_count),
        _fmas(about.multi_processor_count),
    )  # fmt: skip


def footprints() -> list[int]:
    """Powers of two, and one between each and the next."""
    sizes, size = [], SMALLEST
    while size <= LARGEST:
        sizes += [size, size * 3 // 2]
        size *= 2
    return sizes[:-1]


def _kernel(name: str, **defines: int) -> Any:
    from labkit.kernels import cuda_kernel

    source = Path(__file__).with_suffix(".cu").read_text()
    return cuda_kernel(source, name, defines=tuple(f"{key}={value}" for key, value in defines.items()))


def _chase(footprint: int) -> Load:
    import torch

    lines = footprint // LINE
    table = torch.zeros(footprint // 8, dtype=torch.int64, device="cuda")
    order = torch.randperm(lines, device="cuda") * (LINE // 8)
    table[order] = table.data_ptr() + 8 * order.roll(-1)  # one cycle through all lines
    chase = _kernel("chase")
    took = torch.zeros(3, dtype=torch.int64, device="cuda")
    samples = []
    for n in range(SAMPLES):
        # The first run fills the caches. Where they do not hold everything, each run begins elsewhere.
        warm = min(2 * lines, MOST_WARM) if n == 0 else HOPS
        start = table[(n * HOPS * (LINE // 8)) % table.numel() :]
        chase[1, 1](took, start, warm, HOPS)
        samples.append(took[:2].tolist())
    return Load(footprint, *(tuple(s[k] / HOPS for s in samples) for k in range(2)))


def _shared() -> Load:
    import torch

    took = torch.zeros(3, dtype=torch.int64, device="cuda")
    samples = []
    for _ in range(SAMPLES):
        _kernel("chase_shared")[1, 1](took, HOPS)
        samples.append(took[:2].tolist())
    return Load(1024, *(tuple(s[k] / HOPS for s in samples) for k in range(2)))


def _reads(sms: int) -> tuple[Rate, ...]:
    import torch

    data = torch.randn(BUFFER // 4, device="cuda")
    out = torch.zeros(1, device="cuda")
    found, at = [], 0
    for width in WIDTHS:
        for loads in LOADS:
            kernel = _kernel("read_in_flight", LOADS=loads, WIDTH=width)
            for warps in WARPS:
                grid, block = _config(sms, warps)
                in_flight = sms * warps * 32 * loads * width
                # As long as memory would take if each turn took a microsecond, at most half of the buffer.
                turns = max(1, min(int(TARGET_MS * 1000), BUFFER // 2 // in_flight))

                def run(kernel=kernel, grid=grid, block=block, turns=turns, size=turns * in_flight) -> None:
                    nonlocal at
                    at = at if at + size <= BUFFER else 0
                    kernel[grid, block](out, data[at // 4 : (at + size) // 4], turns)
                    at += size

                found.append(Rate(warps, loads, width, in_flight, turns * in_flight, _times(run)))
    return tuple(found)


def _fmas(sms: int) -> tuple[Rate, ...]:
    import torch

    data, out = torch.randn(32, device="cuda").clamp(-3, 3), torch.zeros(1, device="cuda")
    turns = 2048
    found = []
    for chains in CHAINS:
        kernel = _kernel("fma_in_flight", ILP=chains)
        for warps in WARPS:
            grid, block = _config(sms, warps)
            threads = sms * warps * 32
            work = 2 * threads * turns * FMA_PER_TURN
            times = _times(lambda k=kernel, g=grid, b=block: k[g, b](out, data, turns))
            found.append(Rate(warps, chains, 0, threads * chains, work, times))
    return tuple(found)


def _config(sms: int, warps: int) -> tuple[int, int]:
    """Grid and block that put so many warps on each multiprocessor."""
    blocks = -(-warps // 32)
    return sms * blocks, 32 * warps // blocks


def _times(run: Callable[[], object]) -> tuple[float, ...]:
    """Milliseconds of SAMPLES launches after two to warm up."""
    import torch

    times = []
    for n in range(SAMPLES + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(200_000)
        start.record()
        run()
        end.record()
        end.synchronize()
        if n >= 2:
            times.append(start.elapsed_time(end))
    return tuple(times)


# --- the command ---------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `labkit latency`."""
    parser.add_argument("--recorded", action="store_true", help="show what was measured on other machines")
    recorded.add_argument(parser)
    parser.add_argument("--html", type=Path, metavar="FILE", help="draw the curves")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Do what `labkit latency` was asked for; returns 0. Raises LabkitError."""
    recorded.refuse(arguments)
    found = find_recorded() if arguments.recorded else measure() if arguments.record else curves()
    if arguments.record:
        path = recorded.write("latency", "latency", found.to_dict(), arguments.record)
        print(f"Recorded in {path}.", file=sys.stderr)
    if arguments.json:
        print(recorded.text({"machine": found.machine, "origin": found.origin, **found.to_dict()}), end="")
    else:
        print(found)
        for load in found.loads:
            print(f"{load.footprint:>12,} bytes {load.median_cycles:8.1f} cycles {load.median_ns:8.1f} ns")
    if arguments.html:
        from labkit import plots

        figures = (plots.latency(found), plots.littles_law(found), plots.ilp(found))
        arguments.html.write_text("\n".join(figure.to_html(include_plotlyjs="cdn") for figure in figures))
        print(f"Drawn in {arguments.html}.", file=sys.stderr)
    return 0
