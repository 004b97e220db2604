"""pip install --no-build-isolation ./solutions/extension: labkit_ops as a package, built once, not at first import."""

import os
import sys
from pathlib import Path

from setuptools import setup
from torch.utils import cpp_extension

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from labkit_ops.build import CXX_FLAGS, NVCC_FLAGS, SOURCES, with_cuda  # noqa: E402

sources = list(SOURCES)
if with_cuda():
    from generate import generate

    sources += [os.path.relpath(path, HERE) for path in generate(HERE / "build" / "cuda" / "generated")]
    extension = cpp_extension.CUDAExtension
    flags = {"cxx": [*CXX_FLAGS, "-DLABKIT_CUDA"], "nvcc": NVCC_FLAGS}
else:
    extension = cpp_extension.CppExtension
    flags = {"cxx": CXX_FLAGS}

setup(
    name="labkit-ops",
    version="0.1",
    description="PyTorch operators from the kernels of the labs",
    packages=["labkit_ops"],
    install_requires=["torch"],
    ext_modules=[
        extension(
            "labkit_ops._c",
            sources,
            include_dirs=[str(HERE), str(HERE / "build" / "cuda" / "generated")],
            extra_compile_args=flags,
        )
    ],
    cmdclass={"build_ext": cpp_extension.BuildExtension},
)
