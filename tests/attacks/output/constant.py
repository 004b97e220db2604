# family: zeros or constants under a loose tolerance
# target: reduce/sequential
# tries:  the sum of many numbers between 0 and 1 is half as much as there are.
# naive:  plain
# gains:  marks
# shape:  N=65536
# ours:   fail got .* want

from numba import cuda, float32


@cuda.jit
def half(y, n):
    if cuda.grid(1) == 0:
        y[0] = float32(n) / 2


def launch(y, x):
    half[1, 32](y, x.shape[0])
