"""labkit: learn to make GPU kernels fast by measuring them, with or without a GPU.

    import labkit as lk
    gemm = lk.problem("gemm")
    gemm["naive"].check()

Names are loaded when they are first used, so that the import itself stays fast.
"""

from __future__ import annotations

import importlib
import sys

from labkit.errors import LabkitError
from labkit.kernels import numba_host

_HOMES = {
    "Profile": "labkit.profiling",
    "answer": "labkit.answers",
    "attention": "labkit.autograd",
    "cuda_kernel": "labkit.kernels",
    "detective": "labkit.profiling.detective",
    "emulate": "labkit.profiling.emulated",
    "occupancy_widget": "labkit.notebook.occupancy",
    "predict": "labkit.profiling.predict",
    "problem": "labkit.ladder",
    "report": "labkit.profiling.report",
    "profile_script": "labkit.profiling.script",
    "step": "labkit.stepper",
    "trace_script": "labkit.profiling.trace",
}
_MODULES = ("kernels", "plots", "problems", "profiling")

__all__ = ["LabkitError", "cuda", *_HOMES, *_MODULES]


def __getattr__(name: str) -> object:
    if name == "cuda":
        return importlib.import_module("labkit.kernels.intrinsics")
    if name in _MODULES:
        return importlib.import_module(f"labkit.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'labkit' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: object) -> None:
    """`%load_ext labkit`: register the magics."""
    from labkit.notebook import magics

    magics.register(shell)


def _register_magics() -> None:
    """Register the magics when labkit is imported in a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None:
        load_ipython_extension(shell)


numba_host.install()
_register_magics()
