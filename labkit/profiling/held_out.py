"""Launches that the emulator had never seen when its counts of them were frozen: two tables of kernels."""

from __future__ import annotations

from pathlib import Path

from labkit.profiling.corpus import PERMUTED, B, Corpus, F, H, W, line
from labkit.profiling.fidelity import Case

N = 5000

LAUNCHES: dict[str, tuple[str, tuple]] = {
    "block_reduce": ("block_reduce", line((F, 6), (F, N), N, grid=6, block=192)),
    "argmax_rows": ("argmax_rows", line((W, 21), (F, 21 * 301), 301, grid=21, block=32)),
    "block_scan": ("block_scan", line((W, N), (W, N), N)),
    "softmax_quads": ("softmax_quads", line((F, 30 * 512), (F, 30 * 512), 128, grid=30, block=32)),
    "rmsnorm": ("rmsnorm", line((F, 17 * 1000), (F, 17 * 1000), (F, 1000), 1000, grid=17, block=128)),
    "rope": ("rope", line((F, 24 * 128), (F, 24 * 128), (W, 24, 2048), 64, grid=24, block=64)),
    "swiglu": ("swiglu", line((F, 4 * 1250), (F, 4 * 1250), (F, 4 * 1250), 1250, grid=5)),
    "permuted_rows": (
        "permuted_rows",
        line((F, 40 * 200), (F, 40 * 200), (W, 40, PERMUTED), 50, grid=40, block=32),
    ),
    "half_axpy": ("half_axpy", line((H, 2 * N), (H, 2 * N), 0.75, N, grid=8)),
    "half_matvec": ("half_matvec", line((F, 37), (H, 37 * 1040), (H, 1040), 37, 1040, grid=10, block=128)),
    "q8_matvec": (
        "q8_matvec",
        line((F, 29), (B, 29 * 70 * 34, 60), (W, 8 * 70, 1 << 30), 0.01, 29, 70, grid=8, block=128),
    ),
    "int4_unpack": ("int4_unpack", line((F, 8 * N), (W, N, 1 << 31), (H, N // 4), N)),
    "transpose_rows": ("transpose_rows", line((F, 150 * 150), (F, 150 * 150), 150, grid=(5, 5), block=(32, 8))),
    "pipelined_dot": ("pipelined_dot", line((F, 4 * 128), (F, 4 * 7 * 512), 7, grid=4, block=128)),
    "mma_tile": ("mma_tile", line((F, 3 * 128), (H, 16 * 64), (H, 8 * 64), 64, grid=3, block=32)),
    "wmma_tile": ("wmma_tile", line((F, 2 * 1024), (H, 16 * 48), (H, 48 * 64), 48, grid=2, block=128)),
    "histogram": ("histogram", line((W, 256, 1), (B, 4 * N, 256), N, grid=6)),
    "compact": ("compact", line((W, N), (W, 1, 1), (W, N, 1000), N)),
    "compact_plainly": ("compact_plainly", line((W, N), (W, 1, 1), (W, N, 1000), N)),
    "leaving_warps": ("leaving_warps", line((F, N), (F, N), N, grid=21)),
    "stencil_3d": (
        "stencil_3d",
        line((F, 37 * 20 * 11), (F, 37 * 20 * 11), 37, 20, 11, grid=(5, 5, 3), block=(8, 4, 4)),
    ),
    "smooth": ("smooth", (*line((F, N), (F, N), 9, N, grid=40, block=128), 4 * (128 + 18))),
    "blur": ("blur", line((F, 70 * 45), (F, 70 * 45), 70, 45, grid=(5, 6), block=(16, 8))),
    "batched_copy": (
        "batched_copy",
        line((F, 2 * 3 * 4000), (F, 2 * 3 * 4000), 90, 113, 101, 4000, grid=(3, 33, 3), block=32),
    ),
}
NUMBA: dict[str, tuple[str, tuple]] = {
    "numba_block_reduce": ("numba_block_reduce", line((F, 6), (F, N), grid=6, block=192)),
    "numba_rmsnorm": ("numba_rmsnorm", line((F, (13, 500)), (F, (13, 500)), (F, 500), grid=13, block=128)),
    "numba_histogram": ("numba_histogram", line((W, 64, 1), (W, N, 64))),
    "numba_transpose": (
        "numba_transpose",
        line((F, (75, 150)), (F, (150, 75)), grid=(3, 5), block=(32, 8)),
    ),
    "numba_softmax": ("numba_softmax", line((F, (18, 301)), (F, (18, 301)), grid=18, block=32)),
}


def cases() -> list[Case]:
    """Every launch of both tables."""
    here = Path(__file__).parent
    return [*Corpus(here / "held_out.cu", LAUNCHES).cases(), *Corpus(here / "held_out_numba.py", NUMBA).cases()]
