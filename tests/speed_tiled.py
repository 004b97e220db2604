"""A tiled product of 64 x 64 matrices, run once by numba's simulator (NUMBA_ENABLE_CUDASIM=1): prints its seconds."""

import time

import numpy as np
from numba import cuda, float32

T = 16


@cuda.jit
def tiled(a, b, c):
    sa = cuda.shared.array((T, T), float32)
    sb = cuda.shared.array((T, T), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * T + y, cuda.blockIdx.x * T + x
    total = float32(0)
    for t in range(0, a.shape[1], T):
        sa[y, x] = a[row, t + x]
        sb[y, x] = b[t + y, col]
        cuda.syncthreads()
        for k in range(T):
            total += sa[y, k] * sb[k, x]
        cuda.syncthreads()
    c[row, col] = total


def matrices():
    rng = np.random.default_rng(0)
    return [rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2)] + [np.zeros((64, 64), np.float32)]


if __name__ == "__main__":
    a, b, c = matrices()
    started = time.process_time()
    tiled[(4, 4), (T, T)](a, b, c)
    print(time.process_time() - started)
    assert np.allclose(c, a @ b, atol=1e-4)
