# family: unusual but right
# target: vector_add/grid
# tries:  a kernel made in a closure around a device function, launched twice over a grid that is far too large.
# ours:   pass

import functools

from numba import cuda


def elementwise(function):
    function = cuda.jit(device=True)(function)

    @cuda.jit
    def kernel(out, a, b):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(a[i], b[i])

    return kernel


def twice(kernel, C, A, B):
    for _ in range(2):
        kernel[(C.shape[0] + 31) // 32 + 7, 32](C.view(-1), A, B)


launch = functools.partial(twice, elementwise(lambda a, b: a + b))
