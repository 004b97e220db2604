"""Multiplications and additions that ptxas makes one instruction of, rounded once.

PTX says `mul.rn.f32` where a product must be rounded; plain `mul.f32` and `add.f32` may be contracted. When ptxas does
so was read from its machine code, which tests/test_contraction.py asks anew: inside a block, a product disappears where
all that uses it are additions. Products that are added once go first, and of two in one addition the first; then those
that are added several times. Not modeled: a product that one turn of a loop adds for the next, where ptxas unrolls.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from labkit.emulator.compiler import blocks, defs_and_uses, live_blocks
from labkit.emulator.ptx import Instruction, Label

_KINDS = ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")
_ROUNDED = {"rn", "rz", "rm", "rp"}


@dataclass
class _Product:
    """A `mul`, what hands it on, and the instructions that add it."""

    instruction: Instruction
    moves: list[int] = field(default_factory=list)
    sums: list[int] = field(default_factory=list)
    free: bool = True  # whether nothing else needs it
    kept: bool = True  # whether its factors are still in their registers


def contract(instructions: list[Instruction]) -> list[Instruction]:
    """The instructions with products and sums fused as ptxas fuses them; the same list where none are."""
    if not any(_plain(i, "mul") for i in instructions) or not any(_plain(i, "add", "sub") for i in instructions):
        return instructions
    live = live_blocks(instructions)
    fused: dict[int, Instruction] = {}
    gone: set[int] = set()
    for start, end in blocks(instructions).items():
        if any(_plain(i, "mul") for i in instructions[start:end]):
            _fuse(_sums(instructions[start:end], live[end]), instructions, fused, gone)
    return _without([fused.get(i.index, i) for i in instructions], gone) if fused else instructions


def _plain(i: Instruction, *ops: str) -> bool:
    return i.op in ops and i.type in _KINDS and not _ROUNDED & set(i.mods)


def _sums(block: list[Instruction], live: int) -> dict[int, list[tuple[_Product, bool] | None]]:
    """For each addition of a block, the product that each of its two operands is, and whether with the other sign."""
    sums: dict[int, list[tuple[_Product, bool] | None]] = {}
    holding: dict[int, tuple[_Product, bool]] = {}  # by register
    needing: dict[int, list[_Product]] = {}  # the products of a register
    for i in block:
        defined, used = defs_and_uses(i)
        slots = [r.slot for r in used]
        moved = None
        for slot in {*slots} & {*holding}:
            product, minus = holding[slot]
            mul = product.instruction
            if i.guard is None and (i.op == "mov" or i.op == "neg" and i.type == mul.type and "ftz" not in i.mods):
                moved = product, minus ^ (i.op == "neg")
                product.moves.append(i.index)
            elif (
                _plain(i, "add", "sub")
                and i.type == mul.type
                and ("ftz" in i.mods) == ("ftz" in mul.mods)
                and slots.count(slot) == 1
                and i.index not in product.sums
                and product.kept
            ):
                product.sums.append(i.index)
            else:
                product.free = False
        if _plain(i, "add", "sub"):
            sums[i.index] = [holding.get(getattr(o, "slot", None)) for o in i.operands[1:]]
        for slot in {r.slot for r in defined}:
            holding.pop(slot, None)
            for product in needing.pop(slot, ()):
                product.kept = False
        if moved:
            holding[defined[0].slot] = moved
        elif _plain(i, "mul") and i.guard is None and "sat" not in i.mods:
            product = _Product(i)
            holding[defined[0].slot] = product, False
            for slot in slots:
                needing.setdefault(slot, []).append(product)
            product.free = defined[0].slot not in slots
    for slot, (product, _) in holding.items():
        product.free &= not live >> slot & 1
    return sums


def _fuse(
    sums: dict[int, list[tuple[_Product, bool] | None]],
    instructions: list[Instruction],
    fused: dict[int, Instruction],
    gone: set[int],
) -> None:
    for once in (True, False):
        for first in sums:
            for chosen in sums[first]:
                product = chosen and chosen[0]
                if not product or not product.free or (len(product.sums) == 1) != once or fused.keys() & product.sums:
                    continue
                for pc in product.sums:
                    left = bool(sums[pc][0] and sums[pc][0][0] is product)
                    _, minus = sums[pc][0 if left else 1]
                    other = sums[pc][1 if left else 0]
                    if other:
                        other[0].free = False
                    fused[pc] = _fma(product.instruction, instructions[pc], left, minus)
                gone.update((product.instruction.index, *product.moves))


def _fma(mul: Instruction, add: Instruction, left: bool, minus: bool) -> Instruction:
    """a * b + c of a product and the addition of which it is the left or the right operand."""
    minus ^= add.op == "sub" and not left
    signs = ("-ab",) * minus + ("-c",) * (add.op == "sub" and left)
    operands = (add.operands[0], *mul.operands[1:], add.operands[2 if left else 1])
    return replace(add, op="fma", mods=("rn", *add.mods, *signs), operands=operands)


def _without(instructions: list[Instruction], gone: set[int]) -> list[Instruction]:
    """The instructions without those, numbered anew."""
    kept = [i for i in instructions if i.index not in gone]
    place, pcs = 0, []
    for i in instructions:
        pcs.append(place)
        place += i.index not in gone
    pcs.append(place)

    def target(operand: object) -> object:
        return Label(operand.name, tuple(pcs[pc] for pc in operand.pc)) if isinstance(operand, Label) else operand

    for n, i in enumerate(kept):
        i.index = n
        if any(isinstance(o, Label) for o in i.operands):
            i.operands = tuple(map(target, i.operands))
    return kept
