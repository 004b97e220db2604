"""GPUs by the figures of their makers: what a model may assume where nothing was measured.

Rates are peaks at the boost clock, dense (without structured sparsity). No program reaches them all at once;
`labkit ceilings` measures what one reaches. A figure is None where no source of NVIDIA's was found.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from labkit.errors import LabkitError


@dataclass(frozen=True)
class Limits:
    """What one multiprocessor has, and in which portions it gives it out.

    warps, blocks: the most that it holds.  registers: of 32 bits.  shared: bytes, the largest split of L1 and shared
    memory.  shared_per_block: the most that a block may ask for.  registers_per_thread, threads_per_block: likewise.
    The portions: registers by 256 per warp, in each of 4 parts of the multiprocessor; shared memory by
    `shared_portion` bytes, with `shared_reserved` on top that the system keeps for each block.
    fp32_lanes: float32 multiply-adds that it begins per clock.

    Sources: CUDA Programming Guide, technical specifications and arithmetic throughput per compute capability; portions
    as in NVIDIA's own calculator, cuda_occupancy.h of the CUDA toolkit (cudaOccRegAllocationGranularity,
    cudaOccSubPartitionsPerMultiprocessor, cudaOccSMemAllocationGranularity); the 1024 bytes: Ampere tuning guide.
    """

    warps: int = 64
    blocks: int = 32
    registers: int = 65536
    shared: int = 233472
    shared_per_block: int = 232448
    registers_per_thread: int = 255
    threads_per_block: int = 1024
    register_portion: int = 256
    parts: int = 4
    shared_portion: int = 128
    shared_reserved: int = 1024
    fp32_lanes: int = 128


_GA10X = {"warps": 48, "shared": 102400, "shared_per_block": 101376}
LIMITS = {
    "sm_75": Limits(
        warps=32, blocks=16, shared=65536, shared_per_block=65536, shared_portion=256, shared_reserved=0, fp32_lanes=64
    ),
    "sm_80": Limits(shared=167936, shared_per_block=166912, fp32_lanes=64),
    "sm_86": Limits(blocks=16, **_GA10X),
    "sm_89": Limits(blocks=24, **_GA10X),
    "sm_90": Limits(),
    "sm_100": Limits(),
}

SHARED_BYTES_PER_CLOCK = 128  # of one multiprocessor: 32 banks of 4 bytes (CUDA Programming Guide, shared memory)


@dataclass(frozen=True)
class Device:
    """One GPU; `name` as its driver says it.

    arch: a key of LIMITS.  sms: multiprocessors.  clock_mhz: boost.  bandwidth_gbps: of its memory.  l2: bytes.
    fp32_tflops: multiply-adds counted twice, without tensor cores.  tensor_tflops: float16 (and from sm_80 bfloat16)
    products summed in float32.  int8_tops: tensor cores.  source: where the figures stand, but those in `others`.
    """

    name: str
    arch: str
    sms: int | None
    clock_mhz: int | None
    bandwidth_gbps: float | None
    l2: int | None
    fp32_tflops: float | None
    tensor_tflops: float | None
    int8_tops: float | None
    source: str
    others: dict[str, str] = field(default_factory=dict)

    @property
    def limits(self) -> Limits:
        """What a multiprocessor has; LabkitError where this architecture is not in the table."""
        return limits(self.arch)

    def source_of(self, figure: str) -> str:
        """The document in which a figure, such as "l2", stands."""
        return self.others.get(figure, self.source)

    @property
    def rates(self) -> dict[str, float]:
        """Peaks by the names of `labkit ceilings`, those that are known: they bound what can be measured."""
        found = {
            "read_gbps": self.bandwidth_gbps,
            "copy_gbps": self.bandwidth_gbps,
            "fp32_tflops": self.fp32_tflops,
            "bf16_tflops": self.tensor_tflops,
            "int8_tops": self.int8_tops,
        }
        if self.sms and self.clock_mhz:
            found["shared_gbps"] = self.sms * SHARED_BYTES_PER_CLOCK * self.clock_mhz / 1e3
        return {name: rate for name, rate in found.items() if rate}


MIB = 2**20
_TURING = "NVIDIA Turing GPU Architecture, white paper, appendix on the Tesla T4"
_GA102 = "NVIDIA Ampere GA102 GPU Architecture, white paper V2.0, appendix A"
_VENDORS = "card vendors' tables; 58 x 128 x 2 x 2040 MHz is the datasheet's 30.3 TFLOP/s"
_ADA = "NVIDIA Ada GPU Architecture, white paper, appendix A"
_GA100 = "NVIDIA A100 Tensor Core GPU Architecture, white paper V1.0, table 1"
_H100 = "NVIDIA H100 Tensor Core GPU Architecture, white paper"
_HERE = "read by labkit on the machine of labkit/recorded/bench"
_ASKED = "what a B200's driver answers, as printed in pytorch/ao#4002 (which has 7672 GB/s by its memory clock)"
DEVICES = {
    device.name: device
    for device in (
        Device("Tesla T4", "sm_75", 40, 1590, 320, 4 * MIB, 8.1, 65, 130, _TURING),
        Device("NVIDIA GeForce RTX 3090", "sm_86", 82, 1695, 936, 6 * MIB, 35.6, 71, 284, _GA102),
        Device("NVIDIA GeForce RTX 4090", "sm_89", 128, 2520, 1008, 72 * MIB, 82.6, 165.2, 660.6, _ADA),
        Device(
            "NVIDIA L4", "sm_89", 58, 2040, 300, 48 * MIB, 30.3, 121, 242.5, "NVIDIA L4, datasheet",
            dict.fromkeys(("sms", "clock_mhz", "l2"), _VENDORS),
        ),
        Device("NVIDIA A100-SXM4-40GB", "sm_80", 108, 1410, 1555, 40 * MIB, 19.5, 312, 624, _GA100),
        Device(
            "NVIDIA A100-SXM4-80GB", "sm_80", 108, 1410, 2039, 40 * MIB, 19.5, 312, 624, _GA100,
            {"bandwidth_gbps": "NVIDIA A100, datasheet"},
        ),
        Device(
            "NVIDIA H100 80GB HBM3", "sm_90", 132, 1980, 3350, 50 * MIB, 66.9, 989.4, 1978.9, _H100,
            {"clock_mhz": "derived: 66.9 TFLOP/s over 132 x 128 x 2", "bandwidth_gbps": "NVIDIA H100, datasheet"},
        ),
        Device(
            "NVIDIA H200", "sm_90", 132, 1980, 4800, 60 * MIB, 67, 989.5, 1979, "NVIDIA H200, datasheet",
            {"sms": _HERE, "clock_mhz": _HERE, "l2": _HERE},
        ),
        Device(
            "NVIDIA B200", "sm_100", 148, 1980, 7700, 253 * MIB // 2, 75, 2250, 4500, "NVIDIA HGX B200, datasheet",
            {"sms": _ASKED, "l2": _ASKED, "clock_mhz": "derived: 75 TFLOP/s over 148 x 128 x 2"},
        ),
    )
}  # fmt: skip


def limits(arch: str) -> Limits:
    """What a multiprocessor of an architecture has, such as "sm_90"; LabkitError where the table has it not."""
    if arch not in LIMITS:
        raise LabkitError(f"The limits of {arch!r} are not known; there are {', '.join(LIMITS)}.")
    return LIMITS[arch]


def find(name: str) -> Device:
    """The device of the table by its driver's name, or by a part of it that fits one only ("H200").

    LabkitError names what there is.
    """
    if name in DEVICES:
        return DEVICES[name]
    fitting = [device for known, device in DEVICES.items() if name and name.lower() in known.lower()]
    if len(fitting) == 1:
        return fitting[0]
    raise LabkitError(f"{name!r} names no one device of the table; there are {', '.join(DEVICES)}.")


def present() -> Device | None:
    """The GPU of this machine as its driver describes it, or None where there is none.

    Bandwidth is twice the memory clock by the bus width, FP32 what its multiprocessors begin at the highest clock.
    Tensor rates cannot be asked: they come from the table, where the device is in it.
    """
    from labkit.kernels import gpu

    if not gpu.available():
        return None
    import pynvml
    import torch

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(torch.cuda.current_device())
    about = torch.cuda.get_device_properties()
    name, arch = about.name, f"sm_{about.major}{about.minor}"
    clock = pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)
    memory = pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM)
    bandwidth = 2 * memory * 1e6 * pynvml.nvmlDeviceGetMemoryBusWidth(handle) / 8 / 1e9
    lanes = LIMITS[arch].fp32_lanes if arch in LIMITS else None
    known = DEVICES.get(name)
    return Device(
        name, arch, about.multi_processor_count, clock, bandwidth, about.L2_cache_size,
        about.multi_processor_count * lanes * 2 * clock / 1e6 if lanes else None,
        known.tensor_tflops if known else None,
        known.int8_tops if known else None,
        "the driver of this machine",
        {"tensor_tflops": known.source, "int8_tops": known.source} if known else {},
    )  # fmt: skip


COLUMNS = {
    "arch": "",
    "sms": "SMs",
    "clock_mhz": "MHz",
    "bandwidth_gbps": "GB/s",
    "l2": "L2 MiB",
    "fp32_tflops": "FP32 TFLOP/s",
    "tensor_tflops": "FP16 tensor",
    "int8_tops": "INT8 TOP/s",
}


def table(here: Device | None = None) -> str:
    """The devices as lines of text, the one of this machine first, and then where each figure stands."""
    devices = [*([here] if here else []), *DEVICES.values()]
    rows = [["", *COLUMNS.values()]]
    for device in devices:
        figures = {name: getattr(device, name) for name in COLUMNS}
        figures["l2"] = device.l2 / MIB if device.l2 else None
        cells = ["-" if v is None else v if isinstance(v, str) else f"{v:,.5g}" for v in figures.values()]
        rows.append([f"{device.name}{' (here)' if device is here else ''}", *cells])
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = [
        " ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    lines += ["", "Peaks at the boost clock, without sparsity. Sources:"]
    for device in devices:
        others = "".join(f"; {COLUMNS[name]}: {source}" for name, source in device.others.items())
        lines.append(f"  {device.name}: {device.source}{others}")
    return "\n".join(lines)
