"""Which group of threads runs first, where threads of a warp have gone different ways.

The machine code has a barrier (BSSY, BSYNC) where the ways join, and lanes wait there for each other. Here the group
runs whose instruction comes first. That is the same if whatever leads to an instruction comes before it. In the PTX it
does not always: compilers put what is rarely needed behind the kernel's end, from where it jumps back.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labkit.emulator.ptx import Instruction


def turns(instructions: list[Instruction]) -> list[int]:
    """For each instruction its place in an order that has ways before where they join, and loops before what follows.

    A block's instructions stay together, and the PTX's order is kept where it is such a one.
    """
    from labkit.emulator.compiler import blocks, successors

    count, ends = len(instructions), blocks(instructions)
    ways = {start: [to for to in successors(instructions[end - 1]) if to < count] for start, end in ends.items()}
    places, place = [0] * count, 0
    for start in _ordered(list(ends), ways):
        for pc in range(start, ends[start]):
            places[pc] = place
            place += 1
    return places


def _ordered(blocks: list[int], ways: dict[int, list[int]]) -> list[int]:
    """Blocks in such an order; `ways` that lead out of them do not count."""
    part = _parts(blocks, ways)
    members: dict[int, list[int]] = {}
    for block in blocks:
        members.setdefault(part[block], []).append(block)
    across = {(part[b], part[to]) for b in blocks for to in ways[b] if part.get(to, part[b]) != part[b]}
    onward: dict[int, list[int]] = {}
    missing = dict.fromkeys(members, 0)
    for one, other in across:
        onward.setdefault(one, []).append(other)
        missing[other] += 1
    ready = [(members[p][0], p) for p, n in missing.items() if not n]
    heapify(ready)
    found = []
    while ready:
        _, p = heappop(ready)
        loop = members[p]
        if len(loop) > 1:
            # It begins where others come in; without that block, what is left are the ways of one turn.
            inside = set(loop)
            entered = {to for b in ways if b not in inside for to in ways[b]}
            head = next((b for b in loop if b in entered), loop[0])
            loop = [head, *_ordered([b for b in loop if b != head], ways)]
        found += loop
        for other in onward.get(p, ()):
            missing[other] -= 1
            if not missing[other]:
                heappush(ready, (members[other][0], other))
    return found


def _parts(blocks: list[int], ways: dict[int, list[int]]) -> dict[int, int]:
    """A number per block, the same for blocks from which each other can be reached (Tarjan's algorithm)."""
    inside = set(blocks)
    part: dict[int, int] = {}
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    open_: list[int] = []
    for root in blocks:
        if root in number:
            continue
        number[root] = low[root] = len(number)
        open_.append(root)
        path = [(root, iter(ways[root]))]
        while path:
            block, rest = path[-1]
            for to in rest:
                if to not in inside:
                    continue
                if to not in number:
                    number[to] = low[to] = len(number)
                    open_.append(to)
                    path.append((to, iter(ways[to])))
                    break
                if to not in part:
                    low[block] = min(low[block], number[to])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[block])
                if low[block] == number[block]:
                    while block not in part:
                        part[open_.pop()] = block
    return part
