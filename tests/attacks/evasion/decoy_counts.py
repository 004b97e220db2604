# family: decoy kernel
# target: gemm/coalesced
# part:   structure
# tries:  computes as the rung below does, and launches tidy loads beside it until the mean per request looks good.
# naive:  plain
# gains:  marks
# shape:  M=8 N=8 K=8
# ours:   fail reads

from numba import cuda, float32


@cuda.jit
def naive(C, A, B):
    row, col = cuda.grid(2)
    if row < C.shape[0] and col < C.shape[1]:
        acc = float32(0)
        for k in range(A.shape[1]):
            acc += A[row, k] * B[k, col]
        C[row, col] = acc


@cuda.jit
def tidy(sink, A):
    acc = float32(0)
    for i in range(40_000):
        acc += A[0, i % min(A.shape[1], 8)]
    sink[0] = acc


def launch(C, A, B):
    naive[((C.shape[0] + 15) // 16, (C.shape[1] + 15) // 16), (16, 16)](C, A, B)
    tidy[64, 32](C.new_empty(1), A)
