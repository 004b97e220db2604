"""Wrong kernels of int4_gqa."""

from wrong import Wrong

_FAR_NUMBA = "its = libdevice.exp2f((stats[s, b, h, 0] - top) * float32(SCALE))"

WRONG = [
    Wrong(
        "nibbles the wrong way round",
        "cuda_core",
        (
            ("k0 = float32(packed & 15) * scale", "k0 = float32(packed >> 4 & 15) * scale"),
            ("k1 = float32(packed >> 4 & 15) * scale", "k1 = float32(packed & 15) * scale"),
        ),
        ("(packed & 15) * scale + shift, (packed >> 4", "(packed >> 4 & 15) * scale + shift, (packed"),
        "value",
        r"O\[\d, \d, \d+\] got",
    ),
    Wrong(
        "no shift",
        "cuda_core",
        ("shift = float32(V_halves[b, t, 2 * group + 1])", "shift = float32(0)"),
        ("shift = __high2float(by)", "shift = 0.0f"),
        "value",
        r"O\[0, 0, 0\] got",
    ),
    Wrong(
        "pieces put together without their maxima",
        "cuda_core",
        (_FAR_NUMBA, "its = float32(1)"),
        ("mine = exp2f((its - top) * SCALE);", "mine = 1.0f;"),
        "value",
        r"O\[0, \d, \d+\] got",
    ),
    Wrong(
        "what is beyond the length",
        "cuda_core",
        ("last = min(first + piece, length)", "last = first + piece"),
        ("last = min(first + piece, lengths[b]);", "last = first + piece;"),
        "value|out_of_bounds",
        r"O\[\d, \d, \d+\] got|outside",
    ),
    Wrong(
        "no square root of D",
        "cu_baseline",
        ("1.44269504 / 11.3137085", "1.44269504"),
        ("1.44269504f / 11.3137085f", "1.44269504f"),
        "value",
        r"O\[0, 0, \d+\] got",
    ),
    Wrong(
        "cast in place before all have read",
        "opt02_cast_p",
        ("cuda.syncthreads()  # all have read", ""),
        ("__syncthreads();  // all have read", ""),
        "race",
        r"shared|no barrier between",
    ),
    Wrong(
        "V's tail",
        "opt06_group_vector_loads",
        ("if t < n:  # those of the next", "if t < n + 16:  # those of the next"),
        ("        if (t < n)\n            words =", "        if (t < n + 16)\n            words ="),
        "value|out_of_bounds",
        r"O\[\d, \d, \d+\] got|outside V",
    ),
    Wrong(
        "P against another head's maximum",
        "opt07_max_from_fragment",
        ("float32(0), floats[MAXIMA + h]", "float32(0), floats[MAXIMA]"),
        ("float sum = 0.0f, best = maxima[h];", "float sum = 0.0f, best = maxima[0];"),
        "value",
        r"O\[\d, \d, \d+\] got",
    ),
    Wrong(
        "no barrier after the scores",
        "opt09_swizzle_p",
        ("cuda.syncthreads()  # all scores are there, and each warp's maxima", ""),
        ("__syncthreads();  // all scores are there, and each warp's maxima", ""),
        "race",
        r"shared|no barrier between",
    ),
    Wrong(
        "tokens of the fragment of P in order",
        "opt08_p_into_fragment",
        (
            ("+ t0 + 2 * q\n", "+ t0 + 4 * q\n"),
            ("floats[at + 8], floats[at + 9]", "floats[at + 2], floats[at + 3]"),
        ),
        ("lane % 4 * 2 + e % 2 + e / 2 * 8]", "lane % 4 * 4 + e]"),
        "value",
        r"O\[0, 0, \d+\] got",
    ),
    Wrong(
        "sums that do not shrink",
        "opt11_direct_mma",
        ("                        total[e] *= shrink\n", ""),
        ("best[e] = top[e], sum[e] *= shrink[e];", "best[e] = top[e];"),
        "value",
        r"O\[\d, \d, \d+\] got",
    ),
    Wrong(
        "a tile read before it is there",
        "opt11_direct_mma",
        ("lk.cuda.cp_async_wait(0)\n                cuda.syncwarp()  # this", "cuda.syncwarp()  # this"),
        (':: "n"(STAGES - 2)', ':: "n"(STAGES - 1)'),
        "race|uninitialized|value",
        r"shared|Shared|O\[",
    ),
    Wrong(
        "128 taken off in place of 136",
        "opt11_direct_mma",
        ("- float32(136) * all_p", "- float32(128) * all_p"),
        ("- 136 * all_p", "- 128 * all_p"),
        "value",
        r"O\[0, 0, 0\] got",
    ),
]
