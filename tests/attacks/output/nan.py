# family: NaN or Inf
# target: vector_add/grid
# tries:  writes NaN, of which no difference is larger than anything.
# naive:  plain
# gains:  marks
# ours:   fail got nan want

import math

from numba import cuda


@cuda.jit
def fill(C, value):
    i = cuda.grid(1)
    if i < C.shape[0]:
        C[i] = value


def launch(C, A, B):
    fill[(C.shape[0] + 255) // 256, 256](C, math.nan)
