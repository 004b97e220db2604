"""Run a recording on a GPU: `python -m labkit.kernels.replay DIR`, in a process of its own for Nsight Compute.

The launches stand in the nvtx range "kernel" of the domain "labkit": `ncu --nvtx --nvtx-include "labkit@kernel/"`.
"""

from __future__ import annotations

import argparse
import struct
import sys

import numpy as np

from labkit.emulator.launch import Pointer
from labkit.errors import LabkitError
from labkit.kernels import gpu
from labkit.kernels.errors import KernelError
from labkit.kernels.recorder import Recording


def replay(recording: Recording, repeats: int = 1) -> list[np.ndarray]:
    """Run all launches on the current GPU, `repeats` times over; returns the bytes of the buffers afterwards.

    Raises KernelError where there is no GPU or the driver refuses.
    """
    if not gpu.available():
        raise KernelError("There is no GPU here to replay a recording on; run it on the emulator instead.")
    import nvtx

    gpu.current_context()
    bases = []
    for buffer in recording.buffers:  # allocations are aligned to 256 bytes
        base = int(gpu.call("cuMemAlloc", buffer.misalign + max(buffer.nbytes, 1))) + buffer.misalign
        if buffer.nbytes:
            gpu.call("cuMemcpyHtoD", base, np.ascontiguousarray(buffer.data).ctypes.data, buffer.nbytes)
        bases.append(base)
    with nvtx.annotate("kernel", domain="labkit"):
        for launch, cluster in repeats * list(zip(recording.launches, recording.clusters, strict=True)):
            params = [
                struct.pack("<Q", bases[p.buffer] + p.offset) if isinstance(p, Pointer) else p for p in launch.params
            ]
            gpu.launch_code(
                launch.ptx.encode(),
                launch.entry,
                launch.grid,
                launch.block,
                params,
                shared=launch.shared,
                cluster=cluster,
                max_registers=launch.max_registers,
            )
        gpu.call("cuCtxSynchronize")
    after = []
    for buffer, base in zip(recording.buffers, bases, strict=True):
        data = np.empty(buffer.nbytes, np.uint8)
        if buffer.nbytes:
            gpu.call("cuMemcpyDtoH", data.ctypes.data, base, buffer.nbytes)
        gpu.call("cuMemFree", base - buffer.misalign)
        after.append(data)
    return after


def main(argv: list[str] | None = None) -> int:
    """Exit status 0 and "ok"; 2 and one sentence where it cannot run."""
    parser = argparse.ArgumentParser(prog="python -m labkit.kernels.replay", description=__doc__)
    parser.add_argument("folder", help="what Recording.save wrote")
    parser.add_argument("--repeats", type=int, default=1, help="how often to run it")
    arguments = parser.parse_args(argv)
    try:
        replay(Recording.load(arguments.folder), arguments.repeats)
    except LabkitError as error:
        print(error, file=sys.stderr)
        return 2
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
