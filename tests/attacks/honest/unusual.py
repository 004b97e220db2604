# family: unusual but right
# target: vector_add/grid
# tries:  a kernel made in a closure with a lambda in it, launched twice over a flat grid that is far too large.
# ours:   pass

import functools
import operator

from numba import cuda


def elementwise(function):
    function = cuda.jit(device=True)(function)

    @cuda.jit
    def kernel(out, *inputs):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = function(inputs[0][i], inputs[1][i])

    return kernel


add = elementwise(lambda a, b: a + b)
launch = functools.partial(operator.call if hasattr(operator, "call") else lambda f, *a: f(*a), lambda C, A, B: [
    add[(C.shape[0] + 31) // 32 + 7, 32](C.view(-1), A, B) for _ in range(2)
])
