"""Many tiny kernels, one by one or as a CUDA graph: what launches cost, for `labkit trace tests/small_kernels.py`.

    python tests/small_kernels.py [--graph] [--kernels 200] [--rounds 5] [--size 4096]

Each round adds one to every element, `kernels` times over.
"""

from __future__ import annotations

import argparse
import time

import nvtx
import torch
from numba import cuda


@cuda.jit
def increment(x):
    i = cuda.grid(1)
    if i < x.shape[0]:
        x[i] += 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=4096)
    arguments = parser.parse_args()
    x = torch.zeros(arguments.size, device="cuda")

    def once(kernels: int = arguments.kernels) -> None:
        stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)  # a graph captures torch's stream
        for _ in range(kernels):
            increment[(arguments.size + 127) // 128, 128, stream](x)

    once(1)  # compiles
    step = once
    if arguments.graph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            once()
        step = graph.replay
    torch.cuda.synchronize()
    begin = time.perf_counter()
    with nvtx.annotate("rounds"):
        for _ in range(arguments.rounds):
            step()
        torch.cuda.synchronize()
    took = (time.perf_counter() - begin) / arguments.rounds
    assert bool((x == 1 + arguments.kernels * arguments.rounds).all()), x
    print(f"{took * 1e6:.0f} us per round of {arguments.kernels} kernels")


if __name__ == "__main__":
    main()
