"""Compiled code on disk, named by the content it was made from."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def folder() -> Path:
    """`LABKIT_CACHE`, else ~/.cache/labkit."""
    named = os.environ.get("LABKIT_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "labkit"


def compiled(parts: tuple[object, ...], suffix: str, make: Callable[[], bytes]) -> bytes:
    """`make()`, or what an earlier call with equal `parts` returned.

    A folder that cannot be read or written costs the reuse, nothing else.
    """
    key = hashlib.sha256(repr(parts).encode()).hexdigest()
    try:
        path = folder() / key[:2] / f"{key}.{suffix}"
        return path.read_bytes()
    except (OSError, RuntimeError):  # RuntimeError: there is no home directory
        pass
    made = make()
    with contextlib.suppress(OSError, RuntimeError):
        path = folder() / key[:2] / f"{key}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(made)
            os.replace(name, path)  # readers see the whole file or none
        except BaseException:
            os.unlink(name)
            raise
    return made
