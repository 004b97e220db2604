"""Wrong kernels of vector_add."""

from wrong import Wrong

WRONG = [
    Wrong(
        "no bound",
        "grid",
        ("if i < C.shape[0]:", "if True:"),
        ("if (i < N)\n", ""),
        "out_of_bounds",
        r"[ABC]\[1000\]",
        ("        C[i] = A[i] + B[i]", "        C[i] = A[i] + B[i]"),
    ),
    Wrong(
        "last block forgotten",
        "grid",
        ("(C.shape[0] + THREADS - 1) // THREADS", "max(C.shape[0] // THREADS, 1)"),
        ("(N + 255) / 256", "max(N / 256, 1)"),
        "unwritten",
        r"C\[768\] was never written \(232 of 1000",
    ),
    Wrong(
        "blocks all do the same",
        "grid",
        ("cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x", "cuda.threadIdx.x"),
        ("(size_t)blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x"),
        "unwritten",
        r"C\[256\] was never written \(744 of 1000",
    ),
    Wrong(
        "stride of too many",
        "grid_stride",
        ("cuda.gridDim.x * cuda.blockDim.x)", "cuda.gridDim.x * 1024)"),
        ("(size_t)gridDim.x * blockDim.x)", "(size_t)gridDim.x * 1024)"),
        "unwritten",
        r"C\[256\] was never written",
    ),
    Wrong(
        "one turn only",
        "one_block",
        ("for i in range(cuda.threadIdx.x, C.shape[0], cuda.blockDim.x):",
         "for i in range(cuda.threadIdx.x, min(C.shape[0], 1024), cuda.blockDim.x):"),
        ("i < N; i += blockDim.x", "i < N && i < 1024; i += blockDim.x"),
        "unwritten",
        r"C\[1024\] was never written",
    ),
    Wrong(
        "tail of four forgotten",
        "vectorized",
        ("for k in range(i, min(i + 4, N)):", "for k in range(i, min(i + 4, N - N % 4)):"),
        ("k < i + 4 && k < N;", "k < i + 4 && k < N - N % 4;"),
        "unwritten",
        r"C\[0\] was never written",
    ),
    Wrong(
        "four at once past the end",
        "vectorized",
        ("if aligned and i + 4 <= N:", "if aligned and i < N:"),
        ("if (aligned && i + 4 <= N)", "if (aligned && i < N)"),
        "out_of_bounds",
        r"[ABC]",
    ),
    Wrong(
        "low precision inside",
        "grid",
        (
            ("from numba import cuda", "from numba.cuda.types import float16\nfrom numba import cuda, float32"),
            ("        C[i] = A[i] + B[i]", "        C[i] = float32(float16(A[i])) + B[i]"),
        ),
        (
            ('extern "C"', '#include <cuda_fp16.h>\nextern "C"'),
            ("        C[i] = A[i] + B[i]", "        C[i] = __half2float(__float2half(A[i])) + B[i]"),
        ),
        "value",
        r"allowed",
    ),
]
