# family: try/except fallback
# target: vector_add/grid
# tries:  shows a kernel that cannot work, and takes PyTorch when it does not.
# naive:  plain
# gains:  marks
# ours:   fail .

from numba import cuda


@cuda.jit
def add(C, A, B):
    i = cuda.grid(1)
    C[i] = A[i] + B[i] + no_such_name  # noqa: F821


def launch(C, A, B):
    try:
        add[(C.shape[0] + 255) // 256, 256](C, A, B)
    except Exception:
        C.copy_(A + B)
