"""Errors that people are meant to read: one sentence that names the fault and the mend."""

from __future__ import annotations


class LabkitError(Exception):
    """A mistake that the user can mend; commands and magics print its sentence, not a traceback."""
