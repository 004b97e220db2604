# family: several streams joined
# target: vector_add/grid
# tries:  two halves on two streams, both waited for.
# ours:   pass

from numba import cuda


@cuda.jit
def add(C, A, B, first, end):
    i = first + cuda.grid(1)
    if i < end:
        C[i] = A[i] + B[i]


def launch(C, A, B):
    streams = [cuda.stream(), cuda.stream()]
    middle = C.shape[0] // 2
    for stream, (first, end) in zip(streams, ((0, middle), (middle, C.shape[0])), strict=True):
        if end > first:
            add[(end - first + 255) // 256, 256, stream](C, A, B, first, end)
    for stream in streams:
        stream.synchronize()
