# family: torch, cuBLAS or CuPy
# target: vector_add/grid
# tries:  computes with NumPy on the host, and lets the kernel add zero to it.
# naive:  plain
# gains:  marks
# ours:   fail never written|got .* want|before|refus|reaches

import numpy as np
from numba import cuda


@cuda.jit
def add_nothing(C, sums):
    i = cuda.grid(1)
    if i < C.shape[0]:
        C[i] = sums[i]


def launch(C, A, B):
    sums = np.asarray(A) + np.asarray(B)
    add_nothing[(C.shape[0] + 255) // 256, 256](C, sums)
