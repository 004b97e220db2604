"""Times recordings on a GPU, in a sandbox of its own and without any of the student's Python: only PTX is launched.

So clocks, events and synchronization are the grader's. A submission's recording and the reference's take turns, on
inputs drawn afresh for every round, outputs that are poisoned, and an L2 that holds none of them. Each timed output is
compared with what the reference makes of the same inputs, drawn again once the submission's kernels are done; the
reference itself is compared with float64 first. The GPU's clock is held against the host's.
"""

from __future__ import annotations

import re
import statistics
import struct
import time
from typing import Any

from labkit.errors import LabkitError
from labkit.grading import wire

MOST_JOB = 1 << 30
WARM_UPS = 3
LEAST_SAMPLES, MOST_SAMPLES, MOST_SECONDS = 10, 50, 20.0
FLOOR = 0.8  # of the least time by this machine's measured ceilings: what is faster was not computed
# How much longer the host may see the submission's launches run than the GPU's clock says, beyond what it sees of the
# reference's: in ms, and as a fraction of the time.
DISAGREE_MS, DISAGREE = 0.2, 0.1


class Gpu:
    """The device as far as timing needs it; tests put another in its place."""

    device = "cuda"

    def __init__(self) -> None:
        import torch

        self.torch = torch
        properties = torch.cuda.get_device_properties()
        self.name, self.l2_bytes = properties.name, properties.L2_cache_size
        self.capability = 10 * properties.major + properties.minor

    def event(self) -> Any:
        return self.torch.cuda.Event(enable_timing=True)

    def spin(self, cycles: int) -> None:
        """Keep the GPU waiting, so that the host is ahead of it when the clock starts."""
        self.torch.cuda._sleep(cycles)

    def wait(self) -> None:
        self.torch.cuda.synchronize()

    def launch(self, launch: Any, code: bytes, cluster: tuple[int, int, int], views: list[Any]) -> None:
        from labkit.emulator.launch import Pointer
        from labkit.kernels import gpu

        params = [
            struct.pack("<Q", (views[p.buffer].data_ptr() + p.offset) % 2**64) if isinstance(p, Pointer) else p
            for p in launch.params
        ]
        gpu.launch_code(
            code, launch.entry, launch.grid, launch.block, params, shared=launch.shared, cluster=cluster,
            max_registers=launch.max_registers,
        )  # fmt: skip


class _Fault(Exception):
    """Why there is no time, and whose fault that is: "yours", "reference" or "machine"."""

    def __init__(self, whose: str, what: str) -> None:
        super().__init__(what)
        self.whose = whose


def _code(ptx: str, capability: int) -> bytes:
    """PTX for this device: recordings are made for sm_90, and an older device takes most of it under its own name."""
    found = re.search(r"(?m)^\s*\.target\s+sm_(\d+)(?!\w)", ptx)
    if found and int(found[1]) > capability:
        ptx = f"{ptx[: found.start(1)]}{capability}{ptx[found.end(1) :]}"
    return ptx.encode()


class _Replay:
    """A recording on the device: its launches, and its buffers.

    The first buffers are the problem's tensors, `outputs` of them outputs, at the places that `tensors` gives.
    """

    def __init__(self, device: Any, recording: Any, tensors: list[Any], outputs: int) -> None:
        self.device = device
        self.launches = [
            (launch, _code(launch.ptx, device.capability), cluster)
            for launch, cluster in zip(recording.launches, recording.clusters, strict=True)
        ]
        self.buffers = recording.buffers
        self.views = [*tensors, *(_room(device, b.nbytes, b.misalign) for b in recording.buffers[len(tensors) :])]
        own = [not b.fresh and not outputs <= i < len(tensors) and b.data.any() for i, b in enumerate(self.buffers)]
        self.filled = [_bytes_on(device, b.data) if o else None for b, o in zip(self.buffers, own, strict=True)]

    def reset(self, inputs: dict[int, Any]) -> None:
        """Fresh contents: the inputs, and all other buffers as they were when they were recorded, or poisoned."""
        import torch

        for i, (view, buffer, data) in enumerate(zip(self.views, self.buffers, self.filled, strict=True)):
            if i in inputs:
                view.copy_(inputs[i].reshape(-1).view(torch.uint8))
            elif data is not None:
                view.copy_(data)
            else:
                view.fill_(wire.mark(buffer.dtype) if buffer.fresh else 0)

    def run(self) -> None:
        for launch, code, cluster in self.launches:
            self.device.launch(launch, code, cluster, self.views)


def _room(device: Any, nbytes: int, misalign: int = 0) -> Any:
    """Bytes on the device that start so far behind a multiple of 256."""
    import torch

    raw = torch.empty(nbytes + 512, dtype=torch.uint8, device=device.device)
    start = -raw.data_ptr() % 256 + misalign
    return raw[start : start + nbytes]


def _bytes_on(device: Any, data: Any) -> Any:
    import numpy as np
    import torch

    return torch.from_numpy(np.array(data)).to(device.device)


def handle(header: dict[str, Any], blobs: list[bytes]) -> bytes:
    """Time two recordings in turn.

    The job: {"problem", "rung", "shape", "seed", "floor_ms"} and as blobs the submission's recording and the
    reference's. The answer: {"yours_ms": [...], "reference_ms": [...], "device"}, or {"fault": sentence, "whose"}.
    """
    try:
        return wire.pack(Timer(header, blobs, Gpu()).times())
    except _Fault as fault:
        return wire.pack({"fault": _line(fault), "whose": fault.whose})
    except (LabkitError, RuntimeError) as error:  # torch's errors of CUDA are RuntimeErrors
        return wire.pack({"fault": _line(error), "whose": "machine"})


def _line(error: Exception) -> str:
    return (str(error).split("\n")[0] or type(error).__name__)[:500]


class Timer:
    """One job: a submission's recording and the reference's, on one device."""

    def __init__(self, job: dict[str, Any], blobs: list[bytes], device: Any) -> None:
        import torch

        from labkit import problems
        from labkit.timing import SPIN_CYCLES

        problem = problems.get(job["problem"])
        self.job, self.device, self.spin = job, device, SPIN_CYCLES
        self.problem = problem.of(problem.step(job["rung"]))
        self.options = self.problem.options_of(job["shape"])
        specs = {**self.problem.outputs, **self.problem.inputs}
        described = [
            {"name": n, "dtype": s.dtype, "shape": list(s.shape(job["shape"])), "output": n in self.problem.outputs}
            for n, s in specs.items()
        ]
        self.dtypes = [getattr(torch, d["dtype"]) for d in described]
        self.shapes = [d["shape"] for d in described]
        self.places = {name: i for i, name in enumerate(specs)}
        sizes = [torch.Size(shape).numel() * t.itemsize for shape, t in zip(self.shapes, self.dtypes, strict=True)]
        views = [_room(device, size) for size in sizes]
        self.yours, self.reference = (
            self._replay(whose, blob, described, sizes, views)
            for whose, blob in zip(("yours", "reference"), blobs, strict=True)
        )
        self.flush = torch.empty(2 * device.l2_bytes, dtype=torch.uint8, device=device.device)
        self.clean = torch.zeros(2 * device.l2_bytes // 4, device=device.device)

    def _replay(self, whose: str, blob: bytes, described: list, sizes: list[int], views: list[Any]) -> _Replay:
        import numpy as np

        from labkit.grading.engine import unpack_recording

        nothing = [np.broadcast_to(np.uint8(0), (size,)) for size in sizes]  # of that length, and of no memory
        try:
            recording = unpack_recording(blob, described, nothing)
        except LabkitError as error:
            raise _Fault(whose, str(error)) from error
        if not recording.launches:
            raise _Fault(whose, "launch started no kernel, so there is nothing to time.")
        return _Replay(self.device, recording, views, len(self.problem.outputs))

    def drawn(self, round_: int) -> dict[str, Any]:
        seed = (self.job["seed"] + round_) % 2**62
        return self.problem.make_inputs(self.job["shape"], seed, device=self.device.device)

    def once(self, whose: str, round_: int) -> tuple[float, float, bool]:
        """Milliseconds by the GPU's clock and by the host's, and whether the host was ahead of the GPU."""
        replay = getattr(self, whose)
        try:
            replay.reset({self.places[name]: tensor for name, tensor in self.drawn(round_).items()})
            self.flush.random_(0, 255)
            self.clean.sum()  # written lines left in the L2 would go to memory on the kernel's time
            self.device.wait()
        except (LabkitError, RuntimeError) as error:
            raise _Fault("machine", _line(error)) from error
        try:
            start, end = self.device.event(), self.device.event()
            self.device.spin(self.spin)
            began = time.perf_counter()
            start.record()
            replay.run()  # all on one stream, and by nobody else: the event behind it is behind all of it
            end.record()
            late = start.query()
            end.synchronize()
            host = 1e3 * (time.perf_counter() - began)
            return start.elapsed_time(end), host, not late
        except (LabkitError, RuntimeError) as error:  # a launch that is refused, or an access that the GPU stopped
            raise _Fault(whose, _line(error)) from error

    def outputs(self) -> dict[str, Any]:
        """The outputs of the last run, which the next one overwrites."""
        return {
            name: self.yours.views[i].view(self.dtypes[i]).reshape(self.shapes[i])
            for name, i in self.places.items()
            if name in self.problem.outputs
        }

    def times(self) -> dict[str, Any]:
        from labkit.timing import MOST_SPIN_CYCLES, tf32_off

        taken: dict[str, list[list[float]]] = {"yours": [], "reference": []}
        with tf32_off():
            bounds = self.bounds()
            for round_ in range(WARM_UPS):
                self.once("yours", round_)
                self.once("reference", round_)
            round_, deadline = WARM_UPS, time.perf_counter() + MOST_SECONDS
            while len(taken["yours"]) < MOST_SAMPLES:
                round_ += 1
                *mine, ahead = self.once("yours", round_)
                got = {name: tensor.clone() for name, tensor in self.outputs().items()}
                *theirs, also_ahead = self.once("reference", round_)
                self.compare(got, self.outputs(), bounds)
                if ahead and also_ahead:
                    taken["yours"].append(mine)
                    taken["reference"].append(theirs)
                else:  # the host's own time was in it
                    self.spin *= 2
                    if self.spin > MOST_SPIN_CYCLES:
                        whose = "yours" if also_ahead else "machine"
                        raise _Fault(whose, "It launches so much that the host cannot keep ahead of the GPU.")
                if len(taken["yours"]) >= LEAST_SAMPLES and time.perf_counter() > deadline:
                    break
        self.believable(taken)
        yours, reference = ([gpu for gpu, _ in taken[name]] for name in ("yours", "reference"))
        return {"yours_ms": yours, "reference_ms": reference, "device": self.device.name}

    def bounds(self) -> dict[str, float]:
        """How far an output may be from the reference's, which is found to be right here first, against float64."""
        from labkit.check import _close, tolerance

        self.once("reference", 0)
        wanted, allowed = tolerance(self.problem, self.drawn(0), self.options)
        for name, tensor in self.outputs().items():
            if not bool(_close(tensor, wanted[name], allowed[name]).all()):
                raise _Fault("reference", f"The reference's {name} is not right on this GPU.")
        return {name: 2 * float(limit.nan_to_num(0.0).max()) for name, limit in allowed.items()}

    @staticmethod
    def compare(got: dict[str, Any], wanted: dict[str, Any], bounds: dict[str, float]) -> None:
        for name, want in wanted.items():
            mine = got[name]
            if want.is_floating_point():
                near = (mine - want).abs().double() <= bounds[name]
                near |= (mine == want) | (mine.isnan() & want.isnan())
            else:
                near = mine == want
            count = int((~near).sum())
            if count:
                raise _Fault("yours", f"A timed run was wrong: {count} of {want.numel()} elements of {name}.")

    def believable(self, taken: dict[str, list[list[float]]]) -> None:
        """_Fault where the time is less than can be, or is not what the host has seen go by."""
        if statistics.median(gpu for gpu, _ in taken["yours"]) < FLOOR * self.job["floor_ms"]:
            raise _Fault(
                "yours", "It took less time than this GPU needs to move the data, so not all of it was computed."
            )
        # Within a round both see the same spin and the same wait; a time that was made to look shorter leaves more of
        # the host's unexplained.
        mine, theirs = ([host - gpu for gpu, host in taken[name]] for name in ("yours", "reference"))
        more = statistics.median(m - t for m, t in zip(mine, theirs, strict=True))
        if more > DISAGREE_MS + DISAGREE * statistics.median(host for _, host in taken["yours"]):
            raise _Fault("machine", "The GPU's clock and the host's do not agree on it, so the time was not taken.")


def _warm() -> None:
    import torch  # noqa: F401 - no context yet: a process that forks must have none


def main() -> None:
    _warm()
    wire.serve(handle, MOST_JOB)


if __name__ == "__main__":
    main()
