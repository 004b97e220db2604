"""UNTRUSTED, in a sandbox: runs a submission's host code, which only records launches. Nothing it says is a verdict.

A job names a problem, a rung, a language and shapes, and brings the kernel's source. Inputs are zeros, outputs are
poisoned; the answer is one recording per shape, or what went wrong as a sentence for the student.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import zlib
from pathlib import Path
from typing import Any

from labkit.grading import wire
from labkit.grading.wire import mark

MOST_JOB = 4 << 20


def pack_recording(recording: Any, given: int, outputs: int) -> bytes:
    """A recording as bytes, without the data of its first `given` buffers, which the engine puts in.

    The first `outputs` of them are outputs: what the host wrote into one before its first launch goes along. One that
    holds nothing but poison was not written, whatever the host did with it.
    """
    datas = []
    for i, buffer in enumerate(recording.buffers[:outputs]):
        if not buffer.fresh and bool((buffer.data == mark(buffer.dtype)).all()):
            recording.buffers[i] = dataclasses.replace(buffer, fresh=True)
    for i, buffer in enumerate(recording.buffers):
        blank = outputs <= i < given or buffer.fresh or not buffer.data.any()
        datas.append(b"" if blank else zlib.compress(buffer.data, 1))
    return wire.pack({"recording": recording.describe(), "given": given}, datas)


def handle(header: dict[str, Any], blobs: list[bytes]) -> bytes:
    """The answer to one job: {"results": [{"recording": n} or {"error": sentence, "line": n}]} and the recordings."""
    import torch

    from labkit.errors import LabkitError
    from labkit.kernels import recording
    from labkit.ladder import SUFFIX, problem
    from labkit.problems.problem import as_argument

    rung = problem(header["problem"])[header["rung"], header["language"]]
    folder = Path(tempfile.mkdtemp())
    path = folder / (header["rung"] + SUFFIX[header["language"]])
    path.write_bytes(blobs[0])
    results: list[dict[str, Any]] = []
    recordings: list[bytes] = []

    def failed(error: BaseException) -> dict[str, Any]:
        text = str(error) if isinstance(error, LabkitError) else f"{type(error).__name__}: {error}"
        return {"error": text.replace(f"{folder}/", "")[:2000], "line": getattr(error, "line", None)}

    try:
        kernel = rung.load(path).kernel
    except BaseException as error:  # SystemExit too: only a file that loads can be right
        return wire.pack({"results": [failed(error)] * len(header["shapes"])})
    p = rung.problem
    for shape in header["shapes"]:
        tensors = {
            name: _made(spec.shape(shape), getattr(torch, spec.dtype), mark(spec.dtype) if name in p.outputs else 0)
            for name, spec in {**p.outputs, **p.inputs}.items()
        }
        outputs = {name: tensors[name] for name in p.outputs}
        try:
            with recording(tensors, garbage=outputs.values()) as made:
                inputs = [tensors[name] for name in p.inputs]
                kernel.launch(as_argument(outputs), *inputs, **p.options_of(shape))
        except BaseException as error:
            results.append(failed(error))
            continue
        results.append({"recording": len(recordings)})
        recordings.append(pack_recording(made, len(tensors), len(outputs)))
    return wire.pack({"results": results}, recordings)


def _made(shape: tuple[int, ...], dtype: Any, fill: int) -> Any:
    """A tensor of equal bytes, which starts at a multiple of 256; zeros take memory where they are written only."""
    import numpy as np
    import torch

    nbytes = math.prod(shape) * dtype.itemsize
    raw = np.zeros(nbytes + 256, np.uint8)
    start = -raw.ctypes.data % 256
    raw = raw[start : start + nbytes]
    if fill:
        raw.fill(fill)
    return torch.from_numpy(raw).view(dtype).reshape(shape)


def _warm() -> None:
    """Pay once, before the forks, for what every job needs: torch, numba, and numba's first compilation."""
    import numpy as np
    import torch  # noqa: F401
    from numba import cuda

    from labkit.kernels import numba_host, recording

    numba_host.install()
    import labkit.kernels.numba_launch  # noqa: F401

    @cuda.jit
    def nothing(out, value):
        i = cuda.grid(1)
        if i < out.shape[0]:
            out[i] = value * i

    with recording():
        nothing[1, 32](np.zeros(4, np.float32), np.float32(1))


def main() -> None:
    _warm()
    wire.serve(handle, MOST_JOB)


if __name__ == "__main__":
    main()
