# family: warnings on stderr
# target: vector_add/grid
# tries:  warns, logs and prints, as libraries do.
# ours:   pass

import logging
import sys
import warnings

from numba import cuda

warnings.warn("the grid is small for this GPU", stacklevel=1)
logging.error("this is only a log")
print("FAIL\nError: 1 test failed", flush=True)


@cuda.jit
def add(C, A, B):
    i = cuda.grid(1)
    if i < C.shape[0]:
        C[i] = A[i] + B[i]


def launch(C, A, B):
    print("launching", C.shape, file=sys.stderr)
    add[(C.shape[0] + 255) // 256, 256](C, A, B)
