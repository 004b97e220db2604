"""Which arrays an instruction may point into: pointers followed from the kernel's parameters to each access."""

from __future__ import annotations

from labkit.emulator.compiler import defs_and_uses
from labkit.emulator.ptx import Addr, Program, Sym

UNKNOWN = -1  # a pointer that was read from memory, or made of nothing that is one


class Provenance:
    """Of one program: `origins[pc]` are the numbers of the parameters and the names of the module's variables that
    the address of an access may stem from, with UNKNOWN where that is not all; `writes` are the origins of stores.
    """

    def __init__(self, program: Program) -> None:
        offsets = {p.name: k for k, p in enumerate(program.params)}
        known: dict[int, frozenset] = {}

        def of(operand: object) -> frozenset:
            if isinstance(operand, Sym):
                return frozenset([operand.variable.name])
            if isinstance(operand, Addr):
                return of(operand.base)
            slot = getattr(operand, "slot", None)
            return known.get(slot, frozenset()) if slot is not None else frozenset()

        changed = True
        while changed:
            changed = False
            for i in program.instructions:
                defs, uses = defs_and_uses(i)
                if not defs:
                    continue
                if i.op == "ld" and "param" in i.mods:
                    base = i.operands[1].base
                    number = offsets.get(base.variable.name) if isinstance(base, Sym) else None
                    new = frozenset([UNKNOWN if number is None else number])
                elif i.op in ("ld", "ldu", "atom", "shfl", "redux"):
                    new = frozenset([UNKNOWN]) if i.types and i.types[-1] in _POINTER_SIZED else frozenset()
                elif i.types and i.op not in ("setp", "vote", "activemask"):
                    new = frozenset().union(*map(of, uses), *map(of, i.operands[1:]))
                else:
                    new = frozenset()
                for d in defs:
                    if not new <= known.get(d.slot, frozenset()):
                        known[d.slot] = known.get(d.slot, frozenset()) | new
                        changed = True
        self.origins: dict[int, frozenset] = {}
        self.writes: set[frozenset] = set()
        for i in program.instructions:
            if i.op not in ("ld", "ldu", "st", "atom", "red", "cp"):
                continue
            where = [o for o in i.operands if isinstance(o, Addr)]
            if not where:
                continue
            self.origins[i.index] = of(where[-1]) or frozenset([UNKNOWN])
            if i.op in ("st", "atom", "red") and not {"shared", "local", "param"} & set(i.mods):
                self.writes.add(self.origins[i.index])


_POINTER_SIZED = ("u64", "s64", "b64")


def provenance(program: Program) -> Provenance:
    """Worked out once per program."""
    if program.provenance is None:
        program.provenance = Provenance(program)
    return program.provenance
