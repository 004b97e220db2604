"""Launches that are hard to count, for `labkit fidelity corpus`: a table over the kernels of corpus.cu."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from labkit.profiling.fidelity import Case

SOURCE = Path(__file__).with_name("corpus.cu")
N = 5000  # elements; divided by no block
PERMUTED = -1  # as a limit: every number below the size once
F, D, H, B, W = np.float32, np.float64, np.float16, np.uint8, np.int32


def _array(seed: int, size: int, dtype: type, limit: int = 64) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if limit == PERMUTED:
        return rng.permutation(size).astype(dtype)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, limit, size).astype(dtype)
    return rng.standard_normal(size).astype(dtype)


def _line(out: Any, *args: Any, grid: int = 20, block: int = 256) -> tuple:
    return grid, block, (out, *args)


# name -> (kernel, (grid, block, arguments)); an array is written as (dtype, size) or (dtype, size, limit).
LAUNCHES: dict[str, tuple[str, tuple]] = {
    **{f"load stride {s}": ("strided", _line((F, N), (F, N * s), s, N)) for s in (1, 2, 3, 8, 17, 33)},
    **{f"store stride {s}": ("strided_store", _line((F, N * s), (F, N), s, N)) for s in (2, 5, 32)},
    **{f"offset {s}": ("offset", _line((F, N + s), (F, N + s), s, N)) for s in (1, 7, 8)},
    "bytes": ("bytes", _line((B, N), (B, N), N)),
    "halves": ("halves", _line((H, N), (H, N), N)),
    **{f"doubles stride {s}": ("doubles", _line((D, N), (D, N * s), s, N)) for s in (1, 3)},
    **{f"float2 stride {s}": ("pairs", _line((F, 2 * N), (F, 2 * N * s), s, N)) for s in (1, 2, 5)},
    **{f"float4 stride {s}": ("quads", _line((F, 4 * N), (F, 4 * N * s), s, N)) for s in (1, 2, 3)},
    "array of structures": ("structures", _line((F, 3 * N), (F, 3 * N), N)),
    "one field of eight": ("one_field", _line((F, N), (F, 8 * N), N)),
    **{f"broadcast to {g}": ("broadcast", _line((F, N), (F, N), g, N)) for g in (3, 16, 32)},
    "gather": ("gather", _line((F, N), (F, N), (W, N, N), N)),
    "scatter": ("scatter", _line((F, N), (F, N), (W, N, PERMUTED), N)),
    "reversed": ("reversed", _line((F, N), (F, N), N)),
    "blocks of 40 threads": ("strided", _line((F, N), (F, N), 1, N, grid=125, block=40)),
    "blocks of 100 threads": ("strided", _line((F, N), (F, 3 * N), 3, N, grid=50, block=100)),
    **{
        f"shared stride {s}": ("shared_stride", _line((F, 1024), (F, 32 * 33 + 32), s, grid=4))
        for s in (1, 2, 4, 8, 16, 31, 32, 33)
    },
    **{
        f"shared float2 stride {s}": ("shared_pairs", _line((F, 2048), (F, 2048), s, grid=4)) for s in (1, 2, 3, 4, 16)
    },
    **{
        f"shared float4 stride {s}": ("shared_quads", _line((F, 4096), (F, 2048), s, grid=4)) for s in (1, 2, 3, 8)
    },
    **{
        name: (name, _line((F, 100 * 100), (F, 100 * 100), 100, grid=(4, 4), block=(32, 32)))
        for name in ("transpose", "transpose_padded", "transpose_swizzled", "transpose_naive")
    },
    "divergent_loop": ("divergent_loop", _line((F, N), (F, N + 8), N)),
    "two_ways": ("two_ways", _line((F, N), (F, N + 8), N)),
    "early_exit": ("early_exit", _line((F, N), (F, N), N)),
    "warp_sum": ("warp_sum", _line((F, 160), (F, N), N)),
    "block_sum": ("block_sum", _line((F, 20), (F, N), N)),
    "softmax_rows": ("softmax_rows", _line((F, 40 * 125), (F, 40 * 125), 125, grid=40, block=32)),
    "count": ("count", _line((W, 64), (W, N), N)),
    "count_shared": ("count_shared", _line((W, 64), (W, N), N)),
    "tickets": ("tickets", _line((W, N), (W, 8), N)),
    "sum_floats": ("sum_floats", _line((F, 5), (F, N), N)),
    "largest": ("largest", _line((W, 64), (W, N, 10**6), N)),
    "local_array": ("local_array", _line((F, N), (F, N), (W, N, 16), N)),
    "stencil": ("stencil", _line((F, N), (F, N), N)),
    "half_pairs": ("half_pairs", _line((H, 2 * N), (H, 2 * N), (H, 2 * N), N)),
    "matvec": ("matvec", _line((F, 37), (F, 37 * 230), (F, 230), 37, 230, grid=5)),
    "async_copy": ("async_copy", _line((F, 4096), (F, 4096), N, grid=4)),
}


def cases() -> list[Case]:
    """Every launch of the table."""
    source = SOURCE.read_text()
    return [
        Case(name, hashlib.sha256(f"{source}{kernel}{launch}".encode()).hexdigest()[:16], partial(_run, name))
        for name, (kernel, launch) in LAUNCHES.items()
    ]


def _run(name: str) -> dict[str, Any]:
    from labkit.kernels import cuda_kernel

    kernel, (grid, block, described) = LAUNCHES[name]
    args = [_array(n, a[1], a[0], *a[2:]) if isinstance(a, tuple) else a for n, a in enumerate(described)]
    compiled = cuda_kernel(SOURCE.read_text(), kernel, path=str(SOURCE))
    return {"fn": lambda: compiled[grid, block](*args), "label": name, "shape": {}, "names": None}
