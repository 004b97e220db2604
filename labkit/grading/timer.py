"""Times recordings on a GPU, in a sandbox of its own and without any of the student's Python: only PTX is launched.

So clocks, events and synchronization are the grader's. A submission's recording and the reference's take turns, each on
buffers of its own, on inputs drawn afresh and an L2 that holds none of them. Each timed output is compared with a
result computed afterwards from inputs drawn once more, which no kernel has had in its reach.
"""

from __future__ import annotations

import statistics
import struct
import time
from typing import Any

from labkit.grading import wire

MOST_JOB = 1 << 30
WARM_UPS = 3
LEAST_SAMPLES, MOST_SAMPLES, MOST_SECONDS = 10, 50, 20.0
FLOOR = 0.8  # of the least time by this machine's measured ceilings: what is faster was not computed


class _Replay:
    """A recording on the device: its buffers, and its launches with their parameters."""

    def __init__(self, recording: Any) -> None:
        import numpy as np
        import torch

        from labkit.emulator.launch import Pointer

        self.launches, self.kept, bases = [], [], []
        for buffer in recording.buffers:
            raw = torch.empty(buffer.nbytes + 512, dtype=torch.uint8, device="cuda")
            start = -raw.data_ptr() % 256 + buffer.misalign
            view = raw[start : start + buffer.nbytes]
            self.kept.append((view, torch.from_numpy(np.ascontiguousarray(buffer.data)).cuda()))
            bases.append(view.data_ptr())
        for launch, cluster in zip(recording.launches, recording.clusters, strict=True):
            params = [
                struct.pack("<Q", (bases[p.buffer] + p.offset) % 2**64) if isinstance(p, Pointer) else p
                for p in launch.params
            ]
            self.launches.append((launch, params, cluster))

    def reset(self, tensors: list[Any]) -> None:
        """Fresh contents: the given tensors first, then workspaces as they were recorded."""
        import torch

        for (view, data), tensor in zip(self.kept, tensors, strict=False):
            view.copy_(data if tensor is None else tensor.reshape(-1).view(torch.uint8))
        for view, data in self.kept[len(tensors) :]:
            view.copy_(data)

    def run(self) -> None:
        from labkit.kernels import gpu

        for launch, params, cluster in self.launches:
            gpu.launch_code(
                launch.ptx.encode(), launch.entry, launch.grid, launch.block, params, shared=launch.shared,
                cluster=cluster, max_registers=launch.max_registers,
            )  # fmt: skip


def handle(header: dict[str, Any], blobs: list[bytes]) -> bytes:
    """Time two recordings in turn.

    The job: {"problem", "rung", "shape", "seed", "floor_ms"} and as blobs the submission's recording and the
    reference's. The answer: {"yours_ms": [...], "reference_ms": [...], "device"}, or {"fault": sentence}.
    """
    from labkit.errors import LabkitError

    try:
        return wire.pack(_time(header, blobs))
    except (LabkitError, RuntimeError) as error:  # torch's errors of CUDA are RuntimeErrors
        return wire.pack({"fault": str(error)[:1000]})


def _time(job: dict[str, Any], blobs: list[bytes]) -> dict[str, Any]:
    import torch

    from labkit import problems
    from labkit.check import compare
    from labkit.errors import LabkitError
    from labkit.grading.engine import poisoned, unpack_recording
    from labkit.timing import SPIN_CYCLES, tf32_off

    problem = problems.get(job["problem"])
    problem = problem.of(problem.step(job["rung"]))
    shape = job["shape"]
    options = problem.options_of(shape)
    empty = problem.make_outputs(shape, device="cuda")

    def drawn(round_: int) -> dict[str, torch.Tensor]:
        return problem.make_inputs(shape, (job["seed"] + round_) % 2**62, device="cuda")

    inputs = drawn(0)
    described = [
        {"name": n, "dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape), "output": n in empty}
        for n, t in {**empty, **inputs}.items()
    ]
    sizes = [t.numel() * t.element_size() for t in {**empty, **inputs}.values()]
    blank = [poisoned(size, d["dtype"]) for size, d in zip(sizes, described, strict=True)]
    yours, reference = (_Replay(unpack_recording(blob, described, blank)) for blob in blobs[:2])
    flush = torch.empty(2 * torch.cuda.get_device_properties().L2_cache_size, dtype=torch.uint8, device="cuda")

    def once(replay: _Replay, round_: int) -> float:
        replay.reset([*(None for _ in empty), *drawn(round_).values()])  # outputs as they were: poison, or the host's
        flush.random_(0, 255)
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(SPIN_CYCLES)
        began = time.perf_counter()
        start.record()
        replay.run()  # all on one stream, and by nobody else: the event behind it is behind all of it
        end.record()
        end.synchronize()
        elapsed = start.elapsed_time(end)
        wall = 1e3 * (time.perf_counter() - began)
        if elapsed > wall + 1.0:
            raise LabkitError("The GPU's clock and the host's do not agree; the time was not taken.")
        return elapsed

    def verify(replay: _Replay, round_: int) -> None:
        results = {
            name: view.clone().view(t.dtype).reshape(t.shape)
            for (name, t), (view, _) in zip(empty.items(), replay.kept, strict=False)
        }
        fault = next(compare(problem, drawn(round_), results, options, lambda kind, message, **_: message), None)
        if fault:
            raise LabkitError(f"A timed run was wrong: {fault}")

    times: dict[str, list[float]] = {"yours": [], "reference": []}
    with tf32_off():
        for round_ in range(WARM_UPS):
            once(yours, round_)
            once(reference, round_)
        verify(yours, WARM_UPS - 1)
        deadline = time.perf_counter() + MOST_SECONDS
        for round_ in range(WARM_UPS, WARM_UPS + MOST_SAMPLES):
            times["yours"].append(once(yours, 2 * round_))
            verify(yours, 2 * round_)
            times["reference"].append(once(reference, 2 * round_ + 1))
            if len(times["yours"]) >= LEAST_SAMPLES and time.perf_counter() > deadline:
                break
    if statistics.median(times["yours"]) < FLOOR * job["floor_ms"]:
        raise LabkitError("It took less time than this GPU needs to move the data, so not all of it was computed.")
    return {"yours_ms": times["yours"], "reference_ms": times["reference"], "device": torch.cuda.get_device_name()}


def _warm() -> None:
    import torch  # noqa: F401 - no context yet: a process that forks must have none


def main() -> None:
    _warm()
    wire.serve(handle, MOST_JOB)


if __name__ == "__main__":
    main()
