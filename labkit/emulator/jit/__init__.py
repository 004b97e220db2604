"""The compiled engine: straight stretches of PTX as LLVM code, everything else as the interpreter does it."""

from labkit.emulator.jit.build import usable
from labkit.emulator.jit.run import Jit

__all__ = ["Jit", "usable"]
