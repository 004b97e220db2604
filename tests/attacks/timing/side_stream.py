# family: unsynchronised side stream
# target: vector_add/grid
# part:   time
# tries:  works on a stream of its own, which events on the default stream do not wait for.
# naive:  events
# gains:  gpu time
# shape:  N=67108864
# ours:   pending GPU

from numba import cuda

stream = cuda.stream()


@cuda.jit
def add(C, A, B):
    i = cuda.grid(1)
    if i < C.shape[0]:
        C[i] = A[i] + B[i]


def launch(C, A, B):
    add[(C.shape[0] + 255) // 256, 256, stream](C, A, B)
