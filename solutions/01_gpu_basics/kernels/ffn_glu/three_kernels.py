"""ffn_glu/three_kernels: h[m] = silu(W1[m] . x) * (W3[m] . x), weights float16, all else float32; three launches.

The first rung, and yalm's first: two matvecs, a warp per row, then a kernel for silu and the product. What the matvecs
find out goes to memory and comes back.
Watch: launches; bytes written and read between them.
"""

import math

from numba import cuda, float32

import labkit as lk

WARPS = 8
THREADS = WARPS * 32


@cuda.jit(device=True)
def warp_sum(v):
    """The sum over all lanes, in lane 0."""
    far = 16
    while far > 0:
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, far)
        far //= 2
    return v


@cuda.jit(device=True)
def dot8(w, a, b):
    """8 weights times 8 numbers of x."""
    low = w[0] * a[0] + w[1] * a[1] + w[2] * a[2] + w[3] * a[3]
    return low + w[4] * b[0] + w[5] * b[1] + w[6] * b[2] + w[7] * b[3]


@cuda.jit(launch_bounds=(THREADS, 1))
def ffn_matvec(y, W, x, M, K, aligned):
    lane = cuda.threadIdx.x % 32
    row = cuda.blockIdx.x * WARPS + cuda.threadIdx.x // 32
    if row >= M:
        return
    total = float32(0)
    if aligned:
        for k in range(lane * 8, K, 256):
            total += dot8(lk.cuda.load8(W, row * K + k), lk.cuda.load4(x, k), lk.cuda.load4(x, k + 4))
    else:
        for k in range(lane, K, 32):
            total += float32(W[row * K + k]) * x[k]
    total = warp_sum(total)
    if lane == 0:
        y[row] = total


@cuda.jit
def ffn_silu_mul(h, gate, up):
    ### BEGIN SOLUTION
    m = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if m < h.shape[0]:
        h[m] = gate[m] / (float32(1) + math.exp(-gate[m])) * up[m]
    ### END SOLUTION


def launch(h, W1, W3, x):
    M, K = W1.shape
    gate = h.new_empty(M)
    up = h.new_empty(M)
    blocks = (M + WARPS - 1) // WARPS
    for y, W in ((gate, W1), (up, W3)):
        aligned = K % 8 == 0 and (W.data_ptr() | x.data_ptr()) % 16 == 0
        ffn_matvec[blocks, THREADS](y, W.reshape(-1), x, M, K, aligned)
    ffn_silu_mul[(M + THREADS - 1) // THREADS, THREADS](h, gate, up)
