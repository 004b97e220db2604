"""Build the operators with torch.utils.cpp_extension, once per state of the sources, and load them.

With nvcc and a GPU, the kernels are compiled for that GPU; without, the C++ half alone: checks and shapes, which tests
run on machines without a GPU. LABKIT_OPS_CUDA=0 or 1 decides otherwise; LABKIT_OPS_BUILD names another build folder.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parents[1]
SOURCES = ("gemm.cpp", "attention.cpp")  # and one per kernel, generated
CXX_FLAGS = ["-O2"]
# The kernels use the operators of half and bfloat16 that PyTorch switches off in its own sources.
NVCC_FLAGS = [
    "-O3",
    "-U__CUDA_NO_HALF_OPERATORS__",
    "-U__CUDA_NO_HALF_CONVERSIONS__",
    "-U__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-U__CUDA_NO_HALF2_OPERATORS__",
]


def with_cuda() -> bool:
    """Whether the kernels are built, too."""
    asked = os.environ.get("LABKIT_OPS_CUDA")
    if asked is not None:
        return asked != "0"
    from torch.utils.cpp_extension import CUDA_HOME

    return CUDA_HOME is not None and torch.cuda.is_available()


def load() -> None:
    """Build what is not built yet, and register `torch.ops.labkit`; ImportError with the mend where that fails."""
    from torch.utils import cpp_extension

    if hasattr(torch.ops.labkit, "gemm"):
        return
    for installed in Path(__file__).parent.glob("_c*.so"):  # by setup.py
        torch.ops.load_library(str(installed))
        return
    cuda = with_cuda()
    sources = [HERE / name for name in SOURCES]
    folder = Path(os.environ.get("LABKIT_OPS_BUILD") or HERE / "build") / ("cuda" if cuda else "cpu")
    folder.mkdir(parents=True, exist_ok=True)
    if cuda:
        sources += _generate(folder / "generated")
    flags = [*CXX_FLAGS, "-DLABKIT_CUDA"] if cuda else CXX_FLAGS
    try:
        cpp_extension.load(
            name="labkit_ops_c",
            sources=[str(path) for path in sources],
            extra_include_paths=[str(HERE), str(folder / "generated")],
            extra_cflags=flags,
            extra_cuda_cflags=NVCC_FLAGS if cuda else None,
            with_cuda=cuda,
            build_directory=str(folder),
            is_python_module=False,
        )
    except (RuntimeError, OSError) as error:
        said = str(error).strip().splitlines()
        faults = [line for line in said if "error:" in line] or said[-1:]
        raise ImportError(
            "The operators could not be built; that takes g++ and ninja, and for a GPU nvcc, too. "
            f"The first complaint was: {faults[0].strip()}"
        ) from error


def _generate(folder: Path) -> list[Path]:
    import sys

    sys.path.insert(0, str(HERE))
    try:
        from generate import generate
    finally:
        sys.path.pop(0)
    return generate(folder)
