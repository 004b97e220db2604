"""What a launch needs to know of a PTX text: its entries and their parameters."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

_ENTRY = re.compile(r"\.entry\s+([\w$%]+)\s*(?:\(([^)]*)\))?")
_PARAM = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.([a-z]+)(\d+)\b[^,\[]*(?:\[(\d+)\])?")


@dataclass(frozen=True)
class Param:
    """One .param of an entry: kind "u", "s", "f" or "b" (an array of bytes, for structures), size in bytes."""

    kind: str
    size: int


@functools.lru_cache(maxsize=256)
def entries(ptx: str) -> dict[str, tuple[Param, ...]]:
    """The entries of a module, each with its parameters in order."""
    return {name: tuple(map(_param, _PARAM.findall(params))) for name, params in _ENTRY.findall(ptx)}


def _param(found: tuple[str, str, str]) -> Param:
    kind, bits, count = found
    return Param("b" if count else kind, int(bits) // 8 * int(count or 1))
