"""Notebooks: the `%%kernel` magic for learners; build and release for instructors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(shell: InteractiveShell) -> None:
    """What `%load_ext labkit.notebook` does."""
    from labkit.notebook.magics import register

    register(shell)
