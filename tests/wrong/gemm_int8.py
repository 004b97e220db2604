"""Wrong kernels of gemm_int8."""

from wrong import Wrong

WRONG = [
    Wrong(
        "unsigned bytes",
        "int8_mma",
        None,
        ("s32.s8.s8.s32", "s32.u8.u8.s32"),
        "value",
        r"C\[0, 0\] got .*allowed 0\)",
    ),
    Wrong(
        "missing barrier",
        "int8_wmma",
        None,
        ("        __syncthreads();  // the tiles", "        // the tiles"),
        "race",
        r"barrier|syncthreads",
    ),
    Wrong(
        "fragment of B row-major",
        "int8_wmma",
        None,
        ("16, 16, 16, T, wmma::col_major> b", "16, 16, 16, T, wmma::row_major> b"),
        "value",
        r"C\[0, \d+\] got",
    ),
    Wrong(
        "second half of k left out",
        "int8_mma",
        ("for k in range(0, BK, 32):", "for k in range(0, BK // 2, 32):"),
        ("place(wm + lane % 16, k + lane / 16 * 16)", "place(wm + lane % 16, k)"),
        "value",
        r"C\[0, 0\] got",
    ),
]
