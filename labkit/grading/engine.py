"""A second process, in a sandbox of its own, without any of the student's Python: runs recordings on real inputs.

PTX is untrusted too, and so is every number in a recording: sizes are bounded, the problem's tensors are described by
the grader and never by the recording, and the emulator checks each access. The answer is raw bytes and counts; the
grader compares.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np

from labkit.grading import wire

MOST_JOB = 1 << 30
MOST_WORKSPACE = 1 << 30  # bytes of all buffers beside the problem's tensors
MOST_LAUNCHES = 4096


def unpack_recording(data: bytes, tensors: list[dict[str, Any]], bytes_of: list[Any]) -> Any:
    """The Recording in `data`, its first buffers replaced by the grader's. Raises KernelError for any other bytes.

    An output keeps what the host wrote into it, such as zeros: the host has seen none of the real inputs.
    """
    from labkit.kernels.errors import KernelError
    from labkit.kernels.recorder import RecordedBuffer, Recording

    try:
        found = wire.Reader(max(len(data), 8)).feed(data)
        if found is None:
            raise ValueError("it is cut short")
        header, blobs = found
        described = header["recording"]
        sizes = [b["nbytes"] for b in described["buffers"]]
        given = len(tensors)
        if header["given"] != given or len(sizes) < given or len(blobs) != len(sizes):
            raise ValueError("it has other buffers")
        if not all(type(s) is int and s >= 0 for s in sizes) or sum(sizes[given:]) > MOST_WORKSPACE:
            raise ValueError(f"its workspaces take more than {MOST_WORKSPACE >> 30} GiB")
        if len(described["launches"]) > MOST_LAUNCHES:
            raise ValueError(f"it has more than {MOST_LAUNCHES} launches")

        def written(i: int) -> bool:
            """Of the grader's tensors: an output that the host has filled."""
            filled = tensors[i]["output"] and described["buffers"][i]["fresh"] is False
            return filled and sizes[i] == len(bytes_of[i])

        def data_of(i: int) -> np.ndarray:
            if i < given and not written(i):
                return np.broadcast_to(np.uint8(0), (sizes[i],))  # of no memory: the grader's takes its place
            if not blobs[i]:
                return np.zeros(sizes[i], np.uint8)
            unzip = zlib.decompressobj()
            return np.frombuffer(unzip.decompress(blobs[i], sizes[i] + 1), np.uint8).copy()

        recording = Recording.of(described, data_of)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, zlib.error) as error:
        raise KernelError(f"The launches could not be read: {error}.") from error
    for i, (tensor, raw) in enumerate(zip(tensors, bytes_of, strict=True)):
        filled = written(i)
        raw = recording.buffers[i].data if filled else raw
        fresh = tensor["output"] and not filled
        recording.buffers[i] = RecordedBuffer(
            tensor["name"], tensor["dtype"], tuple(tensor["shape"]), None, 0, raw, fresh
        )
    return recording


def poisoned(nbytes: int, dtype: str) -> np.ndarray:
    """The bytes that `labkit.check.poison` leaves in an output of this dtype."""
    return np.full(nbytes, wire.mark(dtype), np.uint8)


def handle(header: dict[str, Any], blobs: list[bytes]) -> bytes:
    """Run the recordings of one kernel, up to the first fault.

    The job: {"runs": [{"tensors": [{name, dtype, shape, output, nbytes}], "metrics": [names]}]}, and for each run the
    recording and the bytes of the inputs. The answer: for each run {"launches": n, "metrics": {...}} and the bytes of
    all its tensors afterwards, or {"fault": {kind, message, line}} and none.
    """
    given, runs, after = iter(blobs), [], []
    modules: dict = {}  # launches find what earlier ones left in their variables, as on a GPU
    for run in header["runs"]:
        recording = next(given)
        bytes_of = [
            poisoned(t["nbytes"], t["dtype"]) if t["output"] else np.frombuffer(next(given), np.uint8).copy()
            for t in run["tensors"]
        ]
        answer, data = _run(recording, run["tensors"], bytes_of, run["metrics"], modules)
        runs.append(answer)
        after += data
        if "fault" in answer:
            break
    return wire.pack({"runs": runs}, after)


def _run(
    data: bytes, tensors: list[dict[str, Any]], bytes_of: list[np.ndarray], metrics: list[str], modules: dict
) -> tuple[dict[str, Any], list[bytes]]:
    from labkit.emulator import Emulation, KernelFault
    from labkit.emulator.counters import Counters
    from labkit.errors import LabkitError

    try:
        recording = unpack_recording(data, tensors, bytes_of)
        if any(cluster != (1, 1, 1) for cluster in recording.clusters):
            raise KernelFault("unsupported", "it launches clusters of blocks", "The grader's emulator runs none.")
        counters = Counters() if metrics else None
        emulation = Emulation(counters=counters, modules=modules)
        if counters is not None:
            counters.memory = emulation.memory
        after = recording.run(emulation)
    except KernelFault as fault:
        return {"fault": {"kind": fault.kind, "message": str(fault)[:2000], "line": fault.line}}, []
    except LabkitError as error:
        return {"fault": {"kind": "error", "message": str(error)[:2000], "line": None}}, []
    except MemoryError:
        return {"fault": {"kind": "memory", "message": "It needs more memory than there is.", "line": None}}, []
    found = {}
    for name in metrics:
        value = float(counters.metrics.get(name, math.nan)) if recording.launches else math.nan
        found[name] = value if math.isfinite(value) else None
    answer = {"launches": len(recording.launches), "metrics": found}
    return answer, [np.ascontiguousarray(d).tobytes() for d in after[: len(tensors)]]


def _warm() -> None:
    import labkit.emulator.counters
    import labkit.emulator.jit  # noqa: F401


def main() -> None:
    _warm()
    wire.serve(handle, MOST_JOB)


if __name__ == "__main__":
    main()
