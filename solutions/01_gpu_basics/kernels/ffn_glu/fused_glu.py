"""ffn_glu/fused_glu: h[m] = silu(W1[m] . x) * (W3[m] . x), weights float16, all else float32; one launch.

Against three_kernels: a warp goes along row m of W1 and row m of W3 together, reads x once for both, has both sums in
the end, and makes h[m] of them. Nothing in between goes to memory, and no launch waits for another.
Watch: launches; load requests for x.
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
def ffn_fused_glu(h, W1, W3, x, M, K, aligned):
    lane = cuda.threadIdx.x % 32
    row = cuda.blockIdx.x * WARPS + cuda.threadIdx.x // 32
    if row >= M:
        return
    gate = float32(0)
    up = float32(0)
    ### BEGIN SOLUTION
    if aligned:
        k = lane * 8
        while k + 256 < K:  # two steps at once: all loads of weights first
            w1 = lk.cuda.load8(W1, row * K + k)
            w3 = lk.cuda.load8(W3, row * K + k)
            v1 = lk.cuda.load8(W1, row * K + k + 256)
            v3 = lk.cuda.load8(W3, row * K + k + 256)
            a, b = lk.cuda.load4(x, k), lk.cuda.load4(x, k + 4)
            gate += dot8(w1, a, b)
            up += dot8(w3, a, b)
            a, b = lk.cuda.load4(x, k + 256), lk.cuda.load4(x, k + 260)
            gate += dot8(v1, a, b)
            up += dot8(v3, a, b)
            k += 512
        if k < K:
            a, b = lk.cuda.load4(x, k), lk.cuda.load4(x, k + 4)
            gate += dot8(lk.cuda.load8(W1, row * K + k), a, b)
            up += dot8(lk.cuda.load8(W3, row * K + k), a, b)
    else:
        for k in range(lane, K, 32):
            gate += float32(W1[row * K + k]) * x[k]
            up += float32(W3[row * K + k]) * x[k]
    gate = warp_sum(gate)
    up = warp_sum(up)
    if lane == 0:
        h[row] = gate / (float32(1) + math.exp(-gate)) * up
    ### END SOLUTION


def launch(h, W1, W3, x):
    M, K = W1.shape
    aligned = K % 8 == 0 and (W1.data_ptr() | W3.data_ptr() | x.data_ptr()) % 16 == 0
    blocks = (M + WARPS - 1) // WARPS
    ffn_fused_glu[blocks, THREADS](h, W1.reshape(-1), W3.reshape(-1), x, M, K, aligned)
