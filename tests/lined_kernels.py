"""Two kernels whose lines cost different things: for `labkit profile tests/lined_kernels.py --metrics source`."""

from __future__ import annotations

import numpy as np
from numba import cuda, float32


@cuda.jit
def turn(out, a):
    tile = cuda.shared.array((32, 32), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    tile[y, x] = a[y, x]
    cuda.syncthreads()
    out[y, x] = tile[x, y]


@cuda.jit
def mix(out, a, b):
    i = cuda.grid(1)
    s = a[8 * i]
    t = b[i]
    u = s * t
    if cuda.threadIdx.x % 2:
        u += s * s
    out[i] = u


def main() -> None:
    square = np.arange(1024, dtype=np.float32).reshape(32, 32)
    out = np.zeros_like(square)
    turn[1, (32, 32)](out, square)
    assert (out == square.T).all()
    a, b, c = np.ones(8 * 256, np.float32), np.ones(256, np.float32), np.zeros(256, np.float32)
    for _ in range(2):
        mix[2, 128](c, a, b)
    assert c[:4].tolist() == [1, 2, 1, 2]


if __name__ == "__main__":
    main()
