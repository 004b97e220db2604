# family: several streams joined
# target: vector_add/grid
# tries:  records events around the launch and waits for them, as in a tutorial.
# ours:   pass

from numba import cuda


@cuda.jit
def add(C, A, B):
    i = cuda.grid(1)
    if i < C.shape[0]:
        C[i] = A[i] + B[i]


def launch(C, A, B):
    start, end = cuda.event(), cuda.event()
    start.record()
    add[(C.shape[0] + 255) // 256, 256](C, A, B)
    end.record()
    end.synchronize()
    cuda.synchronize()
