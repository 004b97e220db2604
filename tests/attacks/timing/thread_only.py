# family: background thread
# target: vector_add/grid
# tries:  never waits for the thread that does the work: the output is looked at soon, but not at once.
# naive:  plain
# gains:  time
# shape:  N=4099
# ours:   fail no kernel|never written|started no

import threading

import torch
from numba import cuda

threads = []
real = torch.Tensor.abs


@cuda.jit
def add(C, A, B):
    i = cuda.grid(1)
    if i < C.shape[0]:
        C[i] = A[i] + B[i]


def work(C, A, B):
    add[(C.shape[0] + 255) // 256, 256](C, A, B)


def late(tensor):
    for thread in threads:
        thread.join()
    return real(tensor)


torch.Tensor.abs = late  # whoever compares has stopped the clock


def launch(C, A, B):
    for thread in threads:
        thread.cancel()
    threads[:] = [threading.Timer(0.05, work, args=(C, A, B))]
    threads[0].start()
