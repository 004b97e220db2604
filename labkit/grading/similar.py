"""Submissions that are nearly the same, for a person to look at. Never a verdict.

Kernels are cut into tokens without comments and layout; names that an author can choose are numbered in order of
appearance within each run of `GRAM` tokens, so that renaming and reformatting change nothing. Texts are cut into runs
of `WORDS` words. What the release gave out is no one's own and is left out; so is, in kernels, what more than a quarter
of the class writes: a short kernel has few right forms, and everybody's is alike. A text has many.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

GRAM = 10  # tokens in a run
WORDS = 5  # words in a run of a text
THRESHOLD = 0.7  # of the smaller one's own runs are in the other, too
LEAST = {"kernel": 30, "explain": 15}  # own runs; with fewer, nothing is said
COMMON = 0.25  # what a larger part of the class writes in a kernel is common
COMMON_LEAST, COMMON_MOST = 4, 40  # but never what so few have, and always what more than so many have
COMMON_TEXT = 200  # so many may have a run of words

_KEYWORDS = frozenset("""
    False None True and as assert break class continue def del elif else except finally for from global if import in is
    lambda not or pass raise return try while with range len min max abs int float bool cuda numba torch math launch
    auto case char const constexpr do double enum extern inline long register short signed sizeof static struct switch
    template typename unsigned void volatile half bfloat16 float2 float4 int2 int4 uint2 uint4
    __global__ __device__ __shared__ __restrict__ __syncthreads __syncwarp __shfl_sync __shfl_down_sync __shfl_xor_sync
    threadIdx blockIdx blockDim gridDim warpSize fmaf fmaxf fminf expf rsqrtf sqrtf atomicAdd
""".split())
_COMMENTS = {
    "numba": re.compile(r'"""(?:[^\\]|\\.)*?"""|\'\'\'(?:[^\\]|\\.)*?\'\'\'|#[^\n]*', re.DOTALL),
    "cuda": re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL),
}
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'')
_TOKEN = re.compile(r"\.?[A-Za-z_]\w*|\d[\w.]*|[-+*/%&|^<>=!]=?|[^\s\w]")


@dataclass(frozen=True)
class Pair:
    """Two submissions; `shares`: per kind ("kernel", "explain"), how much of the smaller one is in the other."""

    first: str
    second: str
    shares: Mapping[str, float]
    items: tuple[str, ...]  # where they meet, most runs in common first

    @property
    def most(self) -> float:
        return max(self.shares.values())


def grams(source: str, language: str) -> set[int]:
    """Hashes of the runs of tokens of a kernel; `language` is "numba" or "cuda"."""
    bare = _STRING.sub("''", _COMMENTS["cuda" if language == "cuda" else "numba"].sub(" ", source))
    tokens = _TOKEN.findall(bare)
    runs = (tokens[i : i + GRAM] for i in range(max(len(tokens) - GRAM + 1, 0)))
    return {hash(_numbered(run)) for run in runs}


def _numbered(run: list[str]) -> tuple[str, ...]:
    names: dict[str, str] = {}
    return tuple(
        token if not (token[0].isalpha() or token[0] == "_") or token in _KEYWORDS
        else names.setdefault(token, f"name{len(names)}")
        for token in run
    )  # fmt: skip


def phrases(text: str) -> set[int]:
    """Hashes of the runs of words of a text."""
    words = re.findall(r"[^\W_]+", text.lower())
    return {hash(tuple(words[i : i + WORDS])) for i in range(max(len(words) - WORDS + 1, 0))}


def pairs(results: list[dict], stubs: Mapping[str, str] | None = None, threshold: float = THRESHOLD) -> list[Pair]:
    """The pairs of submissions that are alike, the most alike first.

    results : of one class.  stubs : cell id -> what students received; without it nothing is taken off.
    """
    own = {r["submission"]: _own(r, stubs or {}) for r in results}
    limits = {"kernel": min(max(COMMON_LEAST, int(COMMON * len(own))), COMMON_MOST), "explain": COMMON_TEXT}
    where: dict[tuple, list[str]] = defaultdict(list)
    for name, runs in own.items():
        for run in runs:
            where[run].append(name)
    rare = {run: names for run, names in where.items() if len(names) <= limits[run[0]]}
    sizes: Counter = Counter((name, run[0]) for run, names in rare.items() for name in names)
    shared: dict[tuple[str, str], Counter] = defaultdict(Counter)
    for (kind, item, _), names in rare.items():
        for i, first in enumerate(names):
            for second in names[i + 1 :]:
                shared[first, second][kind, item] += 1
    found = []
    for (first, second), counts in shared.items():
        shares = {}
        for kind, least in LEAST.items():
            smaller = min(sizes[first, kind], sizes[second, kind])
            if smaller >= least:
                shares[kind] = sum(n for (k, _), n in counts.items() if k == kind) / smaller
        alike = {kind: share for kind, share in shares.items() if share >= threshold}
        if alike:
            items = tuple(item for (kind, item), _ in counts.most_common() if kind in alike)
            found.append(Pair(first, second, shares, items))
    return sorted(found, key=lambda pair: (-pair.most, pair.first, pair.second))


def groups(found: Iterable[Pair]) -> list[list[Pair]]:
    """Pairs that hang together, the largest group first."""
    group: dict[str, list[Pair]] = {}
    for pair in found:
        both = [group.get(pair.first, []), group.get(pair.second, [])]
        joined = both[0] + (both[1] if both[1] is not both[0] else []) + [pair]
        for member in joined:
            group[member.first] = group[member.second] = joined
    distinct = {id(pairs): pairs for pairs in group.values()}
    return sorted(distinct.values(), key=lambda pairs: -len(pairs))


def texts(result: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    """Item id -> kind, language and text of what a submission says there."""
    return {
        item["id"]: (item["kind"], part["details"].get("language", ""), part["details"]["text"])
        for item in result["items"]
        for part in item["parts"]
        if part["details"].get("text")
    }


def _own(result: dict[str, Any], stubs: Mapping[str, str]) -> set[tuple]:
    found = set()
    for ident, (kind, language, text) in texts(result).items():
        given = stubs.get(f"{ident.rpartition('--')[0]}--{language}" if kind == "kernel" else ident, "")
        runs = _runs(kind, language, text) - _runs(kind, language, given)
        found |= {(kind, ident, run) for run in runs}
    return found


def _runs(kind: str, language: str, text: str) -> set[int]:
    return grams(text, language) if kind == "kernel" else phrases(text)


def stubs_of(items: Iterable[Any]) -> dict[str, str]:
    """Cell id -> stub, of a scheme's items."""
    return {cell.id: cell.stub.split("\n", 1)[-1] if item.kind == "kernel" else cell.stub
            for item in items for cell in item.cells}  # fmt: skip
