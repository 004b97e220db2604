"""att_mix/global_atomics: out[h, d] = sum over t of att[h, t] * v[t, h / (H / HKV), d] in float32, atomics in memory.

Against warp_per_output: the lanes go across a row of v, not down a column. A block, one warp, has a head and at most
256 tokens; it adds its sums to those of the other blocks in out, which a kernel of its own has set to zero.
Watch: load sectors fall; atomic additions to memory come in, and a launch.
"""

from numba import cuda, float32

CHUNK = 256  # tokens of a block


@cuda.jit
def att_mix_zero(out):
    h, d = cuda.blockIdx.x, cuda.threadIdx.x
    while d < out.shape[1]:
        out[h, d] = float32(0)
        d += 32


@cuda.jit
def att_mix_global_atomics(out, att, v, group):
    """group: query heads per value head."""
    h, first = cuda.blockIdx.x, cuda.blockIdx.y * CHUNK
    T, D = v.shape[0], v.shape[2]
    last = min(T, first + CHUNK)
    for d in range(cuda.threadIdx.x, D, 32):
        total = float32(0)
        ### BEGIN SOLUTION
        for t in range(first, last):
            total += att[h, t] * v[t, h // group, d]
        cuda.atomic.add(out, (h, d), total)
        ### END SOLUTION


def launch(out, att, v):
    (H, T), HKV = att.shape, v.shape[1]
    att_mix_zero[H, 32](out)
    att_mix_global_atomics[(H, (T + CHUNK - 1) // CHUNK), 32](out, att, v, H // HKV)
