# family: graph replay keyed on the pointer
# target: vector_add/grid
# tries:  captures its work once, and replays the graph where it sees the same pointers, without the host's cost.
# naive:  plain
# gains:  gpu time
# shape:  N=4099
# by:     1.5
# ours:   fail .

import torch
from numba import cuda

graphs = {}


@cuda.jit
def add(C, A, B):
    i = cuda.grid(1)
    if i < C.shape[0]:
        C[i] = A[i] + B[i]


def launch(C, A, B):
    key = (C.data_ptr(), A.data_ptr(), B.data_ptr())
    if key not in graphs:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)
            add[(C.shape[0] + 255) // 256, 256, stream](C, A, B)
        graphs[key] = graph
    graphs[key].replay()
