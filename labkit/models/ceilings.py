"""The rates that this machine really reaches, which figures are reported against: measured, never from a datasheet."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

from labkit.errors import LabkitError

SAMPLES = 20
UNITS = {
    "copy_gbps": "device memory, read plus write",
    "read_gbps": "device memory, read only",
    "l2_gbps": "L2 cache, read",
    "shared_gbps": "shared memory, read, all SMs",
    "fp32_tflops": "FP32 multiply-add",
    "bf16_tflops": "tensor cores, bf16 (PyTorch matmul at 8192)",
    "int8_tops": "tensor cores, int8 (torch._int_mm at 8192, second operand column-major)",
}


def measure() -> tuple[dict[str, float], dict[str, list[float]]]:
    """Median rates by the names in UNITS, and the raw samples in ms behind each, on random data.

    Raises LabkitError where there is no GPU.
    """
    from labkit.kernels import cuda_kernel, gpu

    if not gpu.available():
        raise LabkitError("Ceilings are measured on a GPU, and there is none here; `labkit doctor` says why.")
    import torch

    device = torch.cuda.get_device_properties()
    sms, l2 = device.multi_processor_count, device.L2_cache_size
    source = Path(__file__).with_name("ceilings.cu").read_text()
    read_only, shared_read, fma = (cuda_kernel(source, name) for name in ("read_only", "shared_read", "fma_fp32"))
    out = torch.zeros(1, device="cuda")
    big = torch.randn(2**30 // 2, device="cuda")  # 2 GiB: many times any L2
    target = torch.empty_like(big)
    small = big[: l2 // 4 // 4]  # a quarter of the L2
    reads, loops = 200, 4096
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    i, j = (torch.randint(-128, 127, (8192, 8192), device="cuda", dtype=torch.int8) for _ in range(2))

    runs: dict[str, tuple[float, Callable[[], object]]] = {
        "copy_gbps": (2 * big.nbytes / 1e9, lambda: target.copy_(big)),
        "read_gbps": (big.nbytes / 1e9, lambda: read_only[sms * 8, 256](out, big, big.numel() // 4, 1)),
        "l2_gbps": (
            small.nbytes * reads / 1e9,
            lambda: read_only[sms * 2, 1024](out, small, small.numel() // 4, reads),
        ),
        "shared_gbps": (sms * 2 * 1024 * 16 * 8 * loops / 1e9, lambda: shared_read[sms * 2, 1024](out, big, loops)),
        "fp32_tflops": (sms * 2 * 1024 * 16 * 2 * loops / 1e12, lambda: fma[sms * 2, 1024](out, big, loops)),
        "bf16_tflops": (2 * 8192**3 / 1e12, lambda: torch.mm(a, b)),
        "int8_tops": (2 * 8192**3 / 1e12, lambda: torch._int_mm(i, j.t())),
    }
    samples = {name: _times(run) for name, (_, run) in runs.items()}
    rates = {name: work / (statistics.median(samples[name]) / 1e3) for name, (work, _) in runs.items()}
    return rates, samples


def _times(run: Callable[[], object]) -> list[float]:
    """Milliseconds of SAMPLES launches after three to warm up."""
    import torch

    times = []
    for n in range(SAMPLES + 3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(200_000)
        start.record()
        run()
        end.record()
        end.synchronize()
        if n >= 3:
            times.append(start.elapsed_time(end))
    return times
