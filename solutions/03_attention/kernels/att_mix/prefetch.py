"""att_mix/prefetch: out[h, d] = sum over t of att[h, t] * v[t, h / (H / HKV), d], v in float16, all else float32.

Against half2: a warp asks for the values and weights of 16 of its tokens before it uses the first of them. They wait in
registers, and the memory works on all of them at once. Launch bounds of one block per multiprocessor give it the 64
registers for that: with 32, the compiler would put the loads back to where they are used. Tokens that do not fill 16 go
one by one.
Watch: bytes in flight; the longest chain of instructions that wait for one another.
"""

from numba import cuda, float32

import labkit as lk

WARPS = 32
UNROLL = 16


@cuda.jit(launch_bounds=(32 * WARPS, 1))
def att_mix_prefetch(out, att, v, HKV, group):
    """v: all values in a row, [T * HKV * D]; group: query heads per value head."""
    sums = cuda.shared.array(64, float32)  # of 64 neighboring d
    values = cuda.local.array((UNROLL, 2), float32)  # in registers: all indices are constants once loops are unrolled
    weights = cuda.local.array(UNROLL, float32)
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
            step = warps * HKV * D  # from one token of this warp to the next
            at = (warp * HKV + h // group) * D + d
            t = warp
            while t + (UNROLL - 1) * warps < T:
                for j in range(UNROLL):
                    values[j, 0], values[j, 1] = lk.cuda.load2(v, at + j * step)
                    weights[j] = att[h, t + j * warps]
                for j in range(UNROLL):
                    first += weights[j] * values[j, 0]
                    second += weights[j] * values[j, 1]
                t += UNROLL * warps
                at += UNROLL * step
            while t < T:
                two = lk.cuda.load2(v, at)
                first += att[h, t] * two[0]
                second += att[h, t] * two[1]
                t += warps
                at += step
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
    att_mix_prefetch[H, (32, min(T, WARPS))](out, att, v.reshape(-1), HKV, H // HKV)
