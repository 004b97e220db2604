"""out[h, d] = sum over t of att[h, t] * V[t, h, d]: what attention reads, mixed by its weights; float32.

V: times x heads x 128. One thread per element of out, 32 of them in a block.
"""

from numba import cuda, float32

WIDTH = 128


@cuda.jit
def mix(out, att, V):
    h = cuda.blockIdx.y
    d = cuda.blockIdx.x * 32 + cuda.threadIdx.x
    total = float32(0)
    for t in range(V.shape[0]):  # time after time, one after the other
        total += att[h, t] * V[t, h, d]
    out[h, d] = total


def launch(out, att, V):
    mix[(WIDTH // 32, V.shape[1]), 32](out, att, V)
