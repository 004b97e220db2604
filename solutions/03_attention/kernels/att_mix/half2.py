"""att_mix/half2: out[h, d] = sum over t of att[h, t] * v[t, h / (H / HKV), d], v in float16, all else float32.

Against fp16: a lane takes two neighbors of v with one load, and has two sums. A request is 128 bytes again. There is
no multiplication of two float32 at once, so that the arithmetic stays as it was.
Watch: load requests.
"""

from numba import cuda, float32

import labkit as lk

WARPS = 32


@cuda.jit
def att_mix_half2(out, att, v, HKV, group):
    """v: all values in a row, [T * HKV * D]; group: query heads per value head."""
    sums = cuda.shared.array(64, float32)  # of 64 neighboring d
    h, lane, warp = cuda.blockIdx.x, cuda.threadIdx.x, cuda.threadIdx.y
    warps = cuda.blockDim.y
    T, D = att.shape[1], out.shape[1]
    if warp == 0:
        sums[lane] = float32(0)
        sums[32 + lane] = float32(0)
    cuda.syncthreads()  # all are zero before the first is added to
    for d0 in range(0, D, 64):
        d = d0 + 2 * lane  # and d + 1; D is even
        if d < D:
            first, second = float32(0), float32(0)
            ### BEGIN SOLUTION
            for t in range(warp, T, warps):
                two = lk.cuda.load2(v, (t * HKV + h // group) * D + d)
                weight = att[h, t]
                first += weight * two[0]
                second += weight * two[1]
            cuda.atomic.add(sums, lane, first)  # one number per bank: first of the pairs, then second
            cuda.atomic.add(sums, 32 + lane, second)
            ### END SOLUTION
        cuda.syncthreads()  # each warp has added
        if warp == 0:
            if d < D:
                out[h, d] = sums[lane]
                out[h, d + 1] = sums[32 + lane]
            sums[lane] = float32(0)
            sums[32 + lane] = float32(0)
        cuda.syncthreads()  # zero again before the next is added


def launch(out, att, v):
    (H, T), HKV = att.shape, v.shape[1]
    att_mix_half2[H, (32, min(T, WARPS))](out, att, v.reshape(-1), HKV, H // HKV)
