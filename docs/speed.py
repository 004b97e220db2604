"""Print the table of docs/emulator.md on speed: `taskset -c 0 .venv/bin/python docs/speed.py`, on an idle core.

CPU seconds of a launch with every check and counter on: the first one, without kept code, and the median of fifteen
later ones. The last line runs numba's simulator.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm

TESTS = Path(__file__).parents[1] / "tests"
AGAIN = 15


def timed(run: Callable[[], None]) -> float:
    """CPU seconds of this process and of the compilers that it starts, which are told in hundredths."""
    children, before = sum(os.times()[2:4]), time.process_time()
    run()
    return time.process_time() - before + sum(os.times()[2:4]) - children


def rows() -> list[tuple[str, Callable[[], None]]]:
    """What is timed, by its name: a function that launches it on a new emulation."""
    sys.path.insert(0, str(TESTS))
    import speed_tiled
    import test_speed as speed
    from engine_tools import INT, add, nvrtc, three

    import labkit as lk
    from labkit.emulator import Emulation, Launch
    from labkit.emulator.counters import Counters
    from labkit.kernels import emulating

    def cuda(name: str) -> Callable[[], None]:
        grid, block, arrays, n, *_ = speed.KERNELS[name]
        data = [speed.random_array(*a) for a in arrays]

        def run() -> None:
            emulation = Emulation(counters=Counters())
            params = [add(emulation, a, "abcd"[k]) for k, a in enumerate(data)]
            ptx = nvrtc(speed.SOURCE.read_text(), name=str(speed.SOURCE))
            emulation.run(Launch(ptx, name, three(grid), three(block), (*params, INT.pack(n))))

        return run

    def rung(name: str) -> Callable[[], None]:
        gemm = lk.problem("gemm")
        shape = dict.fromkeys("MNK", 512)
        inputs, outputs = gemm.make_inputs(shape), gemm.make_outputs(shape)
        kernel = gemm[name, "numba"].solution.kernel

        def run() -> None:
            with emulating(Emulation(counters=Counters())):
                kernel.launch(*outputs.values(), *inputs.values())

        return run

    def tiled() -> None:
        with emulating(Emulation(counters=Counters())):
            speed_tiled.tiled[(4, 4), (16, 16)](*speed_tiled.matrices())

    return [
        ("naive product, 512 x 512 x 512 (`gemm`, numba)", rung("naive")),
        ("naive product, 512 x 512 x 512 (CUDA C++)", cuda("naive")),
        ("product in 16 x 16 tiles, 512 x 512 x 512 (`gemm`, numba)", rung("smem_tile")),
        ("product in 32 x 32 tiles, 512 x 512 x 512 (CUDA C++)", cuda("tile")),
        ("sum of 2^20 numbers, by blocks (CUDA C++)", cuda("reduction")),
        ("softmax of 512 rows of 1024 (CUDA C++)", cuda("softmax")),
        ("product in 16 x 16 tiles, 64 x 64 x 64 (numba)", tiled),
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LABKIT_CACHE"] = folder
        print("| launch | first, s | later, s |\n|---|---|---|")
        for name, run in rows():
            first = timed(run)
            for _ in range(3):  # what is used often is compiled once more, or at last
                run()
            later = statistics.median(timed(run) for _ in range(AGAIN))
            print(f"| {name} | {first:.2f} | {later:.3f} |", flush=True)
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    command = [sys.executable, str(TESTS / "speed_tiled.py")]
    theirs = float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    print(f"| the last one in numba's simulator | {theirs:.2f} | |")
    cpu = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    print(f"\n{cpu.split(':')[1].strip()} ({llvm.get_host_cpu_name()}), {time.strftime('%Y-%m-%d')}")


if __name__ == "__main__":
    main()
