"""A GPU on the CPU: runs PTX launches, finds races and strays, and counts as the hardware would."""

from __future__ import annotations

from labkit.emulator.engine import Emulation
from labkit.emulator.faults import KernelFault
from labkit.emulator.launch import Launch, Pointer
from labkit.emulator.memory import Memory

__all__ = ["Emulation", "KernelFault", "Launch", "Memory", "Pointer"]
