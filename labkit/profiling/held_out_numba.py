"""Held-out kernels as numba compiles them; held_out.py launches them."""

from __future__ import annotations

from numba import cuda, float32, int32

FULL = 0xFFFFFFFF


@cuda.jit(device=True)
def sum_of_warp(v):
    d = 16
    while d:
        v += cuda.shfl_xor_sync(FULL, v, d)
        d //= 2
    return v


@cuda.jit
def numba_block_reduce(out, x):
    part = cuda.shared.array(32, float32)
    total = float32(0)
    for i in range(cuda.grid(1), x.shape[0], cuda.gridsize(1)):
        total += x[i]
    total = sum_of_warp(total)
    if cuda.threadIdx.x % 32 == 0:
        part[cuda.threadIdx.x // 32] = total
    cuda.syncthreads()
    if cuda.threadIdx.x < 32:
        total = float32(0)
        if cuda.threadIdx.x < cuda.blockDim.x // 32:
            total = part[cuda.threadIdx.x]
        total = sum_of_warp(total)
        if cuda.threadIdx.x == 0:
            out[cuda.blockIdx.x] = total


@cuda.jit(fastmath=True)
def numba_rmsnorm(out, x, weight):
    # One row per block.
    part = cuda.shared.array(128, float32)
    row, me = cuda.blockIdx.x, cuda.threadIdx.x
    total = float32(0)
    for j in range(me, x.shape[1], 128):
        total += x[row, j] * x[row, j]
    part[me] = total
    cuda.syncthreads()
    step = 64
    while step:
        if me < step:
            part[me] += part[me + step]
        cuda.syncthreads()
        step //= 2
    scale = float32(1) / (part[0] / float32(x.shape[1]) + float32(1e-5)) ** float32(0.5)
    for j in range(me, x.shape[1], 128):
        out[row, j] = x[row, j] * scale * weight[j]


@cuda.jit
def numba_histogram(bins, x):
    mine = cuda.shared.array(64, int32)
    if cuda.threadIdx.x < 64:
        mine[cuda.threadIdx.x] = 0
    cuda.syncthreads()
    i = cuda.grid(1)
    if i < x.shape[0]:
        cuda.atomic.add(mine, x[i], 1)
    cuda.syncthreads()
    if cuda.threadIdx.x < 64:
        cuda.atomic.add(bins, cuda.threadIdx.x, mine[cuda.threadIdx.x])


@cuda.jit
def numba_transpose(out, x):
    tile = cuda.shared.array((32, 33), float32)
    i, j = cuda.blockIdx.y * 32 + cuda.threadIdx.y, cuda.blockIdx.x * 32 + cuda.threadIdx.x
    for k in range(0, 32, 8):
        if i + k < x.shape[0] and j < x.shape[1]:
            tile[cuda.threadIdx.y + k, cuda.threadIdx.x] = x[i + k, j]
    cuda.syncthreads()
    i, j = cuda.blockIdx.x * 32 + cuda.threadIdx.y, cuda.blockIdx.y * 32 + cuda.threadIdx.x
    for k in range(0, 32, 8):
        if i + k < x.shape[1] and j < x.shape[0]:
            out[i + k, j] = tile[cuda.threadIdx.x, cuda.threadIdx.y + k]


@cuda.jit
def numba_softmax(out, x):
    # One warp per row.
    row, me = cuda.blockIdx.x, cuda.threadIdx.x
    top = float32(-1e30)
    for j in range(me, x.shape[1], 32):
        top = max(top, x[row, j])
    d = 16
    while d:
        top = max(top, cuda.shfl_xor_sync(FULL, top, d))
        d //= 2
    total = float32(0)
    for j in range(me, x.shape[1], 32):
        total += cuda.libdevice.fast_expf(x[row, j] - top)
    total = sum_of_warp(total)
    for j in range(me, x.shape[1], 32):
        out[row, j] = cuda.libdevice.fast_expf(x[row, j] - top) / total
