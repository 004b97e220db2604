"""cpy_f32_f16/plain: dst[h, t, d] = half(x[t, h, d]), one thread per number, in blocks of 256.

The first rung, and llama.cpp's own: the numbers of dst are counted through, and divisions find the three indices, from
which the strides of either side make an address.
Watch: load and store requests; a warp stores 64 bytes with each.
"""

from numba import cuda

THREADS = 256


@cuda.jit
def cpy_plain(dst, x):
    H, T, D = dst.shape
    ### BEGIN SOLUTION
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < H * T * D:
        h = i // (T * D)
        t = i // D % T
        d = i % D
        dst[h, t, d] = x[t, h, d]
    ### END SOLUTION


def launch(dst, x):
    blocks = (x.numel() + THREADS - 1) // THREADS
    cpy_plain[blocks, THREADS](dst, x)
