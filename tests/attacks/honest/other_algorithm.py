# family: a different but correct algorithm
# target: gemm/coalesced
# tries:  outer products: a thread owns a row of four columns, and everything is one block.
# ours:   pass

from numba import cuda, float32


@cuda.jit
def outer(C, A, B):
    col = cuda.grid(1)
    if col < C.shape[1]:
        for row in range(C.shape[0]):
            acc = float32(0)
            for k in range(A.shape[1] - 1, -1, -1):  # backwards
                acc += A[row, k] * B[k, col]
            C[row, col] = acc


def launch(C, A, B):
    outer[(C.shape[1] + 63) // 64, 64](C, A, B)
