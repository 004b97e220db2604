"""numba kernels that share memory within a block, wrongly and rightly."""

from cases import right, wrong
from numba import cuda, float32, int32

TILE = 16


@wrong("race", 1, 64, "new f4 64", "ramp f4 64")
def no_barrier_after_store(y, x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]  # OTHER
    y[t] = s[63 - t]  # BUG


@wrong("race", 1, 64, "new f4 64", "ramp f4 4x64")
def no_barrier_before_refill(y, x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    total = float32(0)
    for k in range(4):
        s[t] = x[k, t]  # BUG
        cuda.syncthreads()
        total += s[63 - t]  # OTHER
    y[t] = total


@wrong("race", 1, (16, 16), "new f4 16x16", "ramp f4 16x16")
def tile_transpose(y, x):
    tile = cuda.shared.array((TILE, 17), float32)
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    tile[j, i] = x[j, i]  # OTHER
    y[j, i] = tile[i, j]  # BUG


@wrong("race", 1, 64, "new f4 64", "ramp f4 64")
def warp_barrier_for_block(y, x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]  # OTHER
    cuda.syncwarp()
    y[t] = s[t ^ 32]  # BUG


@wrong("race", 1, 128, "new f4 1", "ramp f4 128")
def reduction_without_barrier(y, x):
    s = cuda.shared.array(128, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    half = 64
    while half > 0:
        if t < half:
            s[t] += s[t + half]  # BUG
        half //= 2
    if t == 0:
        y[0] = s[0]


@wrong("race", 1, 64, "zeros i4 8", "ramp i4 64")
def histogram_without_atomics(y, x):
    bins = cuda.shared.array(8, int32)
    t = cuda.threadIdx.x
    if t < 8:
        bins[t] = 0
    cuda.syncthreads()
    bins[x[t] % 8] += 1  # BUG
    cuda.syncthreads()
    if t < 8:
        y[t] = bins[t]


@wrong("uninitialized", 1, (16, 16), "new f4 16x16", "ramp f4 10x10")
def tile_border(y, x):
    tile = cuda.shared.array((TILE, TILE), float32)
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    if i < x.shape[1] and j < x.shape[0]:
        tile[j, i] = x[j, i]
    cuda.syncthreads()
    y[j, i] = tile[j, i]  # BUG


@wrong("barrier", 1, 64, "new f4 64", "ramp f4 40")
def barrier_in_a_branch(y, x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = float32(0)
    if t < x.shape[0]:
        s[t] = x[t]
        cuda.syncthreads()  # BUG
    y[t] = s[t]


@wrong("barrier", 2, 64, "new f4 100", "ramp f4 100")
def barrier_after_return(y, x):
    s = cuda.shared.array(64, float32)
    i = cuda.grid(1)
    if i >= x.shape[0]:
        return
    s[cuda.threadIdx.x] = x[i]
    cuda.syncthreads()  # BUG
    y[i] = s[cuda.threadIdx.x]


@wrong("out_of_bounds", 1, 32, "zeros f4 32", "ramp f4 32")
def shared_halo(y, x):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    y[t] = s[t] + s[t + 1]  # BUG


@wrong("shuffle", 2, 32, "zeros f4 1", "ramp f4 40")
def tail_left_before_reduction(y, x):
    i = cuda.grid(1)
    if i >= x.shape[0]:
        return
    v = x[i]
    for d in (16, 8, 4, 2, 1):
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, d)  # BUG
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(y, 0, v)


@right(1, 64, "new f4 64", "ramp f4 4x64")
def barriers_both(y, x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    total = float32(0)
    for k in range(4):
        s[t] = x[k, t]
        cuda.syncthreads()
        total += s[63 - t]
        cuda.syncthreads()
    y[t] = total


@right(1, 64, "new f4 64", "ramp f4 6x64")
def two_buffers_one_barrier(y, x):
    s = cuda.shared.array((2, 64), float32)
    t = cuda.threadIdx.x
    total = float32(0)
    s[0, t] = x[0, t]
    cuda.syncthreads()
    for k in range(1, 6):
        s[k % 2, t] = x[k, t]
        total += s[(k - 1) % 2, 63 - t]
        cuda.syncthreads()
    y[t] = total


@right(1, 64, "new f4 2", "ramp f4 64")
def warp_reduction(y, x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncwarp()
    for d in (16, 8, 4, 2, 1):
        v = s[t + d] if t % 32 < d else float32(0)
        cuda.syncwarp()
        if t % 32 < d:
            s[t] += v
        cuda.syncwarp()
    if t % 32 == 0:
        y[t // 32] = s[t]


@right(1, 64, "new i4 8", "ramp i4 64")
def shared_histogram(y, x):
    bins = cuda.shared.array(8, int32)
    t = cuda.threadIdx.x
    if t < 8:
        bins[t] = 0
    cuda.syncthreads()
    cuda.atomic.add(bins, x[t] % 8, 1)
    cuda.syncthreads()
    if t < 8:
        y[t] = bins[t]


@right(2, 64, "new f4 100", "ramp f4 100")
def leave_after_the_barrier(y, x):
    s = cuda.shared.array(64, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    s[t] = x[i] if i < x.shape[0] else float32(0)
    cuda.syncthreads()
    if i >= x.shape[0]:
        return
    y[i] = s[63 - t]


@right(2, 32, "zeros f4 1", "ramp f4 40")
def neutral_tail(y, x):
    i = cuda.grid(1)
    v = x[i] if i < x.shape[0] else float32(0)
    for d in (16, 8, 4, 2, 1):
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, d)
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(y, 0, v)


@right(1, 64, "new i4 64", "ramp i4 64")
def all_write_the_same(y, x):
    any_ = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    any_[0] = 0
    cuda.syncthreads()
    if x[t] % 3 == 0:
        any_[0] = 1
    cuda.syncthreads()
    y[t] = any_[0]
