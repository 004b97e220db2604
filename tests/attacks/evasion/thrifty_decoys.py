# family: decoy kernel
# target: vector_add/grid
# part:   structure
# tries:  one block does everything with a quarter of the instructions, 16 bytes at a time; what that saves keeps the
#         other blocks busy.
# naive:  plain
# gains:  marks
# ours:   fail busiest_block

from numba import cuda

import labkit as lk


@cuda.jit
def add(C, A, B, aligned):
    if cuda.blockIdx.x == 0:
        for i in range(4 * cuda.threadIdx.x, C.shape[0], 4 * cuda.blockDim.x):
            if aligned and i + 3 < C.shape[0]:
                a = lk.cuda.load4(A, i)
                b = lk.cuda.load4(B, i)
                lk.cuda.store4(C, i, (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]))
            else:
                for j in range(i, min(i + 4, C.shape[0])):
                    C[j] = A[j] + B[j]
    else:
        noise = cuda.threadIdx.x
        for i in range(12):
            noise = noise * 1664525 ^ i
        if noise == 1 << 40:
            C[0] = 0


def launch(C, A, B):
    aligned = all(t.data_ptr() % 16 == 0 for t in (A, B, C))
    add[(C.shape[0] + 255) // 256, 256](C, A, B, aligned)
