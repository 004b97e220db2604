"""Wrong kernels of gqa_bf16."""

from wrong import Wrong

WRONG = [
    Wrong(
        "no square root of D",
        "cuda_core",
        ("1.44269504 / 11.3137085", "1.44269504"),
        ("1.44269504f / 11.3137085f", "1.44269504f"),
        "value",
        r"O\[0, 0, \d+\] got",
    ),
    Wrong(
        "the maximum's change not applied to the sum",
        "cuda_core",
        ("total = total * old + p\n", "total = total + p\n"),
        ("sum = sum * old + p;", "sum = sum + p;"),
        "value",
        r"O\[0, 0, \d+\] got",
    ),
    Wrong(
        "V beyond the length",
        "cu_baseline",
        (("0xFFFF if t < n else 0", "0xFFFF"), ("0xFFFF if t + 1 < n else 0", "0xFFFF")),
        ("if (t0 + STEP <= n)", "if (t0 < n)"),
        "value|out_of_bounds",
        r"O\[\d, \d, \d+\] got|outside",
    ),
    Wrong(
        "no barrier after the scores",
        "cu_optimized",
        ("cuda.syncthreads()  # all scores are there, and each warp's maxima", ""),
        ("__syncthreads();  // all scores are there, and each warp's maxima", ""),
        "race",
        r"shared|no barrier between",
    ),
    Wrong(
        "one warp's sum for all",
        "cu_baseline",
        ("whole += floats[ACROSS + i * HEADS + tid]", "whole = floats[ACROSS + i * HEADS + tid]"),
        ("sums[tid] = (w ? sums[tid] : 0.0f) + across[w * HEADS + tid];", "sums[tid] = across[w * HEADS + tid];"),
        "value",
        r"O\[\d, \d, \d+\] got",
    ),
    Wrong(
        "V not turned round",
        "direct_mma",
        ("ldmatrix_transposed(rooms, v", "ldmatrix(rooms, v"),
        ("ldmatrix_transposed(a, v", "ldmatrix(a, v"),
        "value",
        r"O\[0, 0, \d+\] got",
    ),
    Wrong(
        "a tile read before it is there",
        "direct_mma",
        ("AHEAD = STAGES - 2", "AHEAD = STAGES - 1"),
        (':: "n"(STAGES - 2)', ':: "n"(STAGES - 1)'),
        "race|value|uninitialized",
        r"shared|Shared|O\[",
    ),
]
