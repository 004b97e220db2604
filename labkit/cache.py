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
    found = kept(parts, suffix)
    if found is not None:
        return found
    made = make()
    keep(parts, suffix, made)
    return made


def keep(parts: tuple[object, ...], suffix: str, data: bytes) -> None:
    """Write the whole file or none; that it cannot be written is no error."""
    with contextlib.suppress(OSError, RuntimeError):
        path = _path(parts, suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise


def kept(parts: tuple[object, ...], suffix: str) -> bytes | None:
    """What has been kept for these parts, if anything."""
    try:
        return _path(parts, suffix).read_bytes()
    except (OSError, RuntimeError):  # RuntimeError: there is no home directory
        return None


def _path(parts: tuple[object, ...], suffix: str) -> Path:
    key = hashlib.sha256(repr(parts).encode()).hexdigest()
    return folder() / key[:2] / f"{key}.{suffix}"
