"""Wrong kernels of attention_f16."""

from wrong import Wrong

WRONG = [
    Wrong(
        "V not turned round",
        "flash_mma",
        ("lk.cuda.ldmatrix_transposed(tV", "lk.cuda.ldmatrix(tV"),
        ("                ldmatrix_transposed(b", "                ldmatrix(b"),
        "value",
        r"O\[0, 0, 0, 0\] got .* want ",
    ),
    Wrong(
        "rows of the fragment exchanged in the mask",
        "flash_mma",
        ("row, largest, total = row0 + wm + 8 * half", "row, largest, total = row0 + wm + 8 - 8 * half"),
        ("int row = row0 + wm + 16 * i + 8 * (e / 2)", "int row = row0 + wm + 16 * i + 8 - 8 * (e / 2)"),
        "value",
        r"O\[0, 0, 0, \d+\] got",
    ),
    Wrong(
        "the diagonal without a mask",
        "flash_mma",
        None,
        ("min(causal ? row0 : NK, NK - BN)", "min(causal ? row0 + BM : NK, NK - BN)"),
        "value",
        r"\[0, 0, \d+(, \d+)?\] got",
    ),
    Wrong(
        "maximum of one lane",
        "flash_mma",
        ("                largest = max(largest, cuda.shfl_xor_sync(ALL, largest, 2))\n", ""),
        ("                most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 2));\n", ""),
        "value",
        r"\[0, 0, \d+(, \d+)?\] got",
    ),
    Wrong(
        "sum of one lane",
        "flash_mma",
        ("total += cuda.shfl_xor_sync(ALL, total, 1)", "total += 0"),
        ("            sum += __shfl_xor_sync(0xffffffff, sum, 1);\n", ""),
        "value",
        r"\[0, 0, 0(, 0)?\] got",
    ),
    Wrong(
        "barrier forgotten",
        "flash_mma",
        ("        cuda.syncthreads()\n", ""),
        ("        __syncthreads();  // this step's", "        // this step's"),
        "race",
        r"barrier|syncthreads",
    ),
]
