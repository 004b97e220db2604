"""Load kernels, numba.cuda and CUDA C++, compile them, and launch, emulate or record them."""

from __future__ import annotations

from labkit.kernels.cuda import CudaKernel, compile_cubin, compile_ptx, cuda_kernel
from labkit.kernels.errors import KernelError
from labkit.kernels.load import Kernel, Signature, launchable, load
from labkit.kernels.recorder import Recording, emulating, recording

__all__ = [
    "CudaKernel",
    "Kernel",
    "KernelError",
    "Recording",
    "Signature",
    "compile_cubin",
    "compile_ptx",
    "cuda_kernel",
    "emulating",
    "launchable",
    "load",
    "recording",
]
