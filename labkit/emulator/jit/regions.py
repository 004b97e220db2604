"""Straight stretches of a program, each made one function of LLVM code that runs warp after warp.

A region holds arithmetic and loads, and neither stores nor anything that joins warps; so running it warp by warp
and instruction by instruction give the same, and one that finds something amiss can be left without a trace.
Regions with shuffles, votes and reductions of a warp run only where all lanes of the warps are there; for other turns
their parts between those operations are regions too.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from labkit.emulator.compiler import Access, Compiler, defs_and_uses
from labkit.emulator.jit.lower import (
    LANES,
    WARP,
    Emitter,
    Unknown,
    Value,
    bits_of,
    immediate,
    lower,
    lower_warp,
    read,
    write,
)
from labkit.emulator.ops import HALVES
from labkit.emulator.ptx import SIZES, Addr, Imm, Instruction, Not, Program, Reg, Sink, Special, Sym, Vec

SHORTEST = 3
LONGEST = 256  # instructions; the time to compile grows faster than the length
PATTERNS = 8  # shapes of addresses that are kept per group
ENTRY = 200  # words: mask, lowest, highest, bits, distinct, 3 unused, 32 offsets, 32 distinct ones, 128 counts
GROUP = 8 + (PATTERNS + 1) * ENTRY
ROW = 36  # words of an address row that fits no pattern: group, mask, first address, unused, 32 offsets

# What an instruction that is not written as the manual has it may lead to.
UNKNOWN = (Unknown, KeyError, ValueError, IndexError, AttributeError, TypeError, StopIteration)

# Words of the arguments before those that depend on the region.
(WARPS, MASKS, BUFFERS, SHARED, SHARED_BYTES, SHARED_STRIDE, WARPS_PER_BLOCK, PARAMS, PARAM_BYTES, ROWS, ROW_COUNT,
 GROUPS, WRITTEN, GRANULE, STEP, FIXED) = range(16)  # fmt: skip


@dataclass(frozen=True)
class Load:
    """A load of a region: its group, and whether all lanes share its address (`scalar`: which result that is)."""

    access: Access
    group: int
    offset: int
    scalar: int | None = None


@dataclass(frozen=True)
class Code:
    """A region for one kind of inputs: text, and what its arguments are.

    `outs` are (slot, vector) of the registers it writes, `bases` per group the base register as (slot or None), and
    `exports` the groups whose base addresses it writes to memory. `members` are the inputs that have to name all lanes.
    """

    text: str
    outs: tuple[tuple[int, bool], ...]
    loads: tuple[Load, ...]
    groups: tuple[str, ...]
    exports: tuple[int, ...]
    bases: tuple[int | None, ...]
    scalars: int
    members: tuple[int, ...]


@dataclass(frozen=True)
class Region:
    """Instructions `start` to `end` (exclusive) of a program, and the registers and constants that they read.

    `warp`: it holds operations of whole warps. `cost`: what an instruction of it costs the interpreter, against an
    addition.
    """

    start: int
    end: int
    ins: tuple[tuple[int, str], ...]
    defs: frozenset[int]
    shared: bool
    warp: bool
    cost: float

    @property
    def count(self) -> int:
        return self.end - self.start


def find(program: Program, block: tuple[int, int]) -> list[Region]:
    """The regions of a block, in a program that has been compiled to steps."""
    first, last = block
    code = program.instructions[first:last]
    pure = [i.op not in WARP and _fits(program, i) for i in code]
    warp = [i.op in WARP and _fits(program, i) for i in code]
    regions = [_region(program, first + start, first + end) for start, end in _stretches(pure)]
    for start, end in _stretches([p or w for p, w in zip(pure, warp, strict=True)]):
        if any(warp[start:end]):
            regions.append(_region(program, first + start, first + end))
    return regions


def _stretches(fits: list[bool]) -> list[tuple[int, int]]:
    """Where stretches of instructions that fit begin and end."""
    found, start = [], None
    for pc in range(len(fits) + 1):
        ends = pc == len(fits) or not fits[pc]
        if start is not None and (ends or pc - start == LONGEST):
            if pc - start >= SHORTEST:
                found.append((start, pc))
            start = None
        if start is None and pc < len(fits) and fits[pc]:
            start = pc
    return found


def _fits(program: Program, i: Instruction) -> bool:
    emitter = Emitter()
    try:
        if i.op == "ld":
            _load_access(program, i)
            return True
        (lower_warp if i.op in WARP else lower)(emitter, i, lambda o, kind: _operand(emitter, o, kind))
    except UNKNOWN:
        return False
    return True


def _operand(e: Emitter, operand: object, kind: str) -> Value:
    """A stand-in for an operand, to see whether an instruction is known."""
    if isinstance(operand, Imm):
        return immediate(e, operand, kind)
    if isinstance(operand, Reg):
        return read(e, Value("%x", bits_of(operand.type)), operand.type, kind)
    if isinstance(operand, Sym | Special):
        return read(e, Value("%x", 64 if isinstance(operand, Sym) else 32), _kind_of(operand), kind)
    if isinstance(operand, Not):
        return Value("%x", 1)
    raise Unknown(str(operand))


def _kind_of(operand: object) -> str:
    return operand.type if isinstance(operand, Reg) else "u64" if isinstance(operand, Sym) else "u32"


def _load_access(program: Program, i: Instruction) -> tuple[Access, object, int]:
    """(access, base, offset) of a load that a region may hold; raises Unknown."""
    compiler = Compiler(program)
    target = i.operands[0]
    count = len(target.items) if isinstance(target, Vec) else 1
    try:
        access, _, offset = compiler.access(i, "ld", i.operands[1], count)
    except Exception as error:  # what the interpreter does not know either
        raise Unknown(i.text) from error
    address = i.operands[1]
    if i.guard is not None or access.volatile or access.space not in ("global", "shared", "const", "param"):
        raise Unknown(i.text)
    if abs(offset) >= 1 << 31:
        raise Unknown(i.text)
    if i.types[-1] == "b128" or not isinstance(address, Addr) or not isinstance(address.base, Reg | Sym | Imm):
        raise Unknown(i.text)
    return access, address.base, offset


def slot_of(program: Program, operand: object) -> int:
    """Where a register, symbol or special register is kept while the program runs."""
    if isinstance(operand, Reg):
        return operand.slot
    constant = operand.name[1:] if isinstance(operand, Special) else operand
    constants = program.steps.constants
    for k, other in enumerate(constants):
        if type(other) is type(constant) and other == constant:
            return len(program.registers) + k
    raise Unknown(str(operand))


def _region(program: Program, start: int, end: int) -> Region:
    ins: dict[int, str] = {}
    defs: set[int] = set()
    shared = warp = False
    for i in program.instructions[start:end]:
        written, used = defs_and_uses(i)
        for operand in [*used, *_constants(i)]:
            slot = slot_of(program, operand)
            if slot not in defs:
                ins.setdefault(slot, _kind_of(operand))
        defs.update(r.slot for r in written)
        shared |= i.op == "ld" and "shared" in (m.split("::")[0] for m in i.mods)
        warp |= i.op in WARP
    cost = sum(map(_cost, program.instructions[start:end])) / (end - start)
    return Region(start, end, tuple(ins.items()), frozenset(defs), shared, warp, cost)


def _cost(i: Instruction) -> int:
    """About how long the interpreter takes for an instruction, against an addition."""
    if i.types and i.types[0] in HALVES:
        return 30 if i.op == "fma" else 10
    return {"prmt": 20, "dp4a": 20, "dp2a": 10, "ex2": 8, "rsqrt": 4, "div": 4, "rem": 8, "bfi": 5, "bfe": 5,
            "shfl": 8, "vote": 3, "redux": 3}.get(i.op, 1)  # fmt: skip


def _constants(i: Instruction) -> list:
    """The symbols and special registers among an instruction's sources."""
    found = []
    for operand in i.operands[1:]:
        items = operand.items if isinstance(operand, Vec) else (operand,)
        for item in items:
            item = item.base if isinstance(item, Addr) else item
            if isinstance(item, Sym | Special):
                found.append(item)
    return found


# ---------------------------------------------------------------------------- code


def generate(program: Program, region: Region, vectors: tuple[bool, ...], count: bool) -> Code:
    """LLVM text of a region whose inputs are numbers or, where `vectors` says so, arrays over the lanes."""
    return _Generator(program, region, vectors, count).run()


class _Generator:
    def __init__(self, program: Program, region: Region, vectors: tuple[bool, ...], count: bool) -> None:
        self.program, self.region, self.count = program, region, count
        self.e = Emitter()
        self.values: dict[int, Value] = {}
        self.groups: dict[tuple[str, str], int] = {}
        self.group_bases: list[Value] = []
        self.group_spaces: list[str] = []
        self.group_slots: list[int | None] = []
        self.checks: list[list[str]] = []
        self.members: list[list[tuple[int, int]]] = []
        self.loads: list[Load] = []
        self.all_lanes: list[int] = []
        self.prologue: list[str] = []
        self.blocks = 0
        live = program.steps.live_in[region.end] if region.end < len(program.steps.live_in) else 0
        self.out_slots = [s for s in sorted(region.defs) if live >> s & 1]
        self.vectors = vectors

    def run(self) -> Code:
        e, region = self.e, self.region
        for k, ((slot, kind), vector) in enumerate(zip(region.ins, self.vectors, strict=True)):
            self.values[slot] = self.input(k, kind, vector)
        for i in self.program.instructions[region.start : region.end]:
            if i.op == "ld":
                self.load(i)
            elif i.op in WARP:
                results, members = lower_warp(e, i, self.get)
                if members is not None:
                    self.names_all(members)
                for target, kind, value in results:
                    self.put(target, kind, value)
            else:
                for target, kind, value in lower(e, i, self.get):
                    self.put(target, kind, value)
        outs, scalars = [], 0
        for slot in self.out_slots:
            value = self.values[slot]
            outs.append((slot, value.vector))
        exports = tuple(
            g for g, space in enumerate(self.group_spaces)
            if space == "shared" and self.group_slots[g] is None and self.group_bases[g].vector
        )  # fmt: skip
        # Arguments behind the inputs: a table of buffers per group, marks per load, results, bases, scalar addresses.
        self.at_tables = FIXED + len(region.ins)
        at = self.at_tables + len(self.checks) + len(self.loads)
        tail_head: list[str] = []
        tail: list[str] = []
        for slot, vector in outs:
            self.store(at, self.values[slot], vector, tail if vector else tail_head)
            at += 1
        for g in exports:
            self.store(at, self.group_bases[g], True, tail)
            at += 1
        for load in self.loads:
            if load.scalar is not None:
                base = self.group_bases[load.group]
                address = self.plus(base, load.offset, tail_head)
                tail_head.append(f"store i64 {address}, ptr {self.pointer(at, tail_head)}")
                at += 1
                scalars += 1
        self.fill_checks()
        text = _FRAME.format(
            head="\n  ".join([*self.prologue, *self.flatten(e.head), *tail_head]),
            body="\n  ".join([*self.flatten(e.body), *tail]),
            **_WORDS,
        )
        text += _HELPERS.format(**_WORDS).replace("KEY", _KEY) + "".join(e.functions.values())
        text += "\n".join(sorted(e.declared)) + "\n"
        slots = tuple(self.group_slots)
        members = tuple(dict.fromkeys(self.all_lanes))
        return Code(text, tuple(outs), tuple(self.loads), tuple(self.group_spaces), exports, slots, scalars, members)

    def names_all(self, members: object) -> None:
        """The member mask of a warp operation is known to name all lanes, or an input that is seen before a run."""
        value = self.get(members, "b32")
        if value.constant and int(value.name) == 0xFFFFFFFF:
            return
        slot = members.slot if isinstance(members, Reg) else None
        if value.vector or slot is None or slot in self.region.defs:
            raise Unknown("members")
        self.all_lanes.append(slot)

    @staticmethod
    def flatten(lines: list) -> list[str]:
        return [line for part in lines for line in (part if isinstance(part, list) else [part])]

    # ---- arguments

    def argument(self, k: int) -> str:
        """Word k of the arguments, read before everything else."""
        lines = self.prologue
        place, name = self.e.name(), self.e.name()
        lines.append(f"{place} = getelementptr i64, ptr %args, i64 {k}")
        lines.append(f"{name} = load i64, ptr {place}")
        return name

    def pointer(self, k: int, lines: list) -> str:
        name = self.e.name()
        lines.append(f"{name} = getelementptr i64, ptr %args, i64 {k}")
        return name

    def input(self, k: int, kind: str, vector: bool) -> Value:
        e, bits = self.e, bits_of(kind)
        memory = max(bits, 8)
        place = e.op(f"getelementptr i64, ptr %args, i64 {FIXED + k}", False)
        if not vector:
            name = e.op(f"load i{memory}, ptr {place}", False)
        else:
            base = e.op(f"load ptr, ptr {place}", False)
            at = e.op(f"getelementptr i{memory}, ptr {base}, i64 %lane0", True)
            name = e.op(f"load <{LANES} x i{memory}>, ptr {at}, align {memory // 8}", True)
        if bits == 1:
            have, want = e.type(8, vector), e.type(1, vector)
            name = e.op(f"trunc {have} {name} to {want}", vector)
        return Value(name, bits, vector)

    def store(self, at: int, value: Value, vector: bool, lines: list) -> None:
        e = self.e
        bits = max(value.bits, 8)
        name = e.text(value, vector)
        kind = e.type(bits, vector)
        if value.bits == 1:
            wide = e.name()
            lines.append(f"{wide} = zext {e.type(1, vector)} {name} to {kind}")
            name = wide
        if not vector:
            lines.append(f"store {kind} {name}, ptr {self.pointer(at, lines)}")
            return
        place = self.pointer(at, e.head)
        base, spot = e.name(), e.name()
        e.head.append(f"{base} = load ptr, ptr {place}")
        lines.append(f"{spot} = getelementptr i{bits}, ptr {base}, i64 %lane0")
        lines.append(f"store {kind} {name}, ptr {spot}, align {bits // 8}")

    # ---- operands

    def get(self, operand: object, kind: str) -> Value:
        e = self.e
        if isinstance(operand, Imm):
            return immediate(e, operand, kind)
        if isinstance(operand, Reg | Sym | Special):
            return read(e, self.values[slot_of(self.program, operand)], _kind_of(operand), kind)
        if isinstance(operand, Not):
            return e.apply("xor", self.values[operand.reg.slot], e.constant(1, 1))
        raise Unknown(str(operand))

    def put(self, target: object, kind: str, value: Value) -> None:
        if isinstance(target, Sink):
            return
        if not isinstance(target, Reg):
            raise Unknown(str(target))
        self.values[target.slot] = write(self.e, value, kind, target.type)

    # ---- loads

    def plus(self, base: Value, offset: int, lines: list) -> str:
        name = self.e.name()
        lines.append(f"{name} = add i64 {base.name}, {offset}")
        return name

    def load(self, i: Instruction) -> None:
        e = self.e
        access, operand, offset = _load_access(self.program, i)
        if isinstance(operand, Imm):
            base, slot = e.constant(int(operand.value), 64), None
        else:
            slot = slot_of(self.program, operand)
            have = self.values[slot]
            kind = _kind_of(operand)
            base = e.resize(have, 64, kind[0] == "s")
            if have.bits != 64 or slot in self.region.defs:
                slot = None
        scalar = not base.vector and access.space != "shared"
        if not base.vector and not scalar:
            base = Value(e.text(base, True), 64, True)
        key = (access.space, base.name)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = len(self.checks)
            self.group_bases.append(base)
            self.group_spaces.append(access.space)
            self.group_slots.append(slot)
            self.members.append([])
            self.checks.append([])
            (e.head if scalar else e.body).append(self.checks[-1])
        self.members[group].append((offset, access.width))
        number = sum(load.scalar is not None for load in self.loads) if scalar else None
        self.loads.append(Load(access, group, offset, number))
        target = i.operands[0]
        targets = target.items if isinstance(target, Vec) else (target,)
        bits = 8 * access.element
        vector = not scalar
        mark = f"%mark{len(self.loads) - 1}"
        if self.count and vector and access.space == "global":
            e.body.append(
                f"call void @mark.{_KEY}(ptr {mark}.flags, i64 %g{group}.place, i64 {offset}, ptr %g{group}.entry,"
                f" i64 {access.width.bit_length() - 1})"
            )
        for k, t in enumerate(targets):
            at = e.op(f"getelementptr i8, ptr %g{group}.host, i64 {offset + k * access.element}", vector)
            if scalar:
                name = e.op(f"load i{bits}, ptr {at}, align {access.element}", False)
            else:
                spots = e.op(f"getelementptr i8, ptr {at}, <{LANES} x i64> %g{group}.offsets", True)
                kind = e.type(bits, True)
                what = f"llvm.masked.gather.v{LANES}i{bits}.v{LANES}p0"
                e.declared.add(f"declare {kind} @{what}(<{LANES} x ptr>, <{LANES} x i1>, {kind})")
                name = e.op(
                    f"call {kind} @{what}(<{LANES} x ptr> align {access.element} {spots},"
                    f" <{LANES} x i1> splat (i1 true), {kind} poison)",
                    True,
                )
            self.put(t, i.type, Value(name, bits, vector))

    def guard(self, bad: str, lines: list[str]) -> None:
        self.blocks += 1
        lines.append(f"br i1 {bad}, label %bail, label %b{self.blocks}")
        lines.append(f"b{self.blocks}:")

    def fill_checks(self) -> None:
        """At the first use of each base register: are all its accesses inside and aligned, and of which pattern?"""
        e = self.e
        scalar = {load.group for load in self.loads if load.scalar is not None}
        for g, lines in enumerate(self.checks):
            base, space, members = self.group_bases[g], self.group_spaces[g], self.members[g]
            low, high = min(o for o, _ in members), max(o + w for o, w in members)
            if g in scalar:
                first, least, most, bits = base.name, "0", "0", "0"
            else:
                e.head.append(f"%g{g}.group = getelementptr i64, ptr %groups, i64 {g * GROUP}")
                first, least, most, bits = self.pattern(g, base, lines)
            lines.append(f"%g{g}.low = add i64 {first}, {low}")
            lines.append(f"%g{g}.lowest = add i64 %g{g}.low, {least}")
            lines.append(f"%g{g}.high = add i64 {first}, {high}")
            lines.append(f"%g{g}.highest = add i64 %g{g}.high, {most}")
            bad = []
            if g not in scalar:
                # So far apart, addresses could wrap around.
                lines.append(f"%g{g}.span = sub i64 {most}, {least}")
                lines.append(f"%g{g}.wide = icmp ugt i64 %g{g}.span, {1 << 40}")
                bad.append(f"%g{g}.wide")
            for k, (offset, width) in enumerate(dict.fromkeys(members)):
                if width > 1:
                    lines.append(f"%g{g}.a{k} = add i64 {first}, {offset}")
                    lines.append(f"%g{g}.b{k} = or i64 %g{g}.a{k}, {bits}")
                    lines.append(f"%g{g}.c{k} = and i64 %g{g}.b{k}, {width - 1}")
                    lines.append(f"%g{g}.d{k} = icmp ne i64 %g{g}.c{k}, 0")
                    bad.append(f"%g{g}.d{k}")
            if space in ("global", "const"):
                table = self.argument(self.at_tables + g)
                self.prologue.append(f"%g{g}.table = inttoptr i64 {table} to ptr")
                lines += [
                    f"%g{g}.window = lshr i64 %g{g}.lowest, 36",
                    f"%g{g}.number = sub i64 %g{g}.window, 1",
                    f"%g{g}.known = icmp ult i64 %g{g}.number, %buffers",
                    f"%g{g}.unknown = xor i1 %g{g}.known, true",
                ]
                self.guard(f"%g{g}.unknown", lines)
                lines += [
                    f"%g{g}.row = getelementptr [3 x i64], ptr %g{g}.table, i64 %g{g}.number",
                    f"%g{g}.base = load i64, ptr %g{g}.row",
                    f"%g{g}.row1 = getelementptr i64, ptr %g{g}.row, i64 1",
                    f"%g{g}.end = load i64, ptr %g{g}.row1",
                    f"%g{g}.row2 = getelementptr i64, ptr %g{g}.row, i64 2",
                    f"%g{g}.memory = load ptr, ptr %g{g}.row2",
                    f"%g{g}.under = icmp slt i64 %g{g}.lowest, %g{g}.base",
                    f"%g{g}.over = icmp sgt i64 %g{g}.highest, %g{g}.end",
                    f"%g{g}.at = sub i64 {first}, %g{g}.base",
                    f"%g{g}.host = getelementptr i8, ptr %g{g}.memory, i64 %g{g}.at",
                    f"%g{g}.place = and i64 {first}, {(1 << 36) - 1}",
                ]
                bad += [f"%g{g}.under", f"%g{g}.over"]
            else:
                size, memory = ("%shared.bytes", "%shared.here") if space == "shared" else ("%param.bytes", "%params")
                lines += [
                    f"%g{g}.under = icmp slt i64 %g{g}.lowest, 0",
                    f"%g{g}.over = icmp sgt i64 %g{g}.highest, {size}",
                    f"%g{g}.host = getelementptr i8, ptr {memory}, i64 {first}",
                ]
                bad += [f"%g{g}.under", f"%g{g}.over"]
            found = bad[0]
            for k, other in enumerate(bad[1:]):
                lines.append(f"%g{g}.bad{k} = or i1 {found}, {other}")
                found = f"%g{g}.bad{k}"
            self.guard(found, lines)
            for n, load in enumerate(self.loads):
                if load.group != g:
                    continue
                if space == "shared":
                    lines.append(
                        f"%blank{n} = call i1 @blank(ptr %args, i64 %shared.origin, i64 {first}, i64 {load.offset},"
                        f" ptr %g{g}.entry, i64 {load.access.width})"
                    )
                    self.guard(f"%blank{n}", lines)
                elif space == "global" and self.count and g not in scalar:
                    table = self.argument(self.at_tables + len(self.checks) + n)
                    self.prologue.append(f"%mark{n}.table = inttoptr i64 {table} to ptr")
                    lines.append(f"%mark{n}.row = getelementptr ptr, ptr %mark{n}.table, i64 %g{g}.number")
                    lines.append(f"%mark{n}.flags = load ptr, ptr %mark{n}.row")

    def pattern(self, g: int, base: Value, lines: list[str]) -> tuple[str, str, str, str]:
        """Find the pattern of a warp's addresses; gives the first address, lowest and highest offset, their bits."""
        kind = f"<{LANES} x i64>"
        lines += [
            f"%g{g}.first = extractelement {kind} {base.name}, i32 %first",
            f"%g{g}.one = insertelement {kind} poison, i64 %g{g}.first, i64 0",
            f"%g{g}.all = shufflevector {kind} %g{g}.one, {kind} poison, <{LANES} x i32> zeroinitializer",
            f"%g{g}.only = select <{LANES} x i1> %on, {kind} {base.name}, {kind} %g{g}.all",
            f"%g{g}.offsets = sub {kind} %g{g}.only, %g{g}.all",
            f"%g{g}.entry = call ptr @pattern(ptr %g{g}.group, {kind} %g{g}.offsets, i64 %mask, i64 %g{g}.first,"
            f" i64 {g}, ptr %args)",
            f"%g{g}.p1 = getelementptr i64, ptr %g{g}.entry, i64 1",
            f"%g{g}.least = load i64, ptr %g{g}.p1",
            f"%g{g}.p2 = getelementptr i64, ptr %g{g}.entry, i64 2",
            f"%g{g}.most = load i64, ptr %g{g}.p2",
            f"%g{g}.p3 = getelementptr i64, ptr %g{g}.entry, i64 3",
            f"%g{g}.bits = load i64, ptr %g{g}.p3",
        ]
        return f"%g{g}.first", f"%g{g}.least", f"%g{g}.most", f"%g{g}.bits"


_WORDS = {
    "warps": WARPS, "masks": MASKS, "buffers": BUFFERS, "shared": SHARED, "shared_bytes": SHARED_BYTES,
    "stride": SHARED_STRIDE, "per_block": WARPS_PER_BLOCK, "params": PARAMS, "param_bytes": PARAM_BYTES,
    "rows": ROWS, "row_count": ROW_COUNT, "groups": GROUPS, "written": WRITTEN, "check": GRANULE, "step": STEP,
    "entry": ENTRY, "row": ROW,
}  # fmt: skip

_FRAME = """
define i32 @NAME(ptr %args) {{
entry:
  %turn = alloca i64
  %spot = alloca <32 x i32>, align 64
  store i64 0, ptr %turn
  %a.warps = getelementptr i64, ptr %args, i64 {warps}
  %warps = load i64, ptr %a.warps
  %a.masks = getelementptr i64, ptr %args, i64 {masks}
  %masks = load ptr, ptr %a.masks
  %a.buffers = getelementptr i64, ptr %args, i64 {buffers}
  %buffers = load i64, ptr %a.buffers
  %a.shared = getelementptr i64, ptr %args, i64 {shared}
  %shared = load ptr, ptr %a.shared
  %a.bytes = getelementptr i64, ptr %args, i64 {shared_bytes}
  %shared.bytes = load i64, ptr %a.bytes
  %a.stride = getelementptr i64, ptr %args, i64 {stride}
  %stride = load i64, ptr %a.stride
  %a.per = getelementptr i64, ptr %args, i64 {per_block}
  %per.block = load i64, ptr %a.per
  %a.params = getelementptr i64, ptr %args, i64 {params}
  %params = load ptr, ptr %a.params
  %a.pbytes = getelementptr i64, ptr %args, i64 {param_bytes}
  %param.bytes = load i64, ptr %a.pbytes
  %a.groups = getelementptr i64, ptr %args, i64 {groups}
  %groups = load ptr, ptr %a.groups
  {head}
  br label %loop
loop:
  %w = load i64, ptr %turn
  %more = icmp ult i64 %w, %warps
  br i1 %more, label %warp, label %done
warp:
  %w1 = add i64 %w, 1
  store i64 %w1, ptr %turn
  %a.mask = getelementptr i32, ptr %masks, i64 %w
  %mask32 = load i32, ptr %a.mask
  %idle = icmp eq i32 %mask32, 0
  br i1 %idle, label %loop, label %active
active:
  %mask = zext i32 %mask32 to i64
  %on = bitcast i32 %mask32 to <32 x i1>
  %first = call i32 @llvm.cttz.i32(i32 %mask32, i1 true)
  %lane0 = shl i64 %w, 5
  %block = udiv i64 %w, %per.block
  %shared.origin = mul i64 %block, %stride
  %shared.here = getelementptr i8, ptr %shared, i64 %shared.origin
  {body}
  br label %loop
bail:
  ret i32 0
done:
  ret i32 1
}}
declare i32 @llvm.cttz.i32(i32, i1)
"""

_HELPERS = """
declare i1 @llvm.vector.reduce.or.v32i1(<32 x i1>)
declare ptr @search.KEY(ptr, ptr, i64, i64, i64, ptr)
declare void @mark.KEY(ptr, i64, i64, ptr, i64)
declare i1 @blanks.KEY(ptr, i64, i64, i64, ptr, i64, i64)

; The entry of a warp's offsets in a group's list of patterns, counted by the first address modulo 128.
define internal ptr @pattern(ptr %group, <32 x i64> %d, i64 %mask, i64 %b, i64 %g, ptr %args) alwaysinline {{
  %p1 = getelementptr i64, ptr %group, i64 1
  %last = load i64, ptr %p1
  %at = mul i64 %last, {entry}
  %at8 = add i64 %at, 8
  %e = getelementptr i64, ptr %group, i64 %at8
  %m = load i64, ptr %e
  %p8 = getelementptr i64, ptr %e, i64 8
  %old = load <32 x i64>, ptr %p8, align 8
  %ne = icmp ne <32 x i64> %old, %d
  %differs = call i1 @llvm.vector.reduce.or.v32i1(<32 x i1> %ne)
  %other = icmp ne i64 %m, %mask
  %miss = or i1 %differs, %other
  br i1 %miss, label %slow, label %hit
slow:
  %spot = alloca <32 x i64>, align 64
  store <32 x i64> %d, ptr %spot, align 64
  %found = call ptr @search.KEY(ptr %group, ptr %spot, i64 %mask, i64 %b, i64 %g, ptr %args)
  br label %hit
hit:
  %r = phi ptr [ %e, %0 ], [ %found, %slow ]
  %turn = and i64 %b, 127
  %turn72 = add i64 %turn, 72
  %h = getelementptr i64, ptr %r, i64 %turn72
  %n = load i64, ptr %h
  %a.step = getelementptr i64, ptr %args, i64 {step}
  %step = load i64, ptr %a.step
  %n1 = add i64 %n, %step
  store i64 %n1, ptr %h
  ret ptr %r
}}

; Whether a warp reads bytes of shared memory that nobody has written; the argument is the granule, 0 for no check.
define internal i1 @blank(ptr %args, i64 %origin, i64 %first, i64 %offset, ptr %pattern, i64 %width) alwaysinline {{
  %a.check = getelementptr i64, ptr %args, i64 {check}
  %granule = load i64, ptr %a.check
  %no = icmp eq i64 %granule, 0
  br i1 %no, label %fine, label %look
look:
  %r = call i1 @blanks.KEY(ptr %args, i64 %origin, i64 %first, i64 %offset, ptr %pattern, i64 %width, i64 %granule)
  br label %fine
fine:
  %found = phi i1 [ false, %0 ], [ %r, %look ]
  ret i1 %found
}}
"""

# What all regions call, compiled once; KEY is the key of this text.
_LIBRARY = """
declare i1 @llvm.vector.reduce.or.v32i1(<32 x i1>)
declare i64 @llvm.vector.reduce.or.v32i64(<32 x i64>)
declare i64 @llvm.vector.reduce.smin.v32i64(<32 x i64>)
declare i64 @llvm.vector.reduce.smax.v32i64(<32 x i64>)

define ptr @search.KEY(ptr %group, ptr %spot, i64 %mask, i64 %b, i64 %g, ptr %args) {{
entry:
  %d = load <32 x i64>, ptr %spot, align 64
  %n = load i64, ptr %group
  br label %scan
scan:
  %k = phi i64 [ 0, %entry ], [ %k1, %next ]
  %more = icmp ult i64 %k, %n
  br i1 %more, label %try, label %new
try:
  %ke = mul i64 %k, {entry}
  %ke8 = add i64 %ke, 8
  %e = getelementptr i64, ptr %group, i64 %ke8
  %m = load i64, ptr %e
  %p8 = getelementptr i64, ptr %e, i64 8
  %old = load <32 x i64>, ptr %p8, align 8
  %ne = icmp ne <32 x i64> %old, %d
  %differs = call i1 @llvm.vector.reduce.or.v32i1(<32 x i1> %ne)
  %other = icmp ne i64 %m, %mask
  %miss = or i1 %differs, %other
  br i1 %miss, label %next, label %hit
next:
  %k1 = add i64 %k, 1
  br label %scan
hit:
  %last = getelementptr i64, ptr %group, i64 1
  store i64 %k, ptr %last
  ret ptr %e
new:
  %full = icmp uge i64 %n, {patterns}
  %slot = select i1 %full, i64 {patterns}, i64 %n
  %se = mul i64 %slot, {entry}
  %se8 = add i64 %se, 8
  %f = getelementptr i64, ptr %group, i64 %se8
  store i64 %mask, ptr %f
  %lo = call i64 @llvm.vector.reduce.smin.v32i64(<32 x i64> %d)
  %f1 = getelementptr i64, ptr %f, i64 1
  store i64 %lo, ptr %f1
  %hi = call i64 @llvm.vector.reduce.smax.v32i64(<32 x i64> %d)
  %f2 = getelementptr i64, ptr %f, i64 2
  store i64 %hi, ptr %f2
  %bits = call i64 @llvm.vector.reduce.or.v32i64(<32 x i64> %d)
  %f3 = getelementptr i64, ptr %f, i64 3
  store i64 %bits, ptr %f3
  %f8 = getelementptr i64, ptr %f, i64 8
  store <32 x i64> %d, ptr %f8, align 8
  %f4 = getelementptr i64, ptr %f, i64 4
  %f40 = getelementptr i64, ptr %f, i64 40
  br label %lane
lane:
  %l = phi i64 [ 0, %new ], [ %l1, %lane.next ]
  %u = phi i64 [ 0, %new ], [ %u.next, %lane.next ]
  %lp = getelementptr i64, ptr %spot, i64 %l
  %x = load i64, ptr %lp
  br label %same
same:
  %j = phi i64 [ 0, %lane ], [ %j1, %same.next ]
  %left = icmp ult i64 %j, %u
  br i1 %left, label %compare, label %add
compare:
  %jp = getelementptr i64, ptr %f40, i64 %j
  %y = load i64, ptr %jp
  %eq = icmp eq i64 %x, %y
  br i1 %eq, label %lane.next, label %same.next
same.next:
  %j1 = add i64 %j, 1
  br label %same
add:
  %up = getelementptr i64, ptr %f40, i64 %u
  store i64 %x, ptr %up
  %u1 = add i64 %u, 1
  br label %lane.next
lane.next:
  %u.next = phi i64 [ %u, %compare ], [ %u1, %add ]
  %l1 = add i64 %l, 1
  %again = icmp ult i64 %l1, 32
  br i1 %again, label %lane, label %end
end:
  store i64 %u.next, ptr %f4
  br i1 %full, label %row, label %keep
keep:
  %n1 = add i64 %n, 1
  store i64 %n1, ptr %group
  %last2 = getelementptr i64, ptr %group, i64 1
  store i64 %slot, ptr %last2
  ret ptr %f
row:
  %a.rows = getelementptr i64, ptr %args, i64 {rows}
  %rows = load ptr, ptr %a.rows
  %a.count = getelementptr i64, ptr %args, i64 {row_count}
  %count = load i64, ptr %a.count
  %count1 = add i64 %count, 1
  store i64 %count1, ptr %a.count
  %ro = mul i64 %count, {row}
  %r0 = getelementptr i64, ptr %rows, i64 %ro
  store i64 %g, ptr %r0
  %r1 = getelementptr i64, ptr %r0, i64 1
  store i64 %mask, ptr %r1
  %r2 = getelementptr i64, ptr %r0, i64 2
  store i64 %b, ptr %r2
  %r4 = getelementptr i64, ptr %r0, i64 4
  store <32 x i64> %d, ptr %r4, align 8
  ret ptr %f
}}

; Flags of the elements that a warp reads.
define void @mark.KEY(ptr %flags, i64 %place, i64 %offset, ptr %pattern, i64 %shift) {{
entry:
  %start = add i64 %place, %offset
  %p4 = getelementptr i64, ptr %pattern, i64 4
  %n = load i64, ptr %p4
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]
  %k40 = add i64 %k, 40
  %p = getelementptr i64, ptr %pattern, i64 %k40
  %d = load i64, ptr %p
  %at = add i64 %start, %d
  %index = lshr i64 %at, %shift
  %f = getelementptr i8, ptr %flags, i64 %index
  store i8 1, ptr %f
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}}

define i1 @blanks.KEY(
  ptr %args, i64 %origin, i64 %first, i64 %offset, ptr %pattern, i64 %width, i64 %granule
) {{
entry:
  %a.written = getelementptr i64, ptr %args, i64 {written}
  %written = load ptr, ptr %a.written
  %o1 = add i64 %origin, %first
  %start = add i64 %o1, %offset
  %each = udiv i64 %width, %granule
  %p4 = getelementptr i64, ptr %pattern, i64 4
  %n = load i64, ptr %p4
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %after ]
  %k40 = add i64 %k, 40
  %p = getelementptr i64, ptr %pattern, i64 %k40
  %d = load i64, ptr %p
  %at = add i64 %start, %d
  %index = udiv i64 %at, %granule
  br label %part
part:
  %j = phi i64 [ 0, %loop ], [ %j1, %part.next ]
  %i = add i64 %index, %j
  %f = getelementptr i8, ptr %written, i64 %i
  %b = load i8, ptr %f
  %blank = icmp eq i8 %b, 0
  br i1 %blank, label %bad, label %part.next
part.next:
  %j1 = add i64 %j, 1
  %parts = icmp ult i64 %j1, %each
  br i1 %parts, label %part, label %after
after:
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %n
  br i1 %more, label %loop, label %good
bad:
  ret i1 true
good:
  ret i1 false
}}
"""
LIBRARY = _LIBRARY.format(**_WORDS, patterns=PATTERNS)
_KEY = hashlib.sha256(LIBRARY.encode()).hexdigest()[:16]
LIBRARY = LIBRARY.replace("KEY", _KEY)

__all__ = ["LIBRARY", "Code", "Load", "Region", "SIZES", "find", "generate", "slot_of"]
