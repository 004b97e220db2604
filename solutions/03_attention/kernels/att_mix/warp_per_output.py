"""att_mix/warp_per_output: out[h, d] = sum over t of att[h, t] * v[t, h / (H / HKV), d] in float32, a warp per number.

The first rung, yalm's first: H * D blocks of one warp. Lane n takes the tokens n, n + 32 ..., and shuffles add up what
the lanes have. Neighboring lanes read neighboring tokens, and those lie HKV * D numbers apart.
Watch: sectors per load request.
"""

from numba import cuda, float32


@cuda.jit
def att_mix_warp_per_output(out, att, v, group):
    """group: query heads per value head."""
    h, d, lane = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x
    T = v.shape[0]
    total = float32(0)
    ### BEGIN SOLUTION
    for t in range(lane, T, 32):
        total += att[h, t] * v[t, h // group, d]
    for far in (16, 8, 4, 2, 1):
        total += cuda.shfl_down_sync(0xFFFFFFFF, total, far)
    ### END SOLUTION
    if lane == 0:
        out[h, d] = total


def launch(out, att, v):
    H, D = out.shape
    att_mix_warp_per_output[(H, D), 32](out, att, v, H // v.shape[1])
