"""Which arrays an instruction may point into: pointers followed from the kernel's parameters to each access."""

from __future__ import annotations

from functools import cache

from labkit.emulator.compiler import defs_and_uses
from labkit.emulator.ptx import Addr, Program, Sym

UNKNOWN = -1  # a pointer that was read from memory, or made of nothing that is one


class Provenance:
    """Of one program: `origins[pc]` are the numbers of the parameters and the names of the module's variables that
    the address of an access may stem from, with UNKNOWN where that is not all; `writes` are the origins of stores.
    """

    def __init__(self, program: Program) -> None:
        offsets = {p.name: k for k, p in enumerate(program.params)}
        bits: dict[object, int] = {}  # a bit for each origin
        known: dict[int, int] = {}

        def bit(origin: object) -> int:
            return bits.setdefault(origin, 1 << len(bits))

        def of(operand: object) -> int:
            if isinstance(operand, Sym):
                return bit(operand.variable.name)
            if isinstance(operand, Addr):
                return of(operand.base)
            return known.get(getattr(operand, "slot", None), 0)

        @cache
        def origins(these: int) -> frozenset:
            return frozenset(origin for origin, one in bits.items() if these & one)

        steps = []  # (registers written, origins of their own, registers whose origins they take over)
        for i in program.instructions:
            defs, uses = defs_and_uses(i)
            if not defs:
                continue
            own, sources = 0, ()
            if i.op == "ld" and "param" in i.mods:
                base = i.operands[1].base
                number = offsets.get(base.variable.name) if isinstance(base, Sym) else None
                own = bit(UNKNOWN if number is None else number)
            elif i.op in ("ld", "ldu", "atom", "shfl", "redux"):
                own = bit(UNKNOWN) if i.types and i.types[-1] in _POINTER_SIZED else 0
            elif i.types and i.op not in ("setp", "vote", "activemask"):
                sources = [r.slot for r in uses]
                for operand in i.operands[1:]:
                    own |= of(operand)
            if own or sources:
                steps.append(([r.slot for r in defs], own, sources))
        changed = True
        while changed:
            changed = False
            for slots, new, sources in steps:
                for slot in sources:
                    new |= known.get(slot, 0)
                for slot in slots if new else ():
                    before = known.get(slot, 0)
                    if new | before != before:
                        known[slot] = new | before
                        changed = True
        self.origins: dict[int, frozenset] = {}
        self.writes: set[frozenset] = set()
        for i in program.instructions:
            if i.op not in ("ld", "ldu", "st", "atom", "red", "cp"):
                continue
            where = [o for o in i.operands if isinstance(o, Addr)]
            if not where:
                continue
            self.origins[i.index] = origins(of(where[-1]) or bit(UNKNOWN))
            if i.op in ("st", "atom", "red") and not {"shared", "local", "param"} & set(i.mods):
                self.writes.add(self.origins[i.index])


_POINTER_SIZED = ("u64", "s64", "b64")


def provenance(program: Program) -> Provenance:
    """Worked out once per program."""
    if program.provenance is None:
        program.provenance = Provenance(program)
    return program.provenance
