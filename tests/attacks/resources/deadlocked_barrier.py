# family: deadlocked barrier
# target: vector_add/grid
# tries:  half of a block waits for the other half, which has left.
# naive:  plain
# gains:  gpu stops
# ours:   fail|timeout barrier|still run|not end

from numba import cuda


@cuda.jit
def wait(C, A, B):
    i = cuda.grid(1)
    if i < C.shape[0]:
        C[i] = A[i] + B[i]
    if cuda.threadIdx.x < 100:
        cuda.syncthreads()
    else:
        while C[0] == C[0]:
            pass


def launch(C, A, B):
    wait[(C.shape[0] + 255) // 256, 256](C, A, B)
