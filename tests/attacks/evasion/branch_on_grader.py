# family: branching on the grader's environment
# target: vector_add/grid
# tries:  does the work with PyTorch where a grader's variables, files or limits are seen, and is a plain kernel
#         elsewhere.
# naive:  plain
# gains:  marks
# ours:   fail .

import os
import sys

from numba import cuda

graded = "LAB_RESULT" in os.environ or "labkit.grading.worker" in sys.modules or os.getppid() <= 2


@cuda.jit
def add(C, A, B):
    i = cuda.grid(1)
    if i < C.shape[0]:
        C[i] = A[i] + B[i]


def launch(C, A, B):
    if graded:
        C.copy_(A + B)
    else:
        add[(C.shape[0] + 255) // 256, 256](C, A, B)
