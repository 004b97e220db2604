"""Programs compiled to steps: one Python function per instruction, over whole chunks of threads.

An instruction's step is made when its turn first comes: large kernels hold much that a launch never reaches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from labkit.emulator import ops, tensor
from labkit.emulator.converge import meeting
from labkit.emulator.copies import WORD, full_words
from labkit.emulator.memory import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW
from labkit.emulator.ops import DTYPES, Unsupported, pick
from labkit.emulator.ptx import (
    SIZES,
    Addr,
    Imm,
    Instruction,
    Label,
    Not,
    Pair,
    Program,
    Reg,
    Sink,
    Special,
    Sym,
    Vec,
)

if TYPE_CHECKING:
    from labkit.emulator.engine import Machine, Mask

s64, u32, u64 = np.int64, np.uint32, np.uint64


class Access:
    """What an instruction does to memory, fixed when the program is compiled."""

    __slots__ = (
        "instruction", "pc", "space", "kind", "dtype", "count", "element", "width", "shift",
        "verb", "volatile", "reported",
    )  # fmt: skip

    def __init__(self, instruction: Instruction, space: str, kind: str, count: int) -> None:
        self.instruction = instruction
        self.pc = instruction.index
        self.space = space
        self.kind = kind
        kind_of = instruction.types[-1]
        self.dtype = DTYPES[kind_of]
        self.count = count
        self.element = SIZES[kind_of]
        self.width = self.element * count
        self.shift = self.element.bit_length() - 1
        self.verb = {"ld": "reads", "st": "writes"}.get(kind, "updates")
        # Code that means to race says so: such accesses count as atomics.
        self.volatile = bool(
            {"volatile", "relaxed", "acquire", "release", "mmio"} & set(instruction.mods)
        )
        self.reported = "const" if space == "const" else None


class Place:
    """Where the threads of an access point: elements `index` of `view`, or `parts` of several."""

    __slots__ = (
        "address", "mask", "space", "view", "index", "parts", "granules", "initialized", "watched", "_active",
    )  # fmt: skip

    def __init__(
        self,
        address: object,
        mask: Mask,
        space: str,
        view: np.ndarray | None,
        index: object,
        parts: list | None = None,
    ) -> None:
        self.address = address
        self.mask = mask
        self.space = space
        self.view = view
        self.index = index
        self.parts = parts
        self.granules = None
        self.initialized = False
        self.watched = None
        self._active = None

    @property
    def active(self) -> object:
        """The index of the mask's lanes alone."""
        if self._active is None:
            index = self.index
            if self.mask.lanes is not None and isinstance(index, np.ndarray):
                index = index[self.mask.index]
            self._active = index
        return self._active

    def moved(self, k: int) -> Place:
        """The place `k` elements on, of one in several buffers."""
        return Place(self.address, self.mask, self.space, None, None, [(v, i + k, w) for v, i, w in self.parts])

    def within(self, lanes: np.ndarray) -> Place:
        """The part of a place in one buffer that `lanes`, bools over the mask's lanes, point to."""
        where = np.zeros(len(self.mask.where), bool)
        where[self.mask.index[lanes]] = True
        mask = type(self.mask)(where, -1)
        return Place(self.address, mask, self.space, self.view, self.index)


# ---------------------------------------------------------------------------- compiling

_NO_RESULT = {
    "st", "red", "stmatrix", "wgmma", "mbarrier", "bra", "brx", "ret", "exit", "trap", "call", "membar",
    "fence", "nanosleep", "cp", "prefetch", "prefetchu", "discard", "pmevent", "brkpt", "stackrestore", "applypriority",
}  # fmt: skip


def defs_and_uses(instruction: Instruction) -> tuple[list[Reg], list[Reg]]:
    """Registers that an instruction writes and reads (its guard included)."""
    if instruction.flow is None:
        instruction.flow = _flow(instruction)
    return instruction.flow


def _flow(instruction: Instruction) -> tuple[list[Reg], list[Reg]]:
    operands = instruction.operands
    op = instruction.op
    if op == "wmma":
        none = "store" in instruction.mods
    elif op in ("bar", "barrier"):
        none = "red" not in instruction.mods
    else:
        none = op in _NO_RESULT
    defs = [] if none or not operands else [o for o in parts(operands[:1]) if isinstance(o, Reg)]
    uses = [o for o in parts(operands if none else operands[1:]) if isinstance(o, Reg)]
    if instruction.guard:
        uses.append(instruction.guard[0])
    return defs, uses


def parts(operands: tuple) -> list:
    """What operands are made of: registers, symbols, numbers."""
    found = []
    for operand in operands:
        kind = type(operand)
        if kind is Reg or kind is Imm:
            found.append(operand)
        elif kind is Addr:
            found.append(operand.base)
        elif kind is Vec:
            found += parts(operand.items)
        elif kind is Pair:
            found += parts((operand.first, operand.second))
        elif kind is Not:
            found += parts((operand.reg,))
        else:
            found.append(operand)
    return found


def successors(instruction: Instruction) -> list[int]:
    """Program counters that can follow."""
    after = [instruction.index + 1]
    if instruction.op == "bra":
        return [*instruction.operands[0].pc, *(after if instruction.guard else [])]
    if instruction.op == "brx":
        return [*instruction.operands[1].pc, *(after if instruction.guard else [])]
    if instruction.op in ("ret", "exit", "trap"):
        return after if instruction.guard else []
    return after


def blocks(instructions: list[Instruction]) -> dict[int, int]:
    """Where control runs straight, from and to (exclusive)."""
    count = len(instructions)
    starts = {0}
    for i in instructions:
        if i.op in ("bra", "brx", "ret", "exit", "trap"):
            starts.update((i.index + 1, *(pc for o in i.operands if isinstance(o, Label) for pc in o.pc)))
    marks = sorted(pc for pc in starts if pc < count)
    return dict(zip(marks, [*marks[1:], count], strict=True))


def live_blocks(instructions: list[Instruction]) -> dict[int, int]:
    """For the first instruction of each block, and for the end, the registers read from there on, as bits."""
    count = len(instructions)
    known = []
    for start, end in blocks(instructions).items():
        read, written = set(), set()
        for i in instructions[start:end]:
            defs, uses = defs_and_uses(i)
            read.update(r.slot for r in uses if r.slot not in written)
            if not i.guard:
                written.update(r.slot for r in defs)
        after = [s for s in successors(instructions[end - 1]) if s < count]
        known.append((start, after, _bits(read), ~_bits(written)))
    live = dict.fromkeys([*(start for start, *_ in known), count], 0)
    changed = True
    while changed:
        changed = False
        for start, after, read, kept in reversed(known):
            out = 0
            for s in after:
                out |= live[s]
            new = read | out & kept
            changed |= new != live[start]
            live[start] = new
    return live


def _bits(slots: set[int]) -> int:
    return sum(1 << slot for slot in slots)


def liveness(instructions: list[Instruction]) -> list[int]:
    """For each instruction, the registers read from there on, as a bit set of their slots."""
    count = len(instructions)
    starts = live_blocks(instructions)
    live = [0] * count
    for start, end in blocks(instructions).items():
        out = 0
        for s in successors(instructions[end - 1]):
            out |= starts.get(s, 0)
        for pc in range(end - 1, start - 1, -1):
            i = instructions[pc]
            defs, uses = defs_and_uses(i)
            for r in defs if not i.guard else ():
                if out >> r.slot & 1:
                    out ^= 1 << r.slot
            for r in uses:
                out |= 1 << r.slot
            live[pc] = out
    return live


def result_used(code: Code, instructions: list[Instruction], i: Instruction) -> bool:
    """Whether anybody reads what an instruction gives."""
    defs, _ = defs_and_uses(i)
    return any(code.live_in[s] >> r.slot & 1 for r in defs for s in successors(i) if s < len(instructions))


class Code:
    """A program compiled as far as it has run: one function per instruction, and the constants behind the registers."""

    def __init__(self) -> None:
        self.steps: list[Callable] = []
        self.plain: list[bool] = []
        self.constants: list = []
        self.live_in: list[int] = []
        self.granule = 4
        self.arrives = False


class Later:
    """The step of an instruction whose turn has not come yet: then it gives way to the real one."""

    __slots__ = ("compiler", "pc")

    def __init__(self, compiler: Compiler, pc: int) -> None:
        self.compiler, self.pc = compiler, pc

    def __call__(self, m: Machine, mask: Mask) -> int | None:
        step = self.compiler.made(self.pc)
        m.more_constants()
        if m.steps[self.pc] is self:
            m.steps[self.pc] = step
        return step(m, mask)


class Compiler:
    """Turns a Program into steps: functions of (machine, mask).

    A step returns None to go on with the next instruction, a program counter to jump to, or -1
    when it has put the threads into groups itself.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.instructions = program.instructions
        self.code = Code()
        self.known: dict[object, int] = {}
        self.one_at_a_time = threading.Lock()

    def run(self) -> Code:
        code = self.code
        code.steps = [Later(self, pc) for pc in range(len(self.instructions))]
        code.plain = [i.guard is None for i in self.instructions]
        code.live_in = self.program.live
        code.arrives = any(i.op in ("bar", "barrier") and "arrive" in i.mods for i in self.instructions)
        widths = [
            SIZES[i.types[-1]]
            for i in self.instructions
            if i.op in ("ld", "st", "atom", "red")
            and i.types
            and _space(i) in ("shared", "generic")
        ]
        if any(i.op == "cp" for i in self.instructions):
            widths.append(WORD)
        widths += [tensor.smallest_access(i) for i in self.instructions if i.op in ("wmma", "ldmatrix", "stmatrix")]
        code.granule = min(widths, default=4)
        for instruction in self.instructions:
            for operand in parts(instruction.operands):
                # Whatever has to be made before the launch: a variable's memory, the numbers of threads and blocks.
                if isinstance(operand, Sym) or isinstance(operand, Special) and operand.name[1:] in _SPECIALS:
                    self.source(operand, "u64")
        return code

    def made(self, pc: int) -> Callable:
        """The step of an instruction, made once."""
        with self.one_at_a_time:
            if isinstance(self.code.steps[pc], Later):
                instruction = self.instructions[pc]
                try:
                    step = self.step(instruction)
                except (Unsupported, ValueError, IndexError, KeyError, AttributeError, TypeError):
                    # Not known here, or not written as the manual has it.
                    step = self.unknown(instruction)
                self.code.steps[pc] = step
            return self.code.steps[pc]

    def unknown(self, instruction: Instruction) -> Callable:
        pc, text = instruction.index, instruction.text

        def step(m: Machine, mask: Mask) -> None:
            raise m.fault(
                "unsupported",
                f"the emulator does not know the instruction {text}",
                "Run this kernel on a GPU, or write it without that instruction.",
                pc=pc,
            )

        return step

    def step(self, i: Instruction) -> Callable:
        build = getattr(self, f"op_{i.op}", None)
        inner = build(i) if build else self.pure(i)
        if i.guard is None or i.op in ("bra", "ret", "exit"):
            return inner
        return self.guarded(i, inner)

    # ---- operands

    def constant(self, key: object, value: object) -> int:
        if key not in self.known:
            self.known[key] = len(self.program.registers) + len(self.code.constants)
            self.code.constants.append(value)
        return self.known[key]

    def source(self, operand: object, kind: str) -> tuple[int, Callable | None]:
        """Where a value is kept, and what turns it into PTX type `kind` (None: nothing)."""
        want = DTYPES.get(kind)
        if want is None:
            raise Unsupported(kind)
        if isinstance(operand, Reg):
            return operand.slot, _reader(DTYPES[operand.type], want)
        if isinstance(operand, Imm):
            value = _immediate(operand, want)
            return self.constant((want, value.tobytes()), value), None
        if isinstance(operand, Sym):
            key = (operand.variable.name, operand.offset)
            return self.constant(key, operand), _reader(np.dtype(u64), want)
        if isinstance(operand, Special):
            name = operand.name[1:]
            if name not in _SPECIALS:
                raise Unsupported(operand.name)
            return self.constant(name, name), _reader(np.dtype(u32), want)
        raise Unsupported(str(operand))

    def destination(self, operand: object, kind: str) -> tuple[int, Callable | None] | None:
        """The slot to write and what turns PTX type `kind` into the register's container."""
        if isinstance(operand, Sink):
            return None
        if not isinstance(operand, Reg):
            raise Unsupported(str(operand))
        return operand.slot, _writer(DTYPES[kind], DTYPES[operand.type])

    # ---- guards

    def guarded(self, i: Instruction, inner: Callable) -> Callable:
        slot, wanted = i.guard[0].slot, i.guard[1]
        pc = i.index
        after = 0
        for s in successors(i):
            after |= self.code.live_in[s]

        def step(m: Machine, mask: Mask) -> int | None:
            on = m.narrow_by(mask, m.R[slot], wanted)
            if m.counters is not None:
                m.counters.executed(pc, mask, on if on is not None else m.nobody)
            if on is None:
                return None
            if on is mask:
                return inner(m, mask)
            kept = m.needed
            m.needed = kept | after
            went = inner(m, on)
            m.needed = kept
            if went is not None:
                m.push(pc + 1, m.without(mask, on))
                if went >= 0:
                    m.push(went, on)
                m.refresh()
                return -1
            return None

        return step

    # ---- arithmetic

    def pure(self, i: Instruction) -> Callable:
        operands = i.operands
        op = ops.lookup(i.op, i.mods, i.types)
        if not operands:
            raise Unsupported(i.op)
        target, sources = operands[0], operands[1:]
        if len(sources) != len(op.src):
            raise Unsupported(i.text)
        reads = [
            self.negated(o) if isinstance(o, Not) else self.source(o, k)
            for o, k in zip(sources, op.src, strict=True)
        ]
        if i.op == "setp" and isinstance(target, Pair):
            second = ops.setp_second(i.mods, i.types)
            first_fn, second_fn = op.fn, second.fn
            both = ops.Op(lambda *a: (first_fn(*a), second_fn(*a)), op.src, ("pred", "pred"))
            return self.apply(both, reads, (target.first, target.second))
        targets = (target.first, target.second) if isinstance(target, Pair) else (target,)
        return self.apply(op, reads, targets)

    def negated(self, operand: Not) -> tuple[int, Callable]:
        return operand.reg.slot, np.logical_not

    def apply(self, op: ops.Op, reads: list, targets: tuple) -> Callable:
        fn = op.fn
        if len(targets) != len(op.dst):
            raise Unsupported("destinations")
        writes = [self.destination(t, k) for t, k in zip(targets, op.dst, strict=True)]
        if len(writes) == 1 and writes[0] is not None:
            slot, put = writes[0]
            if len(reads) == 1:
                (a, ra) = reads[0]
                return _unary(fn, a, ra, slot, put)
            if len(reads) == 2:
                (a, ra), (b, rb) = reads
                return _binary(fn, a, ra, b, rb, slot, put)
        single = len(writes) == 1

        def step(m: Machine, mask: Mask) -> None:
            R = m.R
            results = fn(*[R[s] if get is None else get(R[s]) for s, get in reads])
            if single:
                results = (results,)
            for write, value in zip(writes, results, strict=True):
                if write is not None:
                    slot, put = write
                    m.set(slot, value if put is None else put(value), mask)

        return step

    def op_mov(self, i: Instruction) -> Callable:
        target, value = i.operands
        kind = i.type
        if isinstance(value, Special) and value.name in _CLOCKS:
            slot, put = self.destination(target, kind)

            def clock(m: Machine, mask: Mask) -> None:
                ticks = DTYPES[kind].type(m.taken)
                m.set(slot, ticks if put is None else put(ticks), mask)

            return clock
        if isinstance(value, Vec):
            return self.pack(i, target, value)
        if isinstance(target, Vec):
            return self.unpack(i, target, value)
        if isinstance(value, Label):
            raise Unsupported(value.name)
        slot, get = self.source(value, kind)
        return self.apply(ops.Op(lambda a: a, (kind,), (kind,)), [(slot, get)], (target,))

    def pack(self, i: Instruction, target: object, value: Vec) -> Callable:
        each = SIZES[i.type] // len(value.items)
        part, whole = f"b{8 * each}", i.type
        reads = [self.source(v, part) for v in value.items]
        dtype = DTYPES[f"b{8 * SIZES[whole]}"]

        def fn(*parts: object) -> object:
            out = parts[0].astype(dtype)
            for k, p in enumerate(parts[1:], 1):
                out = out | (p.astype(dtype) << dtype.type(8 * each * k))
            return out

        return self.apply(ops.Op(fn, (part,) * len(reads), (f"b{8 * SIZES[whole]}",)), reads,
                          (target,))  # fmt: skip

    def unpack(self, i: Instruction, target: Vec, value: object) -> Callable:
        each = SIZES[i.type] // len(target.items)
        whole, part = f"b{8 * SIZES[i.type]}", f"b{8 * each}"
        dtype, small = DTYPES[whole], DTYPES[part]

        def fn(x: object) -> tuple:
            return tuple(
                (x >> dtype.type(8 * each * k)).astype(small) for k in range(len(target.items))
            )

        op = ops.Op(fn, (whole,), (part,) * len(target.items))
        return self.apply(op, [self.source(value, whole)], target.items)

    def op_cvta(self, i: Instruction) -> Callable:
        space = next((s for s in i.mods if s.split("::")[0] in _SPACE_WINDOWS), None)
        if space is None:
            raise Unsupported(i.text)
        window = u64(_SPACE_WINDOWS[space.split("::")[0]])
        back = "to" in i.mods
        slot, get = self.source(i.operands[1], "u64")
        if not window:
            fn: Callable = lambda a: a  # noqa: E731
        elif back:
            fn = lambda a: a - window  # noqa: E731
        else:
            fn = lambda a: a + window  # noqa: E731
        return self.apply(ops.Op(fn, ("u64",), ("u64",)), [(slot, get)], i.operands[:1])

    def op_isspacep(self, i: Instruction) -> Callable:
        space = i.mods[0].split("::")[0]
        slot, get = self.source(i.operands[1], "u64")

        def fn(a: object) -> object:
            where = a >> u64(60)
            if space in ("global", "const"):
                return where == 0
            return where == u64(_SPACE_WINDOWS[space] >> 60)

        return self.apply(ops.Op(fn, ("u64",), ("pred",)), [(slot, get)], i.operands[:1])

    # ---- control

    def op_bra(self, i: Instruction) -> Callable:
        if not i.operands[0].pc:
            raise Unsupported(i.text)
        target, pc = i.operands[0].pc[0], i.index
        leaves = self.leaves(target)
        if i.guard is None:
            return lambda m, mask: target
        slot, wanted = i.guard[0].slot, i.guard[1]

        def step(m: Machine, mask: Mask) -> int | None:
            on = m.narrow_by(mask, m.R[slot], wanted)
            if m.counters is not None:
                m.counters.executed(pc, mask, on if on is not None else m.nobody)
            if on is None:
                return None
            if on is mask and not leaves:
                return target
            if leaves:
                # The branch is an exit: what ptxas makes of it, and nobody has to wait for it.
                if m.counters is not None:
                    m.counters.executed(target, on, on)
                m.exit(on, pc)
            else:
                m.push(target, on)
            if on is not mask:
                m.push(pc + 1, m.without(mask, on))
            m.refresh()
            return -1

        return step

    def leaves(self, target: int) -> bool:
        if target >= len(self.instructions):
            return False
        instruction = self.instructions[target]
        return instruction.op in ("ret", "exit") and instruction.guard is None

    def op_brx(self, i: Instruction) -> Callable:
        targets = i.operands[1].pc
        if not targets:
            raise Unsupported(i.text)
        slot, get = self.source(i.operands[0], "u32")

        def step(m: Machine, mask: Mask) -> int:
            index = m.R[slot] if get is None else get(m.R[slot])
            if not isinstance(index, np.ndarray):
                return targets[int(index)]
            for k in np.unique(index[mask.index]):
                m.push(targets[int(k)], m.narrow(mask, index == k))
            m.refresh()
            return -1

        return step

    def op_ret(self, i: Instruction) -> Callable:
        pc = i.index
        guard = i.guard

        def step(m: Machine, mask: Mask) -> int | None:
            on: Mask | None = mask
            if guard is not None:
                on = m.narrow_by(mask, m.R[guard[0].slot], guard[1])
                if m.counters is not None:
                    m.counters.executed(pc, mask, on if on is not None else m.nobody)
                if on is None:
                    return None
            m.exit(on, pc)
            if on is not mask:
                m.push(pc + 1, m.without(mask, on))
            m.refresh()
            return -1

        return step

    op_exit = op_ret

    def op_trap(self, i: Instruction) -> Callable:
        pc = i.index

        def step(m: Machine, mask: Mask) -> None:
            who = m.who(int(mask.index[0]))
            raise m.fault(
                "trap",
                f"thread {who['thread']} of block {who['block']} reaches a trap",
                "The kernel stops itself here: see the check before it. A null pointer, too, becomes a trap.",
                pc=pc,
                **who,
            )

        return step

    def op_call(self, i: Instruction) -> Callable:
        name = i.operands[0].name if i.operands else ""
        pc = i.index
        if name == "__assertfail":

            def failed(m: Machine, mask: Mask) -> None:
                who = m.who(int(mask.index[0]))
                raise m.fault(
                    "trap",
                    f"an assertion fails in thread {who['thread']} of block {who['block']}",
                    "The condition of the assert on this line is false.",
                    pc=pc,
                    **who,
                )

            return failed
        mend = "Call a device function by its name, defined in the same source."
        what = f"calls {name}, which the emulator does not have"
        if name.startswith("%"):
            what = "calls a function through a pointer, which the emulator does not do"
        if name == "vprintf":
            what = "calls printf, which the emulator does not have"
            mend = "Write the value to an array instead."

        def step(m: Machine, mask: Mask) -> None:
            raise m.fault("unsupported", f"the kernel {what}", mend, pc=pc)

        return step

    def nothing(self, i: Instruction) -> Callable:
        return lambda m, mask: None

    op_nanosleep = op_prefetch = op_prefetchu = op_discard = nothing
    op_pmevent = op_applypriority = op_griddepcontrol = nothing

    def op_fence(self, i: Instruction) -> Callable:
        if "cta" in i.mods:
            return self.nothing(i)

        def step(m: Machine, mask: Mask) -> None:
            if m.globals is not None:
                m.globals.fence(mask)

        return step

    op_membar = op_fence

    # ---- barriers

    def op_bar(self, i: Instruction) -> Callable:
        pc = i.index
        mods = set(i.mods) - {"aligned", "cta"}
        if "cluster" in mods:
            return tensor.hopper(self, i)
        if "warp" in mods:
            members = self.source(i.operands[0], "b32")
            return lambda m, mask: m.held.sync_warp(pc, mask, members)
        red = "red" in mods
        operands = list(i.operands[1:] if red else i.operands)
        if red:
            value = operands.pop()
            predicate = self.negated(value) if isinstance(value, Not) else (
                self.source(value, "pred"))  # fmt: skip
            how = next((h for h in ("popc", "and", "or") if h in mods), None)
            if how is None:
                raise Unsupported(i.text)
            kind = "u32" if how == "popc" else "pred"
            target = self.destination(i.operands[0], kind)
        elif not mods & {"sync", "arrive"}:
            raise Unsupported(i.text)
        reads = [self.source(o, "u32") for o in operands]

        def step(m: Machine, mask: Mask) -> int | None:
            numbers = []
            for slot, get in reads:
                value = m.R[slot] if get is None else get(m.R[slot])
                if isinstance(value, np.ndarray):
                    lanes = value[mask.index]
                    if (lanes != lanes[0]).any():
                        return m.split(pc, mask, value)
                    value = lanes[0]
                numbers.append(int(value))
            number = numbers[0] if numbers else 0
            count = numbers[1] if len(numbers) > 1 else None
            if "arrive" in mods:
                m.arrive(mask, number, count)
                return None
            if red:
                m.reduce_block(pc, mask, predicate, how, target)
            return m.barrier(pc, mask, number, count)

        return step

    op_barrier = op_bar

    # ---- warps

    def op_shfl(self, i: Instruction) -> Callable:
        mode = next((k for k in ("up", "down", "bfly", "idx") if k in i.mods), None)
        if mode is None or "sync" not in i.mods or len(i.operands) != 5:
            raise Unsupported(i.text)
        target = i.operands[0]
        targets = (target.first, target.second) if isinstance(target, Pair) else (target, Sink())
        reads = [self.source(i.operands[1], "b32"), *(self.source(o, "u32")
                                                      for o in i.operands[2:4])]  # fmt: skip
        writes = [self.destination(targets[0], "b32"), self.destination(targets[1], "pred")]
        members = self.source(i.operands[4], "b32")
        pc = i.index

        def step(m: Machine, mask: Mask) -> None:
            n = m.chunk.lanes
            a, b, c = (
                np.broadcast_to(m.R[s] if g is None else g(m.R[s]), (n,)).reshape(-1, 32)
                for s, g in reads
            )
            lane = np.arange(32, dtype=s64)
            by, clamp = b.astype(s64) & 31, c.astype(s64) & 31
            segment = (c.astype(s64) >> 8) & 31
            last = (lane & segment) | (clamp & ~segment)
            if mode == "up":
                j = lane - by
                inside = j >= last
            else:
                j = {
                    "down": lane + by,
                    "bfly": lane ^ by,
                    "idx": (lane & segment) | (by & ~segment),
                }[mode]
                inside = j <= last
            j = np.where(inside, j, lane) & 31
            if m.sanitize and mask.lanes is not None:
                m.held.sources(pc, mask, mode, j)
            values = np.take_along_axis(a, j, axis=1).ravel()
            for write, value in zip(writes, (values, inside), strict=True):
                if write is not None:
                    slot, put = write
                    value = np.broadcast_to(value, (n // 32, 32)).ravel() if value.ndim == 2 else (
                        value)  # fmt: skip
                    m.set(slot, value if put is None else put(value), mask)

        return meeting(pc, members, step)

    def op_vote(self, i: Instruction) -> Callable:
        how = next((k for k in ("all", "any", "uni", "ballot") if k in i.mods), None)
        if how is None or "sync" not in i.mods:
            raise Unsupported(i.text)
        value = i.operands[1]
        slot, get = self.negated(value) if isinstance(value, Not) else self.source(value, "pred")
        members = self.source(i.operands[2], "b32")
        kind = "b32" if how == "ballot" else "pred"
        target = self.destination(i.operands[0], kind)

        def step(m: Machine, mask: Mask) -> None:
            p = m.R[slot] if get is None else get(m.R[slot])
            inside = m.members(mask, members)
            yes = _ballot(np.broadcast_to(p, inside.shape) & inside)
            everyone = _ballot(inside)
            if how == "ballot":
                result = yes
            elif how == "any":
                result = yes != 0
            elif how == "all":
                result = yes == everyone
            else:
                result = (yes == everyone) | (yes == 0)
            m.put(target, np.repeat(result, 32), mask)

        return meeting(i.index, members, step)

    def op_activemask(self, i: Instruction) -> Callable:
        target = self.destination(i.operands[0], "b32")
        return lambda m, mask: m.put(target, np.repeat(_ballot(mask.where), 32), mask)

    def op_match(self, i: Instruction) -> Callable:
        how = next((k for k in ("any", "all") if k in i.mods), None)
        if how is None:
            raise Unsupported(i.text)
        kind = i.types[-1]
        target = i.operands[0]
        targets = (target.first, target.second) if isinstance(target, Pair) else (target, Sink())
        writes = [self.destination(targets[0], "b32"), self.destination(targets[1], "pred")]
        slot, get = self.source(i.operands[1], kind)
        members = self.source(i.operands[2], "b32")

        def step(m: Machine, mask: Mask) -> None:
            a = m.R[slot] if get is None else get(m.R[slot])
            inside = m.members(mask, members)
            a = np.broadcast_to(a, inside.shape).reshape(-1, 32)
            equal = (a[:, :, None] == a[:, None, :]) & inside.reshape(-1, 1, 32)
            same = _ballot(equal.ravel())
            if how == "all":
                whole = same == np.repeat(_ballot(inside), 32)
                same = np.where(whole, same, u32(0))
                m.put(writes[1], whole, mask)
            m.put(writes[0], same, mask)

        return meeting(i.index, members, step)

    def op_redux(self, i: Instruction) -> Callable:
        ufunc = next((_REDUCE[k] for k in i.mods if k in _REDUCE), None)
        kind = i.type
        if ufunc is None or kind not in ops.INTS:
            raise Unsupported(i.text)
        target = self.destination(i.operands[0], kind)
        slot, get = self.source(i.operands[1], kind)
        members = self.source(i.operands[2], "b32")

        def step(m: Machine, mask: Mask) -> None:
            a = m.R[slot] if get is None else get(m.R[slot])
            inside = m.members(mask, members).reshape(-1, 32)
            a = np.broadcast_to(a, (inside.size,)).reshape(-1, 32)
            first = a[np.arange(len(a)), inside.argmax(axis=1)]
            if ufunc in (np.add, np.bitwise_xor):
                a = np.where(inside, a, a.dtype.type(0))
            else:
                a = np.where(inside, a, first[:, None])
            m.put(target, np.repeat(ufunc.reduce(a, axis=1, dtype=a.dtype), 32), mask)

        return meeting(i.index, members, step)

    def op_elect(self, i: Instruction) -> Callable:
        target = i.operands[0]
        targets = (target.first, target.second) if isinstance(target, Pair) else (target, Sink())
        writes = [self.destination(targets[0], "b32"), self.destination(targets[1], "pred")]
        members = self.source(i.operands[1], "b32")

        def step(m: Machine, mask: Mask) -> None:
            inside = m.members(mask, members).reshape(-1, 32)
            leader = np.repeat(inside.argmax(axis=1), 32)
            m.put(writes[0], leader.astype(u32), mask)
            m.put(writes[1], leader == np.arange(inside.size) % 32, mask)

        return step

    # ---- memory

    def access(self, i: Instruction, kind: str, operand: object, count: int) -> tuple:
        if not isinstance(operand, Addr) or not i.types:
            raise Unsupported(i.text)
        unknown = {
            w for w in i.mods
            if w.split("::")[0] not in _MEMORY_WORDS and w not in ("v2", "v4", "v8")
        }  # fmt: skip
        if unknown and kind in ("ld", "st"):
            raise Unsupported(i.text)
        slot, _ = self.source(operand.base, "u64")
        return Access(i, _space(i), kind, count), slot, operand.offset

    def op_ld(self, i: Instruction) -> Callable:
        target = i.operands[0]
        targets = target.items if isinstance(target, Vec) else (target,)
        access, slot, offset = self.access(i, "ld", i.operands[1], len(targets))
        writes = [self.destination(t, i.type) for t in targets]
        pc, one = i.index, len(writes) == 1 and writes[0] is not None
        quiet = access.space == "param"

        def step(m: Machine, mask: Mask) -> None:
            place = m.place(access, m.address(pc, slot, offset), mask)
            if m.sanitize and not quiet:
                if place.space == "shared":
                    m.watch_read(access, place)
                elif place.space == "global" and place.watched != ():
                    m.globals.read(access, place)
                elif place.space == "local":
                    m.local_watch.read(access, place)
            if m.watch and not quiet:
                m.report(access, place, mask)
            view, index = place.view, place.index
            if view is None:
                for k, write in enumerate(writes):
                    m.put(write, m.gather(access, place, k), mask)
                return
            take = view.take if isinstance(index, np.ndarray) else view.__getitem__
            if one:
                wslot, put = writes[0]
                value = take(index)
                if put is not None:
                    value = put(value)
                if m.needed >> wslot & 1 and mask.lanes is not None:
                    value = np.where(mask.lanes, value, m.R[wslot])
                m.R[wslot] = value
                return
            values = [take(index + k) for k in range(access.count)]
            for write, value in zip(writes, values, strict=True):
                m.put(write, value, mask)

        return step

    op_ldu = op_ld

    def op_st(self, i: Instruction) -> Callable:
        value = i.operands[1]
        items = value.items if isinstance(value, Vec) else (value,)
        access, slot, offset = self.access(i, "st", i.operands[0], len(items))
        reads = [self.source(v, i.type) for v in items]
        pc = i.index
        fences = "release" in i.mods

        def step(m: Machine, mask: Mask) -> None:
            place = m.place(access, m.address(pc, slot, offset), mask)
            if m.watch:
                m.report(access, place, mask)
            values = []
            for s, get in reads:
                v = m.R[s] if get is None else get(m.R[s])
                if mask.lanes is not None and isinstance(v, np.ndarray):
                    v = v[mask.index]
                values.append(v)
            if m.sanitize and place.space == "global":
                if fences:
                    m.globals.fence(mask)
                m.globals.write(access, place, values)
            elif m.sanitize and place.space == "local":
                m.local_watch.write(access, place)
            if place.view is None:
                m.scatter(place, values)
                return
            index = place.active
            one_place = not isinstance(index, np.ndarray)
            if m.shadow is not None and place.space == "shared":
                old = [place.view[index + k] for k in range(access.count)]
                m.watch_write(access, place, old, values, atomic=access.volatile)
            for k, v in enumerate(values):
                if one_place and isinstance(v, np.ndarray):
                    v = v[-1]
                place.view[index + k] = v

        return step

    def op_cp(self, i: Instruction) -> Callable:
        words = set(i.mods)
        if "bulk" in words:
            return tensor.hopper(self, i)
        if words == {"async", "commit_group"}:
            return lambda m, mask: m.copies.commit(mask)
        if words == {"async", "wait_all"}:
            return lambda m, mask: m.land(mask, None)
        if words == {"async", "wait_group"}:
            newest = int(i.operands[0].value)
            return lambda m, mask: m.land(mask, newest)
        hints = {w for w in words if w.startswith("L2::")}
        operands = i.operands[:-1] if "L2::cache_hint" in hints else i.operands
        if words - hints - {"shared::cta"} not in (
            {"async", how, *spaces} for how in ("ca", "cg") for spaces in (("shared", "global"), ("global",))
        ) or not isinstance(operands[2], Imm):
            raise Unsupported(i.text)
        size = int(operands[2].value)
        if size not in (4, 8, 16):
            raise Unsupported(i.text)
        # The hardware checks both addresses for the whole size, and moves 4-byte words here.
        typed = replace(i, types=("b32",))
        dest, source = (Access(typed, k, v, size // WORD) for k, v in (("shared", "st"), ("global", "ld")))
        dslot, _ = self.source(operands[0].base, "u64")
        sslot, _ = self.source(operands[1].base, "u64")
        doffset, soffset = operands[0].offset, operands[1].offset
        part = operands[3] if len(operands) > 3 else None
        ignore = isinstance(part, Reg) and part.type == "pred"
        read_part = None if part is None else self.source(part, "pred" if ignore else "u32")
        word = Access(typed, "global", "ld", 1)

        def step(m: Machine, mask: Mask) -> None:
            to = m.place(dest, m.address_of_base(dslot, doffset), mask)
            if m.shadow is not None:
                m.watch_copy(dest, to)
            at = m.address_of_base(sslot, soffset)
            sizes = np.full(m.chunk.lanes, size)
            if read_part is not None:
                slot, get = read_part
                value = m.R[slot] if get is None else get(m.R[slot])
                sizes = np.broadcast_to(np.where(value, 0, size) if ignore else value, (m.chunk.lanes,))
            reading = m.narrow(mask, sizes > 0)
            got = [np.zeros(m.chunk.lanes, np.uint32)] * dest.count
            if reading.threads:
                whole = m.narrow(reading, sizes >= size) is reading  # of each lane that copies at all
                if whole:
                    place = m.place(source, at, reading)
                for k in range(dest.count):
                    some = reading if whole else m.narrow(reading, sizes > WORD * k)
                    if not some.threads:
                        continue
                    if not whole:
                        place = m.place(word, at + s64(WORD * k), some)
                    j = k if whole else 0
                    if m.sanitize and k == j:
                        m.globals.read(source if whole else word, place)
                    one = m.gather(word, place, j) if place.view is None else place.view[place.index + j]
                    got[k] = np.where(some.where, one, u32(0)) & full_words(size, sizes, k)
                if m.watch:
                    parts = None if whole else sizes
                    m.report(source, Place(at, reading, "global", None, None), reading, to.address, parts)
            m.copies.issue(dest, to, [np.broadcast_to(w, (m.chunk.lanes,))[mask.index] for w in got])

        return step

    def op_atom(self, i: Instruction) -> Callable:
        how = next((k for k in i.mods if k in _ATOMIC), None)
        operands = list(i.operands)
        target: object = Sink() if i.op == "red" else operands.pop(0)
        known = _MEMORY_WORDS | _ATOMIC | {"acq_rel", "noftz", "v2", "v4", "v8"}
        if how is None or {w.split("::")[0] for w in i.mods} - known:
            raise Unsupported(i.text)
        kind = i.type
        if kind == "b128":
            raise Unsupported(i.text)
        combine: str | Callable = how
        if how in ("and", "or", "xor", "exch", "cas"):
            kind = f"b{8 * SIZES[kind]}"
        elif kind in ops.HALVES:
            combine = ops.lookup(how, (), (kind,)).fn
        targets = target.items if isinstance(target, Vec) else (target,)
        used = result_used(self.code, self.instructions, i)
        # There is no reduction that exchanges: ptxas keeps those atoms whether their result is used or not.
        red = not used and how not in ("exch", "cas")
        values = [o.items if isinstance(o, Vec) else (o,) for o in operands[1:]]
        if len(values) != (2 if how == "cas" else 1):
            raise Unsupported(i.text)
        count = len(values[0])
        access, slot, offset = self.access(i, "red" if red else "atom", operands[0], count)
        access.dtype = DTYPES[kind]
        # For each element of a vector, its operands.
        reads = [[self.source(v, kind) for v in element] for element in zip(*values, strict=True)]
        writes = [self.destination(t, kind) for t in targets] if used else []
        pc = i.index
        fences = bool({"release", "acq_rel"} & set(i.mods))

        def step(m: Machine, mask: Mask) -> None:
            place = m.place(access, m.address(pc, slot, offset), mask)
            if m.watch:
                m.report(access, place, mask)
            if m.shadow is not None and place.space == "shared":
                m.watch_written(access, place)
                m.watch_write(access, place, None, [], atomic=True)
            if m.sanitize and place.space == "global":
                if fences:
                    m.globals.fence(mask)
                m.globals.write(access, place, None)
            for k, element in enumerate(reads):
                args = []
                for s, get in element:
                    v = m.R[s] if get is None else get(m.R[s])
                    if mask.lanes is not None and isinstance(v, np.ndarray):
                        v = v[mask.index]
                    args.append(np.broadcast_to(v, (mask.threads,)))
                if place.view is None:
                    old = m.scattered_atomic(combine, place.moved(k), args, used)
                else:
                    index = np.broadcast_to(place.active, (mask.threads,)) + k
                    old = atomic(combine, place.view, index, args, want=used)
                if used:
                    full = np.zeros(m.chunk.lanes, access.dtype)
                    full[mask.index] = old
                    m.put(writes[k], full, mask)

        return step

    op_red = op_atom

    # ---- tensor cores, and what only Hopper has

    op_mma, op_wmma = tensor.mma, tensor.wmma
    op_ldmatrix, op_stmatrix, op_movmatrix = tensor.ldmatrix, tensor.stmatrix, tensor.movmatrix
    op_wgmma = op_mbarrier = op_mapa = op_getctarank = op_setmaxnreg = op_multimem = tensor.hopper


_SPECIALS = (
    {f"{n}.{a}" for n in ("tid", "ntid", "ctaid", "nctaid") for a in "xyz"}
    | {f"{n}.{a}" for n in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
       for a in "xyz"}
    | {f"lanemask_{k}" for k in ("eq", "lt", "le", "gt", "ge")}
    | {"laneid", "warpid", "nwarpid", "smid", "nsmid", "gridid", "dynamic_smem_size",
       "total_smem_size", "is_explicit_cluster", "cluster_ctarank", "cluster_nctarank",
       "clock_hi"}
)  # fmt: skip
_CLOCKS = {"%clock", "%clock64", "%globaltimer", "%globaltimer_lo"}
_SPACE_WINDOWS = {
    "global": 0, "const": 0, "shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW
}  # fmt: skip
_MEMORY_WORDS = {
    "global", "shared", "local", "const", "param", "generic", "nc", "ca", "cg", "cs", "cv", "lu",
    "wb", "wt", "volatile", "relaxed", "acquire", "release", "weak", "cta", "cluster", "gpu", "sys",
    "mmio", "L1", "L2",
}  # fmt: skip
_REDUCE = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
_ATOMIC = {*_REDUCE, "inc", "dec", "exch", "cas"}


def _space(i: Instruction) -> str:
    for word in i.mods:
        word = word.split("::")[0]
        if word in ("global", "shared", "local", "const", "param"):
            return word
    return "generic"


def _ballot(bits: np.ndarray) -> np.ndarray:
    """One uint32 per warp of 32 bools."""
    return np.packbits(bits.reshape(-1, 32), axis=1, bitorder="little").view(u32).ravel()


def atomic(
    how: str | Callable, view: np.ndarray, index: np.ndarray, args: list[np.ndarray], *, want: bool
) -> np.ndarray | None:
    """Update elements one thread after the other, in lane order; gives the values before.

    `how` is PTX's name of the operation, or for half-precision numbers (as bits) the operation itself.
    """
    value = args[0]
    ufunc = _REDUCE.get(how)
    if ufunc is not None and not want:
        ufunc.at(view, index, value)
        return None
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    ends = np.r_[starts[1:], len(ordered)]
    old = np.empty(len(index), view.dtype)
    longest = int((ends - starts).max())
    if ufunc is not None and longest > 16:
        for start, end in zip(starts, ends, strict=True):
            lanes = order[start:end]
            place = ordered[start]
            chain = np.empty(end - start + 1, view.dtype)
            chain[0] = view[place]
            chain[1:] = value[lanes]
            chain = ufunc.accumulate(chain, dtype=view.dtype)
            old[lanes] = chain[:-1]
            view[place] = chain[-1]
        return old
    for turn in range(longest):
        lanes = order[(starts + turn)[starts + turn < ends]]
        place = index[lanes]
        before = view[place]
        new = value[lanes]
        if ufunc is not None:
            new = ufunc(before, new)
        elif callable(how):
            new = how(before, new)
        elif how == "inc":
            new = pick(before >= new, view.dtype.type(0), before + view.dtype.type(1))
        elif how == "dec":
            new = pick((before == 0) | (before > new), new, before - view.dtype.type(1))
        elif how == "cas":
            new = pick(before == new, args[1][lanes], before)
        view[place] = new
        old[lanes] = before
    return old


def _immediate(operand: Imm, want: np.dtype) -> np.generic:
    """A literal as a value of a type."""
    if want.kind == "b":
        return np.bool_(operand.value)
    if operand.bits is not None:
        if operand.width == want.itemsize * 8:
            bits = np.array(operand.bits, f"u{want.itemsize}")
            return bits.view(want)[()]
        if want.kind == "f":
            return want.type(operand.value)
        raise Unsupported("literal")
    if want.kind == "f":
        return want.type(operand.value)
    bits = int(operand.value) % (1 << (8 * want.itemsize))
    return np.array(bits, f"u{want.itemsize}").view(want)[()]


def _reader(have: np.dtype, want: np.dtype) -> Callable | None:
    """What turns a register's value into an operand of a type."""
    if have == want:
        return None
    if "b" in (have.kind, want.kind):
        raise Unsupported("predicate")
    if have.itemsize == want.itemsize:
        return lambda x: x.view(want)
    bits = np.dtype(f"u{want.itemsize}")
    whole = np.dtype(f"u{have.itemsize}")
    return lambda x: x.view(whole).astype(bits).view(want)


def _writer(have: np.dtype, want: np.dtype) -> Callable | None:
    """What turns a result into a register's container, extended by the result's own sign."""
    if have == want:
        return None
    if "b" in (have.kind, want.kind):
        raise Unsupported("predicate")
    if have.itemsize == want.itemsize:
        return lambda x: x.view(want)
    if have.kind == "f" or want.kind == "f":
        if have.itemsize > want.itemsize:
            raise Unsupported("destination")
    wide = np.dtype(f"{'i' if have.kind == 'i' else 'u'}{want.itemsize}")
    bits = have if have.kind in "iu" else np.dtype(f"u{have.itemsize}")
    return lambda x: x.view(bits).astype(wide).view(want)


def _unary(fn: Callable, a: int, ra: Callable | None, slot: int, put: Callable | None) -> Callable:
    def step(m: Machine, mask: Mask) -> None:
        x = m.R[a]
        value = fn(x if ra is None else ra(x))
        if put is not None:
            value = put(value)
        if m.needed >> slot & 1 and mask.lanes is not None:
            value = np.where(mask.lanes, value, m.R[slot])
        m.R[slot] = value

    return step


def _binary(
    fn: Callable,
    a: int,
    ra: Callable | None,
    b: int,
    rb: Callable | None,
    slot: int,
    put: Callable | None,
) -> Callable:
    def step(m: Machine, mask: Mask) -> None:
        x, y = m.R[a], m.R[b]
        if ra is not None:
            x = ra(x)
        if rb is not None:
            y = rb(y)
        value = fn(x, y)
        if put is not None:
            value = put(value)
        if m.needed >> slot & 1 and mask.lanes is not None:
            value = np.where(mask.lanes, value, m.R[slot])
        m.R[slot] = value

    return step
