# family: unusual but right
# target: copy/coalesced
# tries:  clears the output first with PyTorch, then copies it in pieces, each a view of its own.
# ours:   pass

from numba import cuda


@cuda.jit
def copy(B, A, stride):
    i = cuda.grid(1)
    if i < B.shape[0]:
        B[i] = A[stride * i]


def launch(B, A, offset=0, stride=1):
    B.zero_()
    for first in range(0, B.shape[0], 1024):
        piece = B[first : first + 1024]
        copy[(piece.shape[0] + 63) // 64, 64](piece, A[offset + stride * first :], stride)
