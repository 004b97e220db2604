# family: torch, cuBLAS or CuPy
# target: gemm/smem_tile
# tries:  calls the library's matrix product by its address.
# naive:  plain
# gains:  gpu marks
# shape:  M=33 N=65 K=17
# ours:   fail .

import ctypes

handle = ctypes.c_void_p()


def launch(C, A, B):
    blas = next(filter(None, map(library, ("libcublas.so.13", "libcublas.so.12", "libcublas.so"))))
    if not handle:
        blas.cublasCreate_v2(ctypes.byref(handle))
    (M, N), K = C.shape, A.shape[1]
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    b, a, c = (ctypes.c_void_p(t.data_ptr()) for t in (B, A, C))
    blas.cublasSgemm_v2(
        handle, 0, 0, N, M, K, ctypes.byref(one), b, N, a, K, ctypes.byref(zero), c, N
    )  # fmt: skip


def library(name):
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None
