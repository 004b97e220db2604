"""Launches to count, written as tables; here those that were made to be hard, of the kernels of corpus.cu."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from labkit.profiling.fidelity import Case

SOURCE = Path(__file__).with_name("corpus.cu")
N = 5000  # elements; divided by no block
PERMUTED = -1  # as a limit: every number below the size once
F, D, H, B, W = np.float32, np.float64, np.float16, np.uint8, np.int32


def _array(seed: int, size: int | tuple[int, ...], dtype: type, limit: int = 64) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if limit == PERMUTED:
        return rng.permutation(size).astype(dtype)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, limit, size).astype(dtype)
    return rng.standard_normal(size).astype(dtype)


def line(out: Any, *args: Any, grid: int = 20, block: int = 256) -> tuple:
    return grid, block, (out, *args)


LAUNCHES: dict[str, tuple[str, tuple]] = {
    **{f"load stride {s}": ("strided", line((F, N), (F, N * s), s, N)) for s in (1, 2, 3, 8, 17, 33)},
    **{f"store stride {s}": ("strided_store", line((F, N * s), (F, N), s, N)) for s in (2, 5, 32)},
    **{f"offset {s}": ("offset", line((F, N + s), (F, N + s), s, N)) for s in (1, 7, 8)},
    "bytes": ("bytes", line((B, N), (B, N), N)),
    "halves": ("halves", line((H, N), (H, N), N)),
    **{f"doubles stride {s}": ("doubles", line((D, N), (D, N * s), s, N)) for s in (1, 3)},
    **{f"float2 stride {s}": ("pairs", line((F, 2 * N), (F, 2 * N * s), s, N)) for s in (1, 2, 5)},
    **{f"float4 stride {s}": ("quads", line((F, 4 * N), (F, 4 * N * s), s, N)) for s in (1, 2, 3)},
    "array of structures": ("structures", line((F, 3 * N), (F, 3 * N), N)),
    "one field of eight": ("one_field", line((F, N), (F, 8 * N), N)),
    **{f"broadcast to {g}": ("broadcast", line((F, N), (F, N), g, N)) for g in (3, 16, 32)},
    "gather": ("gather", line((F, N), (F, N), (W, N, N), N)),
    "scatter": ("scatter", line((F, N), (F, N), (W, N, PERMUTED), N)),
    "reversed": ("reversed", line((F, N), (F, N), N)),
    "blocks of 40 threads": ("strided", line((F, N), (F, N), 1, N, grid=125, block=40)),
    "blocks of 100 threads": ("strided", line((F, N), (F, 3 * N), 3, N, grid=50, block=100)),
    **{
        f"shared stride {s}": ("shared_stride", line((F, 1024), (F, 32 * 33 + 32), s, grid=4))
        for s in (1, 2, 4, 8, 16, 31, 32, 33)
    },
    **{
        f"shared float2 stride {s}": ("shared_pairs", line((F, 2048), (F, 2048), s, grid=4)) for s in (1, 2, 3, 4, 16)
    },
    **{
        f"shared float4 stride {s}": ("shared_quads", line((F, 4096), (F, 2048), s, grid=4)) for s in (1, 2, 3, 8)
    },
    **{
        name: (name, line((F, 100 * 100), (F, 100 * 100), 100, grid=(4, 4), block=(32, 32)))
        for name in ("transpose", "transpose_padded", "transpose_swizzled", "transpose_naive")
    },
    "divergent_loop": ("divergent_loop", line((F, N), (F, N + 8), N)),
    "two_ways": ("two_ways", line((F, N), (F, N + 8), N)),
    "early_exit": ("early_exit", line((F, N), (F, N), N)),
    "warp_sum": ("warp_sum", line((F, 160), (F, N), N)),
    "block_sum": ("block_sum", line((F, 20), (F, N), N)),
    "softmax_rows": ("softmax_rows", line((F, 40 * 125), (F, 40 * 125), 125, grid=40, block=32)),
    "count": ("count", line((W, 64), (W, N), N)),
    "count_shared": ("count_shared", line((W, 64), (W, N), N)),
    "tickets": ("tickets", line((W, N), (W, 8), N)),
    "sum_floats": ("sum_floats", line((F, 5), (F, N), N)),
    "largest": ("largest", line((W, 64), (W, N, 10**6), N)),
    "local_array": ("local_array", line((F, N), (F, N), (W, N, 16), N)),
    "stencil": ("stencil", line((F, N), (F, N), N)),
    "half_pairs": ("half_pairs", line((H, 2 * N), (H, 2 * N), (H, 2 * N), N)),
    "matvec": ("matvec", line((F, 37), (F, 37 * 230), (F, 230), 37, 230, grid=5)),
    "async_copy": ("async_copy", line((F, 4096), (F, 4096), N, grid=4)),
}


@dataclass(frozen=True)
class Corpus:
    """Launches of the kernels of one file, CUDA C++ or numba.

    launches: name -> (kernel, (grid, block, arguments)), or (grid, block, arguments, bytes of dynamic shared memory);
    an array is written as (dtype, size) or (dtype, size, limit); a numba kernel's size may be a shape.
    """

    source: Path
    launches: dict[str, tuple[str, tuple]]

    def cases(self) -> list[Case]:
        """Every launch of the table."""
        source = self.source.read_text()
        return [
            Case(name, hashlib.sha256(f"{source}{kernel}{launch}".encode()).hexdigest()[:16], partial(self._run, name))
            for name, (kernel, launch) in self.launches.items()
        ]

    def _run(self, name: str) -> dict[str, Any]:
        kernel, (grid, block, described, *shared) = self.launches[name]
        args = [_array(n, a[1], a[0], *a[2:]) if isinstance(a, tuple) else a for n, a in enumerate(described)]
        compiled = self._kernel(kernel)
        return {"fn": lambda: compiled[grid, block, 0, *shared](*args), "label": name, "shape": {}, "names": None}

    def _kernel(self, name: str) -> Any:
        from labkit.kernels import cuda_kernel

        if self.source.suffix == ".py":
            return getattr(import_module(f"labkit.profiling.{self.source.stem}"), name)
        return cuda_kernel(self.source.read_text(), name, path=str(self.source))


def cases() -> list[Case]:
    """Every launch of the table."""
    return Corpus(SOURCE, LAUNCHES).cases()
