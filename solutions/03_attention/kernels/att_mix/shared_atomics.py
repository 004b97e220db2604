"""att_mix/shared_atomics: out[h, d] = sum over t of att[h, t] * v[t, h / (H / HKV), d] in float32, a block per head.

Against global_atomics: the pieces of a head are the warps of one block, at most 32, and their sums meet in shared
memory. Nothing has to be zero before, and out is written once. Warp w takes the tokens w, w + warps ...
Watch: no global atomics; but there are only H blocks.
"""

from numba import cuda, float32

WARPS = 32


@cuda.jit
def att_mix_shared_atomics(out, att, v, group):
    """group: query heads per value head."""
    sums = cuda.shared.array(32, float32)  # of 32 neighboring d
    h, lane, warp = cuda.blockIdx.x, cuda.threadIdx.x, cuda.threadIdx.y
    warps = cuda.blockDim.y
    T, D = v.shape[0], v.shape[2]
    if warp == 0:
        sums[lane] = float32(0)
    cuda.syncthreads()  # all are zero before the first is added to
    for d in range(lane, D, 32):
        total = float32(0)
        ### BEGIN SOLUTION
        for t in range(warp, T, warps):
            total += att[h, t] * v[t, h // group, d]
        cuda.atomic.add(sums, lane, total)
        ### END SOLUTION
        cuda.syncthreads()  # each warp has added
        if warp == 0:
            out[h, d] = sums[lane]
            sums[lane] = float32(0)
        cuda.syncthreads()  # zero again before the next is added


def launch(out, att, v):
    (H, T), HKV = att.shape, v.shape[1]
    att_mix_shared_atomics[H, (32, min(T, WARPS))](out, att, v, H // HKV)
