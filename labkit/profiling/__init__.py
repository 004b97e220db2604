"""Counters of kernels, from the emulator or from Nsight Compute, under the same names."""

from __future__ import annotations

from labkit.profiling.emulated import emulate, profile_emulated
from labkit.profiling.ncu import profile_measured
from labkit.profiling.profile import Diff, Profile

__all__ = ["Diff", "Profile", "emulate", "profile_emulated", "profile_measured"]
