"""numba kernels on global memory, wrong and right."""

from cases import right, wrong
from numba import cuda, float32, int32


@wrong("out_of_bounds", 2, 64, "zeros f4 100", "ramp f4 128")
def no_guard(y, x):
    i = cuda.grid(1)
    y[i] = x[i]  # BUG


@wrong("out_of_bounds", (2, 2), (8, 8), "zeros f4 12x10", "ramp f4 12x10")
def rows_for_columns(y, x):
    col, row = cuda.grid(2)
    if row < x.shape[0] and col < x.shape[0]:
        y[row, col] = x[row, col]  # BUG


@wrong("uninitialized", 1, 64, "new f4 64", "ramp f4 64")
def accumulate_into_new(y, x):
    i = cuda.grid(1)
    y[i] += x[i]  # BUG


@wrong("uninitialized", 2, 32, "new f4 1", "ramp f4 64")
def atomic_on_new(total, x):
    cuda.atomic.add(total, 0, x[cuda.grid(1)])  # BUG


@wrong("race", 4, 32, "new f4 128", "ramp f4 128")
def neighbor_block(y, x):
    i = cuda.grid(1)
    y[i] = x[i]  # OTHER
    cuda.syncthreads()
    if i > 0:
        y[i] += y[i - 1]  # BUG


@wrong("race", 4, 32, "ramp f4 130")
def in_place_stencil(x):
    i = cuda.grid(1) + 1
    x[i] = x[i + 1] - x[i - 1]  # BUG


@wrong("race", 8, 32, "zeros f4 1", "ramp f4 256")
def sum_without_atomic(total, x):
    if cuda.threadIdx.x == 0:
        total[0] += x[cuda.blockIdx.x]  # BUG


@wrong("race", 4, 32, "new f4 1", "new f4 4", "zeros i4 1", "ramp f4 128")
def last_block_without_fence(total, part, done, x):
    b = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        part[b] = x[b * 32]  # OTHER
        if cuda.atomic.add(done, 0, 1) == cuda.gridDim.x - 1:
            total[0] = part[0] + part[1] + part[2] + part[3]  # BUG


@wrong("race", 2, 64, "new f4 128", "ramp f4 128")
def fence_is_no_barrier(y, x):
    i, t = cuda.grid(1), cuda.threadIdx.x
    y[i] = x[i]  # OTHER
    cuda.threadfence()
    v = y[i - t + 63 - t]  # BUG
    cuda.syncthreads()
    y[i] = v


@wrong("no_progress", 1, 32, "new i4 1", "zeros i4 1")
def flag_nobody_sets(y, flag):
    while cuda.atomic.add(flag, 0, 0) == 0:  # BUG
        pass
    y[0] = 1


@right(2, 64, "new f4 100", "ramp f4 100")
def guarded(y, x):
    i = cuda.grid(1)
    if i < x.shape[0]:
        y[i] = x[i]


@right(4, 32, "new f4 128", "ramp f4 128")
def strided_disjoint(y, x):
    i = cuda.threadIdx.x * 4 + cuda.blockIdx.x
    y[i] = x[i]
    y[i] += float32(1)


@right(4, 32, "zeros f4 1", "ramp f4 128")
def atomic_sum(total, x):
    cuda.atomic.add(total, 0, x[cuda.grid(1)])


@right(4, 64, "new f4 64", "new f4 4x64", "zeros i4 1", "ramp f4 4x64")
def last_block(y, part, done, x):
    last = cuda.shared.array(1, int32)
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    part[b, t] = x[b, t]
    cuda.threadfence()
    cuda.syncthreads()
    if t == 0:
        last[0] = cuda.atomic.add(done, 0, 1) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if last[0]:
        total = float32(0)
        for k in range(part.shape[0]):
            total += part[k, 63 - t]
        y[t] = total


@right(2, 64, "new f4 64", "new f4 64", "zeros i4 1", "ramp f4 64")
def flag_between_blocks(y, box, flag, x):
    t = cuda.threadIdx.x
    if cuda.blockIdx.x == 0:
        box[t] = x[t]
        cuda.threadfence()
        cuda.syncthreads()
        if t == 0:
            cuda.atomic.exch(flag, 0, 1)
    else:
        if t == 0:
            while cuda.atomic.add(flag, 0, 0) == 0:
                pass
        cuda.syncthreads()
        cuda.threadfence()
        y[t] = box[63 - t]


@right(4, 32, "new i4 128", "zeros i4 1", "ramp i4 128")
def claimed_slots(found, count, x):
    v = x[cuda.grid(1)]
    if v % 2:
        found[cuda.atomic.add(count, 0, 1)] = v


@right(2, 64, "new f4 128", "ramp f4 128")
def block_exchange(y, x):
    i, t = cuda.grid(1), cuda.threadIdx.x
    y[i] = x[i]
    cuda.syncthreads()
    v = y[i - t + 63 - t]
    cuda.syncthreads()
    y[i] = v


@right(1, 32, "new f4 32", "ramp f4 32")
def local_array(y, x):
    q = cuda.local.array(4, float32)
    t = cuda.threadIdx.x
    for k in range(4):
        q[k] = x[t] + k
    y[t] = q[t % 4]
