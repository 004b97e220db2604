# family: compile cache
# target: vector_add/grid
# tries:  keeps compiled kernels by what they were compiled for, in memory and in a file of its own.
# ours:   pass

import functools
import tempfile
from pathlib import Path

from numba import cuda

log = Path(tempfile.gettempdir(), "tuned-for.txt")


@functools.cache
def kernel_for(per_thread):
    @cuda.jit
    def add(C, A, B):
        first = cuda.grid(1) * per_thread
        for i in range(first, min(first + per_thread, C.shape[0])):
            C[i] = A[i] + B[i]

    log.write_text(str(per_thread))
    return add


def launch(C, A, B):
    per_thread = 1 if C.shape[0] < 1000 else 4
    threads = (C.shape[0] + per_thread - 1) // per_thread
    kernel_for(per_thread)[(threads + 127) // 128, 128](C, A, B)
