"""The error of this package."""

from __future__ import annotations

from labkit.errors import LabkitError


class KernelError(LabkitError):
    """A kernel cannot be found, compiled or launched as asked; the sentence names the fault and the mend."""
