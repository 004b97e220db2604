"""Compiled regions in the interpreter's place, with the interpreter's counts.

What a region finds amiss it leaves alone: the interpreter then goes through the same instructions and says what it is.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from labkit.emulator.compiler import Place, blocks
from labkit.emulator.jit import build
from labkit.emulator.jit.lower import LANES, bits_of
from labkit.emulator.jit.regions import (
    BUFFERS,
    ENTRY,
    FIXED,
    GRANULE,
    GROUP,
    GROUPS,
    LIBRARY,
    MASKS,
    PARAM_BYTES,
    PARAMS,
    PATTERNS,
    ROW,
    ROW_COUNT,
    ROWS,
    SHARED,
    SHARED_BYTES,
    SHARED_STRIDE,
    STEP,
    UNKNOWN,
    WARPS,
    WARPS_PER_BLOCK,
    WRITTEN,
    Code,
    Region,
    find,
    generate,
)
from labkit.emulator.memory import WINDOW_BITS
from labkit.emulator.ops import DTYPES

if TYPE_CHECKING:
    from labkit.emulator.engine import Machine, Mask

WORTH = 300_000  # threads for which the interpreter runs a region before it is compiled
KEPT = 50_000  # the same before machine code is taken from the disk
TURN = 5_000  # threads in the time that an instruction takes the interpreter for a single one
PATIENCE = 8  # calls in a row that a region may leave to the interpreter before it is given up
ALL = np.uint32(0xFFFFFFFF)
FAR = 1 << 40  # keeps addresses that are only good for their differences above zero


class Jit:
    """The compiled regions of one launch. `eager` compiles each at its first turn."""

    def __init__(self, machine: Machine, *, eager: bool) -> None:
        program = machine.program
        code = program.steps
        if not hasattr(code, "regions"):
            code.blocks = blocks(program.instructions)
            code.regions = {}  # by block, of those that have been reached
            code.functions = {}
            code.spent = {}  # by region: what all launches so far have spent on it
        self.machine = machine
        self.spent = code.spent
        self.worth, self.kept = (0, 0) if eager else (WORTH, KEPT)
        self.marks: dict[tuple, dict[int, np.ndarray]] = {}
        self.words: dict[int, tuple[Mask, np.ndarray, bool]] = {}
        self.runners: list[Runner] = []
        self.at: list[Runner | Block | None] = [None] * (len(code.steps) + 1)
        for block in code.blocks.items():
            self.at[block[0]] = Block(self, block)

    def reach(self, block: tuple[int, int]) -> None:
        """Put the regions of a block in their places."""
        program = self.machine.program
        regions = program.steps.regions
        if block not in regions:
            regions[block] = find(program, block)
        self.at[block[0]] = None
        for runner in [Runner(self, region) for region in regions[block]]:
            self.runners.append(runner)
            # Of two regions that begin alike, the longer one is tried first.
            runner.shorter, self.at[runner.start] = self.at[runner.start], runner

    def start(self) -> None:
        """A chunk of blocks begins."""
        self.words.clear()

    def drop(self, runner: Runner) -> None:
        """Leave a region to the interpreter from now on."""
        other = self.at[runner.start]
        if other is runner:
            self.at[runner.start] = runner.shorter
        elif other is not None:
            other.shorter = None

    def mask_words(self, mask: Mask) -> tuple[np.ndarray, bool]:
        """The active lanes of each warp as bits, and whether the warps have all or none of them."""
        found = self.words.get(id(mask))
        if found is None:
            bits = np.packbits(mask.where.reshape(-1, LANES), axis=1, bitorder="little").view(np.uint32).ravel()
            whole = mask.threads == LANES * mask.warps
            found = self.words[id(mask)] = (mask, np.ascontiguousarray(bits), whole)
        return found[1], found[2]

    def flags(self, key: tuple, number: int) -> np.ndarray:
        """One byte per element of a buffer's window that code of a source line may read."""
        found = self.marks.setdefault(key, {})
        if number not in found:
            buffer = self.machine.memory.buffers[number]
            length = (buffer.base & ((1 << WINDOW_BITS) - 1)) + len(buffer.data)
            found[number] = np.zeros(length // key[2] + 1, np.uint8)
        return found[number]

    def finish(self) -> None:
        """Hand the counts of all regions to the counters."""
        counters = self.machine.counters
        if counters is None:
            return
        for runner in self.runners:
            runner.finish(counters)
        for (file, line, width), found in self.marks.items():
            for number, flags in found.items():
                places = np.flatnonzero(flags)
                if len(places):
                    counters.marked((file, line), "ld", number, places * width, width)

    @property
    def thread_instructions(self) -> int:
        """Instructions, times the threads that they were run for, as compiled code."""
        return sum(runner.threads * runner.count for runner in self.runners)

    @property
    def compiled(self) -> int:
        """How many regions have run as compiled code."""
        return sum(runner.threads > 0 for runner in self.runners)


class Block:
    """A block in the place of its regions: they are looked for when it is first reached.

    It runs nothing itself: it counts no instruction, and the interpreter goes on where it stands.
    """

    count = 0
    shorter: Runner | None = None

    def __init__(self, jit: Jit, block: tuple[int, int]) -> None:
        self.jit, self.block = jit, block

    def run(self, mask: Mask) -> bool:
        self.jit.reach(self.block)
        self.shorter = self.jit.at[self.block[0]]
        return False


class Variant:
    """One compiled function of a region, and its arguments for this launch."""

    def __init__(self, runner: Runner, code: Code, call: object) -> None:
        self.code = code
        self.call = call
        jit = runner.jit
        m = jit.machine
        region = runner.region
        groups = len(code.groups)
        self.tables_at = FIXED + len(region.ins)
        self.marks_at = self.tables_at + groups
        self.outs_at = self.marks_at + len(code.loads)
        self.exports_at = self.outs_at + len(code.outs)
        self.scalars_at = self.exports_at + len(code.exports)
        self.args = np.zeros(self.scalars_at + code.scalars + 1, np.int64)
        self.address = self.args.ctypes.data
        self.views = {
            np.dtype(d): self.args.view(d) for d in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8", "?")
        }
        self.patterns = np.zeros(max(groups, 1) * GROUP, np.int64)
        self.args[STEP] = 1
        self.args[GROUPS] = self.patterns.ctypes.data
        self.args[PARAMS] = m.params.ctypes.data
        self.args[PARAM_BYTES] = m.program.param_size
        self.args[SHARED_BYTES] = m.shared_bytes
        self.args[SHARED_STRIDE] = m.shared_stride
        self.vector_groups = sorted({load.group for load in code.loads if load.scalar is None})
        self.rows = None
        self.known = -1
        types = m.program.registers
        self.out_types = [(slot, DTYPES[types[slot].type], vector) for slot, vector in code.outs]

    def prepare(self, runner: Runner, warps: int) -> None:
        """Point to the memory of this chunk."""
        m = runner.jit.machine
        if self.rows is None or len(self.rows) < len(self.vector_groups) * warps * ROW:
            self.rows = np.empty(max(len(self.vector_groups) * warps * ROW, 1), np.int64)
            self.args[ROWS] = self.rows.ctypes.data
        self.args[WARPS] = warps
        self.args[WARPS_PER_BLOCK] = m.chunk.warps_per_block
        if m.shared is not None:
            self.args[SHARED] = m.shared.ctypes.data
            if m.shadow is not None:
                self.args[WRITTEN] = m.shadow.written.ctypes.data

    def tables(self, runner: Runner) -> None:
        """Which buffers each group of accesses may read, and where they are."""
        jit = runner.jit
        m = jit.machine
        buffers = m.memory.buffers
        self.known = len(buffers)
        self.args[BUFFERS] = len(buffers)
        self.kept = []
        for g, space in enumerate(self.code.groups):
            if space not in ("global", "const"):
                continue
            table = np.zeros((len(buffers), 3), np.int64)
            pcs = [load.access.pc for load in self.code.loads if load.group == g]
            for number, buffer in enumerate(buffers):
                if _free(m, pcs, number):
                    table[number] = buffer.base, buffer.base + len(buffer.data), buffer.data.ctypes.data
                else:
                    table[number] = 1 << 62, 0, 0
            self.kept.append(table)
            self.args[self.tables_at + g] = table.ctypes.data
        for n, load in enumerate(self.code.loads):
            if m.counters is None or load.access.space != "global" or load.scalar is not None:
                continue
            i = load.access.instruction
            key = (i.file, i.line, load.access.width)
            pointers = np.array([jit.flags(key, k).ctypes.data for k in range(len(buffers))], np.int64)
            self.kept.append(pointers)
            self.args[self.marks_at + n] = pointers.ctypes.data


class Runner:
    """A region in one launch."""

    def __init__(self, jit: Jit, region: Region) -> None:
        self.jit = jit
        self.region = region
        self.start, self.end, self.count = region.start, region.end, region.count
        self.place = region.start, region.end
        self.slots = [slot for slot, _ in region.ins]
        self.sizes = [max(bits_of(kind) // 8, 1) for _, kind in region.ins]
        self.variants: dict[tuple[bool, ...], Variant] = {}
        self.tried: set[tuple] = set()
        self.chunk = None
        self.shorter: Runner | None = None
        self.bails = 0
        self.warps = self.threads = 0
        instructions = jit.machine.program.instructions
        self.pcs = [i.index for i in instructions[region.start : region.end] if i.op == "ld"]

    def run(self, mask: Mask) -> bool:
        """Run the region for the lanes of the mask; False leaves it to the interpreter."""
        jit = self.jit
        m = jit.machine
        words, whole = jit.mask_words(mask)
        if self.region.warp and not whole:
            return False
        spent = jit.spent.get(self.place, 0)
        fresh = spent >= jit.worth
        if not fresh:
            spent = jit.spent[self.place] = spent + int((m.chunk.lanes + TURN) * self.region.cost)
            if spent < jit.kept:
                return False
        shadow = m.shadow if self.region.shared else None
        if shadow is not None and shadow.last_write >= shadow.oldest:
            return False
        if m.trace is not None and self.pcs and m.trace.wants(self.pcs, mask, m.chunk):
            return False
        R = m.R
        values = [R[slot] for slot in self.slots]
        kind = tuple([type(v) is np.ndarray for v in values])
        variant = self.variants.get(kind)
        if variant is None:
            if (kind, fresh) in self.tried:
                return False
            self.tried.add((kind, fresh))
            variant = self.compile(kind, fresh)
            if variant is None:
                return False
            self.variants[kind] = variant
        for slot in variant.code.members:
            if R[slot] != ALL:
                return False
        args, views = variant.args, variant.views
        if self.chunk is not m.chunk or variant.known != len(m.memory.buffers):
            self.chunk = m.chunk
            for other in self.variants.values():
                other.prepare(self, m.chunk.lanes // LANES)
                other.tables(self)
        args[MASKS] = words.__array_interface__["data"][0]
        args[ROW_COUNT] = 0
        if shadow is not None:
            args[GRANULE] = 0 if shadow.all_written else shadow.granule
        at = FIXED
        for v, vector, size in zip(values, kind, self.sizes, strict=True):
            if vector:
                if v.dtype.itemsize != size or not v.flags.c_contiguous:
                    return False
                args[at] = v.__array_interface__["data"][0]
            else:
                view = views[v.dtype]
                view[at * (8 // view.itemsize)] = v
            at += 1
        make = np.empty if mask.warps == len(words) else np.zeros
        at, outs = variant.outs_at, []
        for _, dtype, vector in variant.out_types:
            if vector:
                out = make(m.chunk.lanes, dtype)
                args[at] = out.__array_interface__["data"][0]
                outs.append(out)
            else:
                outs.append(None)
            at += 1
        bases = []
        for _ in variant.code.exports:
            base = make(m.chunk.lanes, np.int64)
            args[at] = base.__array_interface__["data"][0]
            bases.append(base)
            at += 1
        if not variant.call(variant.address):
            self.undo(variant)
            return False
        self.bails = 0
        at = variant.outs_at
        partial = mask.lanes is not None
        for (slot, dtype, vector), out in zip(variant.out_types, outs, strict=True):
            if not vector:
                view = views[dtype]
                out = view[at * (8 // view.itemsize)]
            if partial and m.needed >> slot & 1:
                out = np.where(mask.lanes, out, R[slot])
            R[slot] = out
            at += 1
        self.warps += mask.warps
        self.threads += mask.threads
        if m.watch:
            self.report(variant, mask)
        if shadow is not None:
            self.log(variant, mask, values, bases)
        return True

    def compile(self, kind: tuple[bool, ...], fresh: bool) -> Variant | None:
        """The region for inputs of these kinds; unless `fresh`, only if its machine code is kept on disk."""
        m = self.jit.machine
        if not any(kind) and not self.pcs:
            return None  # numbers are done faster than a call
        functions = m.program.steps.functions
        key = (self.place, kind, m.counters is not None)
        if key not in functions:
            try:
                code = generate(m.program, self.region, kind, m.counters is not None)
            except UNKNOWN:
                functions[key] = None
                return None
            build.library(LIBRARY)
            call = build.function(code.text, fresh=fresh)
            if call is None:
                return None
            functions[key] = code, call
        if functions[key] is None:
            return None
        variant = Variant(self, *functions[key])
        variant.prepare(self, m.chunk.lanes // LANES)
        variant.tables(self)
        return variant

    def undo(self, variant: Variant) -> None:
        """Take back the counts of a run that was given up, and look again at what may be read."""
        args = variant.args
        args[STEP] = -1
        variant.call(variant.address)
        args[STEP] = 1
        self.bails += 1
        if self.bails > PATIENCE:
            self.jit.drop(self)
        variant.tables(self)

    def report(self, variant: Variant, mask: Mask) -> None:
        """Accesses that all lanes share, and those that fit no pattern."""
        m = self.jit.machine
        for load in variant.code.loads:
            if load.scalar is not None and load.access.space != "param":
                address = variant.args[variant.scalars_at + load.scalar]
                m.report(load.access, Place(address, mask, load.access.space, None, None), mask)
        count = int(variant.args[ROW_COUNT])
        if count and m.counters is not None:
            rows = variant.rows[: count * ROW].reshape(-1, ROW)
            for load in variant.code.loads:
                mine = rows[rows[:, 0] == load.group] if load.scalar is None else ()
                if len(mine):
                    address = mine[:, 2:3] + mine[:, 4:] + load.offset
                    m.counters.rows(
                        load.access.instruction, load.access.space, "ld", address, _lanes(mine[:, 1]),
                        load.access.width,
                    )  # fmt: skip

    def log(self, variant: Variant, mask: Mask, values: list, bases: list) -> None:
        """Enter the shared reads in the shadow's log."""
        m = self.jit.machine
        exported = dict(zip(variant.code.exports, bases, strict=True))
        by_slot = dict(zip(self.slots, values, strict=True))
        shadow = m.shadow
        for load in variant.code.loads:
            if load.access.space != "shared":
                continue
            base = exported.get(load.group)
            if base is None:
                base = by_slot.get(variant.code.bases[load.group])
            key = (id(base), load.access.pc)
            if base is None or key not in shadow.logged:
                shadow.logged.add(key)
                shadow.log.append(Reads(m, load.access, base, load.offset, mask))
        if len(shadow.log) > 1024:
            shadow.flush()

    def finish(self, counters: object) -> None:
        if not self.threads:
            return
        everyone = SimpleNamespace(warps=self.warps, threads=self.threads, bits=None)
        for pc in range(self.start, self.end):
            counters.executed(pc, everyone, everyone)
        for variant in self.variants.values():
            groups = variant.patterns.reshape(-1, GROUP)
            for load in variant.code.loads:
                if load.scalar is not None or load.access.space not in ("global", "shared"):
                    continue
                entries = groups[load.group, 8:].reshape(-1, ENTRY)[:PATTERNS]
                for entry in entries[: groups[load.group, 0]]:
                    turns = entry[72:]
                    for place in np.flatnonzero(turns).tolist():
                        counters.rows(
                            load.access.instruction, load.access.space, "ld",
                            FAR + place + load.offset + entry[None, 8 : 8 + LANES], _lanes(entry[:1]),
                            load.access.width, times=int(turns[place]),
                        )  # fmt: skip


class Reads:
    """A shared load for the shadow's log: (granules, lanes, pc), worked out when the log is entered."""

    def __init__(self, m: Machine, access: object, base: np.ndarray, offset: int, mask: Mask) -> None:
        self.m, self.access, self.base, self.offset, self.mask = m, access, base, offset, mask

    def __iter__(self):
        m, mask, granule = self.m, self.mask, self.m.shadow.granule
        base = np.broadcast_to(self.base, (m.chunk.lanes,))[mask.index].astype(np.int64)
        start = np.broadcast_to(m.shared_base, (m.chunk.lanes,))[mask.index]
        first = (base + self.offset + start) // granule
        lanes = mask.index
        each = self.access.width // granule
        if each > 1:
            first = (first[:, None] + np.arange(each)).ravel()
            lanes = np.repeat(lanes, each)
        return iter((first, lanes, self.access.pc))


def _free(m: Machine, pcs: list[int], number: int) -> bool:
    """Whether these loads may read a buffer with nobody looking on."""
    watch = m.globals
    return watch is None or (all((pc, number) in watch.allowed for pc in pcs) and not watch._matters(number))


def _lanes(masks: np.ndarray) -> np.ndarray:
    """Bool (warps, 32) of mask words."""
    return (masks[:, None] >> np.arange(LANES) & 1).astype(bool)
