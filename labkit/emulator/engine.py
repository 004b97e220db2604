"""The interpreter: PTX on numpy arrays, one array per register over all threads of many blocks.

A chunk of blocks runs at a time, in lock step: always the group of threads whose instruction comes
first (see turns.py), so that groups meet again where their paths do. Registers are never changed in
place: a write makes a new array, and a value that is the same for all threads stays one number.
Threads that wait elsewhere keep their values only in the registers that they still read
(liveness), the rest is written for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from labkit.emulator import collector
from labkit.emulator.compiler import Access, Compiler, Place, atomic
from labkit.emulator.converge import Held
from labkit.emulator.copies import Copies
from labkit.emulator.declared import declared, language, plain_name, spell
from labkit.emulator.faults import KernelFault
from labkit.emulator.global_races import LocalWatch, Watch
from labkit.emulator.jit import Jit, usable
from labkit.emulator.launch import Launch, Pointer
from labkit.emulator.memory import (
    LOCAL_WINDOW,
    PARAM_WINDOW,
    SHARED_WINDOW,
    WINDOW_BITS,
    Memory,
)
from labkit.emulator.ops import DTYPES
from labkit.emulator.ptx import Program, Sym, Variable, parse
from labkit.emulator.races import Conflict, Shadow
from labkit.emulator.sampling import choose, refuse
from labkit.emulator.schedules import Delay, delayed
from labkit.emulator.spread import Spread
from labkit.errors import LabkitError

END = 1 << 60
# Steps after which a group that others wait for gives way, and how long each then runs.
STUCK_STEPS = 100_000
QUANTUM = 2_000
MAX_STATIC_SHARED = 48 << 10  # ptxas refuses more, on every architecture
# Shared and local memory of one chunk, in bytes; the shadow takes some 16 times the shared.
SHARED_LIMIT = 8 << 20
LOCAL_LIMIT = 128 << 20

s64, u32, u64 = np.int64, np.uint32, np.uint64

Modules = dict[tuple[int, str], np.ndarray]  # bytes of a module's variable, by the module's key and the variable's name


class Emulation:
    """A device made of numpy: its memory, and the checks and counters of its launches.

    `max_steps` bounds the instructions of one chunk of blocks; beyond it the launch ends with a
    KernelFault of kind "no_progress". `chunk_threads` is about how many threads run at a time.
    `delay` makes some threads late at one instruction, where the order of threads shall be another. `engine` is
    "interpreter", "compiled" (see `jit/`), or "auto": compiled where that is worth its while. `sample` runs only so
    many blocks of each launch, spread evenly: outputs stay incomplete, and counters are to be `Sampled` ones.
    `modules` keeps what launches leave in the modules' own variables; give it to the next emulation, and its launches
    find that there, as on a GPU.
    """

    def __init__(
        self,
        *,
        sanitize: bool = True,
        counters: object | None = None,
        trace: object | None = None,
        steps: object | None = None,
        max_steps: int = 5_000_000,
        chunk_threads: int = 16_384,
        delay: Delay | None = None,
        engine: str = "auto",
        sample: int | None = None,
        modules: Modules | None = None,
    ) -> None:
        if engine not in ("auto", "interpreter", "compiled"):
            raise LabkitError(f"There is no engine {engine!r}; take auto, interpreter or compiled.")
        if sample is not None and (not isinstance(sample, int) or isinstance(sample, bool) or sample < 1):
            raise LabkitError(f"sample is {sample!r}; give the number of blocks to run, 1 or more.")
        self.sanitize = sanitize
        self.engine = engine
        self.sample = sample
        self.counters = counters
        self.trace = trace
        self.recorder = steps
        self.max_steps = max_steps
        self.chunk_threads = chunk_threads
        self.delay = delay
        self.memory = Memory()
        self.modules: Modules = {} if modules is None else modules
        self._symbols: dict[tuple[int, str], int] = {}

    def run(self, launch: Launch) -> None:
        """Run one launch to its end; raises KernelFault where the kernel does wrong."""
        if hasattr(self.counters, "prepare"):
            self.counters.prepare(launch)
        program = parse(launch.ptx).program(launch.entry)
        machine = Machine(self, launch, program)
        with np.errstate(all="ignore"):
            if self.counters is not None:
                self.counters.begin(launch, program.instructions)
            machine.run()
            machine.counters = self.counters
            if machine.jit is not None:
                machine.jit.finish()
            if machine.sampled is not None:
                for buffer in self.memory.buffers:
                    buffer.initialized = None  # nobody knows what the other blocks would have written
            if self.counters is not None:
                self.counters.end(machine.spread.busiest)

    def symbol(self, program: Program, variable: Variable) -> int:
        """The address of a module's `.global` or `.const` variable, made at its first use."""
        key = (program.module.key, variable.name)
        if key not in self._symbols:
            dtype = variable.type if variable.type[0] in "us" else "b" + variable.type[1:]
            dtype = f"{'u' if dtype[0] == 'b' else dtype[0].replace('s', 'i')}{int(dtype[1:]) // 8}"
            if variable.type in ("f32", "f64"):
                dtype = "f4" if variable.type == "f32" else "f8"
            kept = self.modules.get(key)
            data = np.zeros(variable.size, np.uint8) if kept is None else kept
            number = self.memory.add(
                data, name=plain_name(variable.name), dtype=dtype, shape=(variable.count,), symbol=True
            )
            self._symbols[key] = self.memory.buffers[number].base
            if kept is not None:
                return self._symbols[key]
            if not variable.relocations:  # an address is another emulation's no more
                self.modules[key] = data
            if variable.data is not None:
                data[:] = np.frombuffer(variable.data, np.uint8)
            for at, name, addend in variable.relocations:
                target = program.module.variables.get(name)
                if target is None:
                    continue  # a function's address, in a table of virtual functions
                address = self.symbol(program, target) + addend
                data[at : at + 8] = np.frombuffer(address.to_bytes(8, "little"), np.uint8)
        return self._symbols[key]


# ---------------------------------------------------------------------------- threads


class Mask:
    """A set of threads of the chunk.

    `where` is the bool array, `bits` None for all valid threads, `lanes` None only where there are
    no padding lanes either. `threads` counts them, `warps` the warps with any, `index` lists the
    lanes' numbers.
    """

    __slots__ = ("where", "bits", "lanes", "threads", "warps", "index")

    def __init__(self, where: np.ndarray, valid: int) -> None:
        self.where = where
        self.index = np.flatnonzero(where)
        self.threads = len(self.index)
        self.bits = None if self.threads == valid else where
        self.lanes = None if self.threads == len(where) else where
        self.warps = int(np.count_nonzero(where.reshape(-1, 32).any(axis=1)))


class Chunk:
    """Some consecutive blocks that run together, a block's threads padded to whole warps."""

    def __init__(self, launch: Launch, first_block: int, blocks: int) -> None:
        x, y, z = launch.block
        threads = x * y * z
        self.first_block = first_block
        self.blocks = blocks
        self.warps_per_block = -(-threads // 32)
        self.stride = self.warps_per_block * 32
        self.block_threads = threads
        self.lanes = blocks * self.stride
        self.valid = np.tile(np.arange(self.stride) < threads, blocks)


class Machine:
    """One launch under way."""

    @collector.paused()
    def __init__(self, emulation: Emulation, launch: Launch, program: Program) -> None:
        self.emulation = emulation
        self.launch = launch
        self.program = program
        self.memory = emulation.memory
        self.sanitize = emulation.sanitize
        self.counters = emulation.counters
        self.trace = emulation.trace
        if program.steps is None:
            program.steps = Compiler(program).run()
        self.code = program.steps
        self.steps = list(self.code.steps)
        late = emulation.delay is not None and emulation.delay.entry == program.name
        if late:
            self.steps = delayed(self.steps, emulation.delay)
        self.language = language(program)
        self.sampled = choose(math.prod(launch.grid), emulation.sample)
        if self.sampled is not None:
            refuse(program)
        self.turns = program.turns
        self.params = self._params()
        self.shared_bytes = program.shared_size + launch.shared
        self.shared_stride = -(-max(self.shared_bytes, 1) // 16) * 16
        self.local_stride = -(-max(program.local_size, 1) // 16) * 16
        self.registers = self._registers()
        self.recorder = emulation.recorder
        self.recorded = False
        self.watch = self.counters is not None or self.trace is not None or self.recorder is not None
        self.globals = Watch(self) if self.sanitize else None
        self.spread = Spread() if self.counters is not None else None
        self.jit = None
        own = not late and (self.counters is None or hasattr(self.counters, "rows"))
        if emulation.engine != "interpreter" and own and usable():
            self.jit = Jit(self, eager=emulation.engine == "compiled")

    # ---- set-up

    def fault(
        self, kind: str, message: str, mend: str = "", *, pc: int | None = None, **where: object
    ) -> KernelFault:
        """A fault at instruction `pc` of this kernel."""
        file = line = inner = None
        if pc is not None:
            instruction = self.program.instructions[pc]
            file, line, inner = instruction.file, instruction.line, instruction.inner
        return KernelFault(
            kind, message, mend,
            kernel=self.program.kernel, file=file, line=line, inner=inner, entry=self.program.name, pc=pc, **where,
        )  # fmt: skip

    def _params(self) -> np.ndarray:
        launch, program = self.launch, self.program
        if len(launch.params) != len(program.params):
            raise self.fault(
                "launch",
                f"it takes {len(program.params)} parameters and was given {len(launch.params)}",
            )
        block = np.zeros(-(-max(program.param_size, 1) // 16) * 16, np.uint8)
        for param, value in zip(program.params, launch.params, strict=True):
            if isinstance(value, Pointer):
                address = self.memory.buffers[value.buffer].base + value.offset
                value = address.to_bytes(8, "little")
            if len(value) != param.size:
                raise self.fault(
                    "launch", f"parameter {param.name} has {param.size} bytes, not {len(value)}"
                )
            block[param.offset : param.offset + param.size] = np.frombuffer(value, np.uint8)
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        if min(*launch.grid, *launch.block) < 1 or threads > 1024 or launch.block[2] > 64:
            raise self.fault(
                "launch",
                f"grid {launch.grid} with blocks of {launch.block} cannot be launched",
                "A block has 1 to 1024 threads, at most 64 along z, and no extent is 0.",
            )
        if program.shared_size > MAX_STATIC_SHARED:
            raise self.fault(
                "launch",
                f"its shared arrays of a fixed size take {program.shared_size:,} bytes",
                f"The compiler allows a block {MAX_STATIC_SHARED:,} (48 KiB): make them smaller; more is there only as "
                "dynamic shared memory, which the launch asks for.",
            )
        if program.shared_size + launch.shared > 232_448:
            raise self.fault(
                "launch",
                f"it wants {program.shared_size + launch.shared} bytes of shared memory",
                "A block has at most 232448 (227 KB).",
            )
        if program.local_size > 512 << 10:
            raise self.fault(
                "launch",
                f"it wants {program.local_size} bytes of local memory per thread",
                "A thread has at most 524288 (512 KB).",
            )
        return block

    def _registers(self) -> list:
        values: list = [DTYPES[r.type].type(0) for r in self.program.registers]
        for constant in self.code.constants:
            if isinstance(constant, Sym):
                values.append(u64(self.address_of(constant)))
            elif isinstance(constant, str):
                values.append(None)
            else:
                values.append(constant)
        return values

    def more_constants(self) -> None:
        """Those of steps that have been made since: plain numbers, as all others were known before."""
        more = self.code.constants[len(self.registers) - len(self.program.registers) :]
        self.registers += more
        self.R += more

    def address_of(self, symbol: Sym) -> int:
        """The address of a variable in its own space."""
        variable = symbol.variable
        if variable.space == "shared":
            base = self.program.shared[variable.name][1]
        elif variable.space == "local":
            base = self.program.local[variable.name][1]
        elif variable.space == "param":
            offsets = {p.name: p.offset for p in self.program.params}
            if variable.name not in offsets:
                raise self.fault(
                    "unsupported",
                    f"it takes the address of {variable.name}, a parameter of a device function",
                    "Inline the function (__forceinline__).",
                )
            base = offsets[variable.name]
        else:
            base = self.emulation.symbol(self.program, variable)
        return base + symbol.offset

    # ---- chunks

    def run(self) -> None:
        total = math.prod(self.launch.grid) if self.sampled is None else len(self.sampled)
        x, y, z = self.launch.block
        stride = -(-(x * y * z) // 32) * 32
        blocks = min(
            self.emulation.chunk_threads // stride,
            SHARED_LIMIT // self.shared_stride,
            LOCAL_LIMIT // (self.local_stride * stride),
        )
        blocks = max(1, blocks)
        for first in range(0, total, blocks):
            self.start(Chunk(self.launch, first, min(blocks, total - first)))
            self.loop()
            if self.spread is not None:
                self.spread.finish()

    def start(self, chunk: Chunk) -> None:
        self.chunk = chunk
        n = chunk.lanes
        self.masks: dict[bytes, Mask] = {}
        self.full = Mask(chunk.valid, chunk.blocks * chunk.block_threads)
        self.live = self.full
        self.nobody = self.mask(np.zeros(n, bool))
        self.exit_pc = np.full(n, -1, np.int64)
        self.pending: dict[int, Mask] = {}
        self.waiting: dict[tuple[int, int], Mask] = {}  # by where, and the barrier's number
        self.arrived: dict[int, np.ndarray] = {}
        self.deferred: tuple[int, KernelFault] | None = None
        self.needed = 0
        self.limit = END
        self.memo: list = [None] * len(self.steps)
        self.address_memo: list = [None] * len(self.steps)
        self.R = list(self.registers)
        self.taken = 0
        self.copies = Copies(n)
        self.held = Held(self)
        block = np.repeat(np.arange(chunk.blocks), chunk.stride)
        single = chunk.blocks == 1
        self.shared_base = s64(0) if single else block * self.shared_stride
        self.shared = None
        if self.shared_bytes:
            self.shared = np.zeros(chunk.blocks * self.shared_stride, np.uint8)
        self.local = None
        if self.program.local_size:
            self.local = np.zeros(n * self.local_stride, np.uint8)
        self.local_base = np.arange(n) * self.local_stride
        self.views: dict[tuple[str, np.dtype], np.ndarray] = {}
        self.shadow = None
        if self.sanitize and self.shared_bytes:
            self.shadow = Shadow(len(self.shared), self.code.granule, chunk.valid, chunk.warps_per_block)
        if self.globals is not None:
            self.globals.start(chunk.first_block, chunk.stride, n)
        self.local_watch = LocalWatch(self) if self.sanitize and self.local is not None else None
        self._specials(chunk, block)
        if self.jit is not None:
            self.jit.start()
        if self.spread is not None:
            self.spread.start(chunk)
        self.counters = self.emulation.counters
        self.recorded = self.recorder is not None and self.recorder.start(self)

    def _specials(self, chunk: Chunk, block: np.ndarray) -> None:
        launch = self.launch
        lane = np.tile(np.arange(chunk.stride), chunk.blocks)
        tid = self.thread_of(lane)
        ctaid = self.coordinates(chunk.first_block + block)
        here = {"laneid": lane % 32, "warpid": lane // 32, "smid": 0, "nsmid": 132, "gridid": 0}
        here["nwarpid"] = chunk.warps_per_block
        here["clock_hi"] = 0
        for k, axis in enumerate("xyz"):
            here[f"tid.{axis}"] = tid[k]
            here[f"ntid.{axis}"] = launch.block[k]
            here[f"ctaid.{axis}"] = ctaid[k]
            here[f"nctaid.{axis}"] = launch.grid[k]
            here[f"cluster_ctaid.{axis}"] = 0
            here[f"cluster_nctaid.{axis}"] = 1
            here[f"clusterid.{axis}"] = ctaid[k]
            here[f"nclusterid.{axis}"] = launch.grid[k]
        bit = u32(1) << (lane % 32).astype(u32)
        here["lanemask_eq"] = bit
        here["lanemask_lt"] = bit - u32(1)
        here["lanemask_le"] = bit | (bit - u32(1))
        here["lanemask_gt"] = ~(bit | (bit - u32(1)))
        here["lanemask_ge"] = ~(bit - u32(1))
        here["dynamic_smem_size"] = launch.shared
        here["total_smem_size"] = self.shared_bytes
        here["is_explicit_cluster"] = 0
        here["cluster_ctarank"] = 0
        here["cluster_nctarank"] = 1
        first = len(self.program.registers)
        for k, constant in enumerate(self.code.constants):
            if isinstance(constant, str) and constant in here:
                value = np.asarray(here[constant]).astype(u32)
                if value.ndim and (value == value[0]).all():
                    value = value[0]
                self.R[first + k] = value if np.ndim(value) else u32(value)
            elif isinstance(constant, str):
                self.R[first + k] = u32(0)

    def thread_of(self, lane: np.ndarray | int) -> tuple:
        """(x, y, z) of lane numbers within a block."""
        x, y, _ = self.launch.block
        return lane % x, lane // x % y, lane // (x * y)

    def coordinates(self, block: np.ndarray | int) -> tuple:
        """(x, y, z) of linear block numbers, of a sampled launch those among the blocks that run."""
        if self.sampled is not None:
            block = self.sampled[block]
        x, y, _ = self.launch.grid
        return block % x, block // x % y, block // (x * y)

    def who(self, lane: int) -> dict:
        """Thread and block of a lane, for faults."""
        thread = self.thread_of(lane % self.chunk.stride)
        block = self.coordinates(self.chunk.first_block + lane // self.chunk.stride)
        return {"thread": tuple(map(int, thread)), "block": tuple(map(int, block))}

    # ---- masks

    def mask(self, bits: np.ndarray) -> Mask:
        """The Mask of a bool array (padding lanes False); equal sets give the same object."""
        key = np.packbits(bits).tobytes()
        found = self.masks.get(key)
        if found is None:
            found = Mask(bits, self.full.threads)
            if found.bits is None:
                return self.full
            if len(self.masks) > 4096:
                self.masks.clear()
            self.masks[key] = found
        return found

    def union(self, a: Mask, b: Mask) -> Mask:
        if a.threads + b.threads == self.live.threads:
            return self.live
        return self.mask(a.lanes | b.lanes)

    def narrow(self, mask: Mask, predicate: np.ndarray) -> Mask:
        """The lanes of `mask` where `predicate` holds."""
        bits = predicate if mask.lanes is None else predicate & mask.lanes
        count = int(np.count_nonzero(bits))
        if count == mask.threads:
            return mask
        return self.mask(bits)

    def without(self, mask: Mask, gone: Mask) -> Mask:
        """The lanes of `mask` that are not in `gone`, a part of it."""
        bits = ~gone.lanes if mask.lanes is None else mask.lanes & ~gone.lanes
        return self.mask(bits)

    # ---- the loop

    def loop(self) -> None:
        steps, plain, counters = self.steps, self.code.plain, self.counters
        pc, mask, taken, since, fair = 0, self.full, 0, 0, 0
        patience, turn = STUCK_STEPS, self.turns
        max_steps = self.emulation.max_steps
        regions = self.jit.at if self.jit is not None and not self.recorded else [None] * (len(steps) + 1)
        spread, same, told = self.spread, mask, 0
        while True:
            if turn[pc] >= self.limit:
                if pc in self.pending:
                    mask = self.union(mask, self.pending.pop(pc))
                    self.refresh()
                    since = fair = 0
                elif not fair:
                    self.pending[pc] = mask
                    pc, mask = self.next_group()
                    since = 0
            if mask is not same and spread is not None:
                spread.add(same, taken - told)
                same, told = mask, taken
            region = regions[pc]
            while region is not None and not (
                turn[pc] + region.count <= self.limit
                and not fair
                and since + region.count <= patience
                and taken + region.count <= max_steps
                and region.run(mask)
            ):
                region = region.shorter
            if region is not None:
                taken += region.count
                since += region.count
                pc = region.end
                continue
            taken += 1
            since += 1
            if fair:
                fair -= 1
                if not fair and self.pending:
                    pc, mask, fair = self.other_group(pc, mask)
            elif since > patience:
                # One group may spin for what another has yet to do: give each a turn.
                since = 0
                if not self.pending:
                    self.held.late_ones_go()
                if self.pending:
                    patience = QUANTUM
                    pc, mask, fair = self.other_group(pc, mask)
            if counters is not None and plain[pc]:
                counters.executed(pc, mask, mask)
            self.taken = taken
            went = steps[pc](self, mask)
            if went is None:
                pc += 1
            elif went >= 0:
                pc = went
            else:
                group = self.next_group()
                if group is None:
                    if spread is not None:
                        spread.add(same, taken - told)
                    return
                pc, mask = group
                since = fair = 0
            if taken > max_steps:
                raise self.no_progress(pc, mask)

    def refresh(self) -> None:
        """The pending and waiting groups have changed."""
        self.limit = self.turns[self.first(self.pending)] if self.pending else END
        needed = 0
        live_in = self.code.live_in
        for pc in self.pending:
            needed |= live_in[pc]
        for pc in self.held.masks:
            needed |= live_in[pc]
        for pc, _ in self.waiting:
            needed |= live_in[pc + 1] if pc + 1 < len(live_in) else 0
        self.needed = needed

    def first(self, pcs: Iterable[int]) -> int:
        """The one of these program counters whose turn it is."""
        return min(pcs, key=self.turns.__getitem__)

    def push(self, pc: int, mask: Mask) -> None:
        other = self.pending.get(pc)
        self.pending[pc] = mask if other is None else self.union(mask, other)

    def next_group(self) -> tuple[int, Mask] | None:
        """The group whose turn it is, or None when the chunk has ended."""
        while not self.pending:
            if self.held.masks:
                self.held.let_go()
            elif not self.waiting:
                self.confirm()
                return None
            else:
                self.stuck()
        pc = self.first(self.pending)
        mask = self.pending.pop(pc)
        self.refresh()
        return pc, mask

    def other_group(self, pc: int, mask: Mask) -> tuple[int, Mask, int]:
        """Put this group aside for the one behind it, in turn."""
        self.held.another_turn()
        later = [p for p in self.pending if self.turns[p] > self.turns[pc]]
        chosen = self.first(later or self.pending)
        self.push(pc, mask)
        mask = self.pending.pop(chosen)
        self.refresh()
        return chosen, mask, QUANTUM

    def no_progress(self, pc: int, mask: Mask) -> KernelFault:
        pcs = [pc]
        instruction = self.program.instructions[pc]
        lines = {self.program.instructions[p].line for p in pcs}
        return self.fault(
            "no_progress",
            f"{mask.threads} threads still run here after {min(self.taken, self.emulation.max_steps):,} instructions"
            + (f" (at {instruction.text})" if None in lines else ""),
            "Look for a loop whose end never comes, or a wait for a thread or block that cannot"
            " run; if the kernel is only long, give it a smaller problem.",
            pc=pc,
            **self.who(int(mask.index[0])),
        )

    def set(self, slot: int, value: object, mask: Mask) -> None:
        """Write a register for the lanes of the mask; others keep it if they still need it."""
        if mask.lanes is not None and self.needed >> slot & 1:
            value = np.where(mask.lanes, value, self.R[slot])
        self.R[slot] = value

    def put(self, write: tuple[int, Callable | None] | None, value: object, mask: Mask) -> None:
        """Write a destination, if there is one."""
        if write is not None:
            slot, convert = write
            self.set(slot, value if convert is None else convert(value), mask)

    def narrow_by(self, mask: Mask, predicate: object, wanted: bool) -> Mask | None:
        """The lanes of the mask whose predicate is as wanted; None if there are none."""
        if not isinstance(predicate, np.ndarray):
            return mask if bool(predicate) is wanted else None
        on = self.narrow(mask, predicate if wanted else ~predicate)
        return on if on.threads else None

    def members(self, mask: Mask, members: tuple[int, Callable | None]) -> np.ndarray:
        """Lanes that take part in a warp operation: active, and named by its member mask."""
        slot, get = members
        names = self.R[slot] if get is None else get(self.R[slot])
        if not isinstance(names, np.ndarray) and names == u32(0xFFFFFFFF):
            return mask.where
        lane = np.arange(self.chunk.lanes, dtype=u32) & u32(31)
        return mask.where & ((np.broadcast_to(names, lane.shape) >> lane) & u32(1)).astype(bool)

    # ---- ends and barriers

    def exit(self, mask: Mask, pc: int) -> None:
        self.exit_pc[mask.index] = pc
        if mask.threads == self.live.threads:
            self.live = self.nobody
        else:
            self.live = self.without(self.live, mask)
        if self.shadow is not None:
            self.shadow.valid = self.live.where

    def sync(self, mask: Mask) -> None:
        """A barrier of whole blocks orders the accesses of these lanes."""
        lanes = None if mask is self.live or mask is self.full else mask.lanes
        if self.shadow is not None:
            self.shadow.sync(lanes)
        if self.globals is not None:
            self.globals.sync(lanes)

    def per_block(self, mask: Mask) -> np.ndarray:
        """Threads of the mask in each block."""
        if mask is self.full:
            return np.full(self.chunk.blocks, self.chunk.block_threads)
        return np.count_nonzero(mask.lanes.reshape(self.chunk.blocks, -1), axis=1)

    def sync_warp(self, mask: Mask) -> None:
        """`bar.warp.sync`: orders what these lanes have done."""
        if self.shadow is not None:
            self.shadow.sync_warp(mask.where)
        if self.globals is not None:
            self.globals.sync_warp(mask.where)

    def split(self, pc: int, mask: Mask, value: np.ndarray) -> int:
        """Come here again in groups for which `value` is the same."""
        groups = [self.narrow(mask, value == k) for k in np.unique(value[mask.index])]
        for group in groups:
            went = self.steps[pc](self, group)
            if went is None:
                self.push(pc + 1, group)
        self.refresh()
        return -1

    def reduce_block(
        self,
        pc: int,
        mask: Mask,
        predicate: tuple[int, Callable | None],
        how: str,
        target: tuple[int, Callable | None] | None,
    ) -> None:
        """`bar.red`: every thread of a block gets the reduction over all of its threads."""
        if mask is not self.full:
            whole = self.per_block(mask)
            if not ((whole == self.chunk.block_threads) | (whole == 0)).all():
                raise self.fault(
                    "unsupported",
                    "threads reach a reducing barrier (syncthreads_count, _and, _or) at different"
                    " times",
                    "Take it out of the branch.",
                    pc=pc,
                )
        slot, get = predicate
        p = self.R[slot] if get is None else get(self.R[slot])
        p = np.broadcast_to(p, mask.where.shape)
        blocks = self.chunk.blocks
        if how == "and":
            result = (p | ~mask.where).reshape(blocks, -1).all(axis=1)
        else:
            result = np.count_nonzero((p & mask.where).reshape(blocks, -1), axis=1).astype(u32)
            if how == "or":
                result = result != 0
        self.put(target, np.repeat(result, self.chunk.stride), mask)

    def barrier(self, pc: int, mask: Mask, number: int, count: int | None) -> int | None:
        """`mask` arrives; None if it may all go on at once, -1 if groups have been made."""
        chunk = self.chunk
        if count is not None and (count < chunk.stride or self.code.arrives):
            return self.counted_barrier(pc, mask, number, count)
        if not self.waiting:
            here = self.per_block(mask)
            if mask is self.full or ((here == chunk.block_threads) | (here == 0)).all():
                self.sync(mask)
                return None
        before = self.waiting.get((pc, number))
        mine: Mask | None = mask if before is None else self.union(before, mask)
        done = self.per_block(mine) == chunk.block_threads
        if done.any():
            self.confirm(done)
            released = self.mask(np.repeat(done, chunk.stride) & mine.where)
            self.sync(released)
            self.push(pc + 1, released)
            mine = None if released.threads == mine.threads else self.without(mine, released)
        if mine is None:
            self.waiting.pop((pc, number), None)
        else:
            self.waiting[pc, number] = mine
        self.refresh()
        return -1

    def confirm(self, done: np.ndarray | None = None) -> None:
        """Raise a race that was put off, now that its block has passed a barrier or ended."""
        if self.deferred is not None and (done is None or done[self.deferred[0]]):
            raise self.deferred[1]

    def counted_barrier(self, pc: int, mask: Mask, number: int, count: int) -> int:
        """A barrier for `count` threads: whoever comes first, by its number."""
        mine = self.waiting.pop((pc, number), None)
        self.waiting[pc, number] = mask if mine is None else self.union(mine, mask)
        self.release_counted(number, count)
        self.refresh()
        return -1

    def warp_threads(self, lanes: np.ndarray) -> np.ndarray:
        """Threads per block as barriers count them: a whole warp is 32, even if it is short."""
        chunk = self.chunk
        mine = np.count_nonzero(lanes.reshape(-1, 32), axis=1)
        all_of = np.count_nonzero(chunk.valid.reshape(-1, 32), axis=1)
        return np.where(mine == all_of, 32, mine).reshape(chunk.blocks, -1).sum(axis=1)

    def release_counted(self, number: int, count: int) -> None:
        chunk = self.chunk
        users = [key for key in self.waiting if key[1] == number]
        lanes = np.zeros(chunk.lanes, bool)
        for key in users:
            lanes |= self.waiting[key].where
        arrived = self.arrived.get(number, np.zeros(chunk.lanes, bool))
        done = self.warp_threads(lanes) + self.warp_threads(arrived) >= count
        if not done.any():
            return
        where = np.repeat(done, chunk.stride)
        for order in (self.shadow, self.globals):
            if order is not None:
                order.sync_part(lanes & where, number, done)
        self.arrived[number] = arrived & ~where
        for key in users:
            group = self.waiting.pop(key)
            released = self.narrow(group, where)
            if released.threads:
                self.push(key[0] + 1, released)
            if released.threads < group.threads:
                self.waiting[key] = self.without(group, released)

    def arrive(self, mask: Mask, number: int, count: int) -> None:
        """`bar.arrive`: counts, and does not wait."""
        before = self.arrived.get(number, np.zeros(self.chunk.lanes, bool))
        self.arrived[number] = before | mask.where
        for order in (self.shadow, self.globals):
            if order is not None:
                order.arrive(mask.where, number)
        self.release_counted(number, count)
        self.refresh()

    def stuck(self) -> None:
        """Nobody can run and some wait at a barrier."""
        if not self.sanitize:
            # The hardware lets the rest of a block pass once the others have exited.
            chunk = self.chunk
            waiting = np.zeros(chunk.lanes, bool)
            for group in self.waiting.values():
                waiting |= group.where
            self.sync(self.mask(waiting))
            for (pc, _), group in self.waiting.items():
                self.push(pc + 1, group)
            self.waiting = {}
            self.refresh()
            return
        # Blame the barrier that was waited at first: the others came later, if at all.
        first = pc, _ = next(iter(self.waiting))
        group = self.waiting[first]
        lane = int(group.index[0])
        block = lane // self.chunk.stride
        inside = slice(block * self.chunk.stride, (block + 1) * self.chunk.stride)
        counts: dict[str, int] = {}
        instructions = self.program.instructions
        other_line = None
        for key, other in self.waiting.items():
            here = int(np.count_nonzero(other.where[inside]))
            if key != first and here:
                other_line = instructions[key[0]].line
                text = f"wait at line {other_line}"
                counts[text] = counts.get(text, 0) + here
        left = self.exit_pc[inside]
        for p in np.unique(left[left >= 0]):
            line = instructions[p].line
            other_line = other_line or line
            text = f"have exited at line {line}"
            counts[text] = counts.get(text, 0) + int(np.count_nonzero(left == p))
        here = int(np.count_nonzero(group.where[inside]))
        rest = " and ".join(f"{n} {text}" for text, n in counts.items())
        who = self.who(lane)
        raise self.fault(
            "barrier",
            f"the barrier is reached by {here} of {self.chunk.block_threads} threads of block"
            f" {who['block']}; {rest or 'the others never come'}",
            "Every thread of a block must reach the same barrier: take it out of the branch, and"
            " guard only the loads and stores.",
            pc=pc,
            other_line=other_line,
            **who,
        )

    # ---- memory

    def address(self, pc: int, slot: int, offset: int) -> object:
        """Byte addresses as int64; the same object as long as the register is the same."""
        base = self.R[slot]
        memo = self.address_memo[pc]
        if memo is not None and memo[0] is base:
            return memo[1]
        address = base.view(s64) if base.dtype.itemsize == 8 else base.astype(s64)
        if offset:
            address = address + s64(offset)
        self.address_memo[pc] = (base, address)
        return address

    def address_of_base(self, slot: int, offset: int) -> object:
        """As `address`, for an instruction with two of them: nothing is remembered."""
        base = self.R[slot]
        address = base.view(s64) if base.dtype.itemsize == 8 else base.astype(s64)
        return address + s64(offset)

    def view(self, space: str, dtype: np.dtype) -> np.ndarray:
        found = self.views.get((space, dtype))
        if found is None:
            data = {"shared": self.shared, "local": self.local, "param": self.params}[space]
            found = self.views[space, dtype] = data.view(dtype)
        return found

    def place(self, access: Access, address: object, mask: Mask) -> Place:
        """Check an access and find its elements; remembered while addresses and mask stay."""
        memo = self.memo[access.pc]
        if memo is not None and memo.address is address and memo.mask is mask:
            return memo
        space = access.space
        found = None
        if space == "generic":
            found = self._generic(access, address, mask)
        elif space in ("global", "const"):
            found = self._global(access, address, address, mask)
        else:
            found = self._window(access, space, address, address, mask)
        self.memo[access.pc] = found
        return found

    def _active(self, address: object, mask: Mask) -> object:
        """Addresses with those of idle lanes replaced by an active lane's."""
        if mask.lanes is None or not isinstance(address, np.ndarray):
            return address
        return np.where(mask.lanes, address, address[mask.index[0]])

    def _generic(self, access: Access, address: object, mask: Mask) -> Place:
        active = self._active(address, mask)
        low, high = int(np.min(active)), int(np.max(active))
        for space, window in _WINDOWS:
            if low >= window:
                return self._window(access, space, address, active - s64(window), mask)
            if high >= window:
                raise self.fault(
                    "unsupported",
                    "threads of one instruction point into different memory spaces:"
                    f" {access.instruction.text}",
                    pc=access.pc,
                )
        return self._global(access, address, active, mask)

    def _global(self, access: Access, address: object, at: object, mask: Mask) -> Place:
        active = self._active(at, mask)
        scalar = not isinstance(active, np.ndarray)
        low, high = (int(active),) * 2 if scalar else (int(active.min()), int(active.max()))
        either = low if scalar else int(np.bitwise_or.reduce(active))
        buffers = self.memory.buffers
        number = (low >> WINDOW_BITS) - 1
        if 0 <= number < len(buffers):
            buffer = buffers[number]
            if low >= buffer.base and high + access.width <= buffer.base + len(buffer.data):
                if either & (access.width - 1):
                    raise self._misaligned(access, "global", active, mask)
                view, origin = buffer.view(access.dtype)
                index = (active - s64(origin)) >> s64(access.shift)
                return Place(address, mask, "global", view, index)
        return self._scattered(access, address, active, mask, either)

    def _scattered(
        self, access: Access, address: object, active: object, mask: Mask, either: int
    ) -> Place:
        """Addresses in several buffers, or outside of all."""
        lanes = np.broadcast_to(active, (self.chunk.lanes,))
        numbers = (lanes >> s64(WINDOW_BITS)) - 1
        parts = []
        for number in np.unique(numbers[mask.index]):
            which = np.flatnonzero(numbers == number)
            mine = lanes[which]
            if not 0 <= number < len(self.memory.buffers):
                raise self._outside(access, lanes, mask, numbers == number)
            buffer = self.memory.buffers[number]
            end = buffer.base + len(buffer.data)
            wrong = (mine < buffer.base) | (mine + access.width > end)
            if wrong.any():
                bad = np.zeros(len(lanes), bool)
                bad[which[wrong]] = True
                raise self._outside(access, lanes, mask, bad)
            view, origin = buffer.view(access.dtype)
            parts.append((view, (mine - s64(origin)) >> s64(access.shift), which))
        if either & (access.width - 1):
            raise self._misaligned(access, "global", lanes, mask)
        return Place(address, mask, "global", None, None, parts)

    def _window(
        self, access: Access, space: str, address: object, at: object, mask: Mask
    ) -> Place:
        """Shared, local and parameter memory: offsets into a window of fixed size."""
        active = self._active(at, mask)
        size, base = {
            "shared": (self.shared_bytes, self.shared_base),
            "local": (self.program.local_size, self.local_base),
            "param": (self.program.param_size, s64(0)),
        }[space]
        scalar = not isinstance(active, np.ndarray)
        low, high = (int(active),) * 2 if scalar else (int(active.min()), int(active.max()))
        if low < 0 or high + access.width > size:
            raise self._outside_window(access, space, active, mask, size)
        either = low if scalar else int(np.bitwise_or.reduce(active))
        if either & (access.width - 1):
            raise self._misaligned(access, space, active, mask)
        index = (active + base) >> s64(access.shift)
        return Place(address, mask, space, self.view(space, access.dtype), index)

    def _first(self, mask: Mask, bad: np.ndarray) -> int:
        """The first lane of the mask where `bad` holds."""
        bad = np.broadcast_to(bad, (self.chunk.lanes,))
        return int(mask.index[np.argmax(bad[mask.index])])

    def _outside(
        self, access: Access, lanes: np.ndarray, mask: Mask, bad: np.ndarray
    ) -> KernelFault:
        lane = self._first(mask, bad)
        address = int(lanes[lane])
        who = self.who(lane)
        buffer = self.memory.find(address)
        index, what = None, self.memory.describe(address)
        if buffer is not None:
            offset = address - buffer.base
            index = buffer.index(offset)
            near = -len(buffer.data) - 4096 <= offset <= 2 * len(buffer.data) + 4096
            if index is not None and near:
                what = f"{buffer.name}[{', '.join(map(str, index))}], outside {buffer.label}"
            if 0 <= offset < len(buffer.data):
                what = f"{access.width} bytes at {self.memory.describe(address)}, over the end of"
                what += f" {buffer.label}"
        return self.fault(
            "out_of_bounds",
            f"thread {who['thread']} of block {who['block']} {access.verb} {what}",
            "Check the index against the array's shape before the access.",
            pc=access.pc,
            address=address,
            array=buffer.name if buffer else None,
            index=index,
            **who,
        )

    def _outside_window(
        self, access: Access, space: str, active: object, mask: Mask, size: int
    ) -> KernelFault:
        active = np.broadcast_to(active, (self.chunk.lanes,))
        lane = self._first(mask, (active < 0) | (active + access.width > size))
        offset = int(active[lane])
        who = self.who(lane)
        name, index, spot, extent = self.variable(space, offset, access.element)
        where = f"{spot}, {extent}" if name else f"byte {offset} of {size} bytes of {space} memory"
        mend = f"Check the index against the {space} array's size"
        if space == "shared":
            mend += ", and the launch's dynamic shared memory in bytes"
        return self.fault(
            "out_of_bounds",
            f"thread {who['thread']} of block {who['block']} {access.verb} {where}",
            mend + ".",
            pc=access.pc,
            address=offset,
            array=name or space,
            index=index if name else None,
            **who,
        )

    def variable(
        self, space: str, offset: int, element: int
    ) -> tuple[str | None, tuple[int, ...], str, str]:
        """The shared or local array at an offset: its name (None if in none), the index, and
        both in words: which element it is and how far the array goes."""
        table = {"shared": self.program.shared, "local": self.program.local}.get(space, {})
        placed = list(table.items())
        before = [(at, k) for k, (_, (_, at)) in enumerate(placed) if at <= max(offset, 0)]
        if not before:
            return None, (), "", ""
        at, k = max(before)
        key, (variable, _) = placed[k]
        size = variable.size or self.launch.shared
        if offset >= at + size > at and k + 1 < len(placed):
            return None, (), "", ""
        index, count = (offset - at) // element, size // element
        known = declared(self.program, space).get(key)
        if known is None:
            # Arrays that the author's source gives no name in the PTX.
            name = f"the {space} array"
            if len(placed) > 1:
                name = f"{space} array {k + 1} of {len(placed)}"
            return name, (index,), f"element {index} of {name}", f"which has {count}"
        if math.prod(known.shape) == count and known.shape:
            where, extent = known.index(index), known.shape
        else:
            where, extent = (index,), (count,)
        outside = spell(self.program, known.name, extent)
        return known.name, where, spell(self.program, known.name, where), f"outside {outside}"

    def _misaligned(
        self, access: Access, space: str, active: object, mask: Mask
    ) -> KernelFault:
        active = np.broadcast_to(active, (self.chunk.lanes,))
        lane = self._first(mask, (active & s64(access.width - 1)) != 0)
        address = int(active[lane])
        who = self.who(lane)
        array = index = None
        where = f"offset {address} of {space} memory"
        if space == "global":
            buffer = self.memory.find(address)
            where = self.memory.describe(address)
            array = buffer.name if buffer else None
            index = buffer.index(address - buffer.base) if buffer else None
            if buffer and buffer.base % access.width:
                where += f" (the array itself begins {buffer.base % 256} bytes off)"
        return self.fault(
            "misaligned",
            f"thread {who['thread']} of block {who['block']} {access.verb} {access.width} bytes at"
            f" {where}, which is not a multiple of {access.width} bytes",
            "A vector access needs an address that is a multiple of its size.",
            pc=access.pc,
            address=address,
            array=array,
            index=index,
            **who,
        )

    def gather(self, access: Access, place: Place, k: int) -> np.ndarray:
        """Element k of a load that points into several buffers."""
        out = np.zeros(self.chunk.lanes, access.dtype)
        for view, index, which in place.parts:
            out[which] = view[index + k]
        return out

    def scatter(self, place: Place, values: list) -> None:
        """A store into several buffers."""
        mask = place.mask
        for view, index, which in place.parts:
            on = mask.where[which]
            for k, value in enumerate(values):
                if isinstance(value, np.ndarray):
                    value = value[np.searchsorted(mask.index, which[on])]
                view[index[on] + k] = value

    def scattered_atomic(
        self, how: str, place: Place, args: list[np.ndarray], want: bool
    ) -> np.ndarray:
        """An atomic on several buffers."""
        mask = place.mask
        out = np.zeros(mask.threads, place.parts[0][0].dtype)
        for view, index, which in place.parts:
            on = mask.where[which]
            lanes = np.searchsorted(mask.index, which[on])
            old = atomic(how, view, index[on], [a[lanes] for a in args], want=want)
            if want:
                out[lanes] = old
        return out

    def land(self, mask: Mask, newest: int | None) -> None:
        """Asynchronous copies that the mask's threads wait for reach shared memory."""
        for copy, lands in self.copies.landing(mask, newest):
            place, words = copy.place, copy.words
            if not lands.all():
                place, words = place.within(lands), [word[lands] for word in words]
            index = np.broadcast_to(place.active, (place.mask.threads,))
            if self.shadow is not None:
                old = [place.view[index + k] for k in range(len(words))]
                self.watch_write(copy.access, place, old, words, atomic=False)
            for k, word in enumerate(words):
                place.view[index + k] = word

    # ---- shared memory under watch

    def watch_copy(self, access: Access, place: Place) -> None:
        """An asynchronous copy may land at once: what others still read there is a race already."""
        granules, lanes = self.granules(access, place)
        conflict = self.shadow.probe(granules, lanes, access.verb)
        if conflict:
            self.found(access, conflict)

    def granules(self, access: Access, place: Place) -> tuple[np.ndarray, np.ndarray]:
        """Granule numbers and lanes of a shared access, one entry per granule touched."""
        if place.granules is None:
            mask = place.mask
            index = np.broadcast_to(place.index, (self.chunk.lanes,))[mask.index]
            lanes = mask.index
            each = access.width // self.shadow.granule
            first = index << access.shift
            first = first // self.shadow.granule
            if each > 1:
                first = (first[:, None] + np.arange(each)).ravel()
                lanes = np.repeat(lanes, each)
            place.granules = first, lanes
        return place.granules

    def watch_written(self, access: Access, place: Place) -> None:
        """Somebody has written what is read; once seen, it stays so."""
        if place.initialized:
            return
        shadow = self.shadow
        if not shadow.all_written:
            granules, lanes = self.granules(access, place)
            blank = ~shadow.written[granules]
            if blank.any():
                k = int(np.argmax(blank))
                raise self._uninitialized(access, int(lanes[k]), int(granules[k]))
        place.initialized = True

    def watch_read(self, access: Access, place: Place) -> None:
        shadow = self.shadow
        self.watch_written(access, place)
        granules, lanes = self.granules(access, place)
        conflict = shadow.read(granules, lanes, access.pc, atomic=access.volatile)
        if conflict:
            self.found(access, conflict)

    def watch_write(
        self, access: Access, place: Place, old: list | None, values: list, *, atomic: bool
    ) -> None:
        shadow = self.shadow
        granules, lanes = self.granules(access, place)
        each = access.width // shadow.granule
        same = None
        if old is not None:
            equal = np.ones(len(lanes) // each, bool)
            for before, value in zip(old, values, strict=True):
                equal &= _same_bits(before, value)
            same = np.repeat(equal, each) if each > 1 else equal
        conflict = shadow.write(
            granules, lanes, access.pc, atomic=atomic, kind=access.verb, same=same
        )
        if conflict is None and not atomic:
            winner = shadow.writer[granules]
            twice = winner != lanes
            if twice.any():
                # Several threads of one instruction: harmless only if they store one value.
                order = np.argsort(granules, kind="stable")
                k = np.repeat(np.arange(len(lanes) // each), each)[order]
                g = granules[order]
                equal = np.ones(len(g) - 1, bool)
                for value in values:
                    v = np.broadcast_to(value, (len(lanes) // each,))[k]
                    equal &= _same_bits(v[1:], v[:-1])
                bad = (g[1:] == g[:-1]) & ~equal
                if bad.any():
                    j = int(np.argmax(bad))
                    a, b = lanes[order[j + 1]], lanes[order[j]]
                    conflict = Conflict(
                        int(a), int(b), access.pc, access.verb, "writes", int(g[j])
                    )
        if conflict:
            self.found(access, conflict)

    def found(self, access: Access, conflict: Conflict) -> None:
        self.raise_race(self._race(access, conflict), conflict.lane)

    def raise_race(self, fault: KernelFault, lane: int) -> None:
        """A race. Put off while its block waits at a barrier that some threads may have missed."""
        block = lane // self.chunk.stride
        inside = slice(block * self.chunk.stride, (block + 1) * self.chunk.stride)
        if not any(group.where[inside].any() for group in self.waiting.values()):
            raise fault
        if self.deferred is None:
            self.deferred = (block, fault)

    def _spot(self, access: Access, granule: int) -> tuple[str, str | None, tuple[int, ...]]:
        offset = granule * self.shadow.granule % self.shared_stride
        name, index, spot, _ = self.variable("shared", offset, access.element)
        return spot if name else f"byte {offset} of shared memory", name, index

    def _uninitialized(self, access: Access, lane: int, granule: int) -> KernelFault:
        where, name, index = self._spot(access, granule)
        who = self.who(lane)
        return self.fault(
            "uninitialized",
            f"thread {who['thread']} of block {who['block']} reads {where}, which no thread has"
            " written",
            "Shared memory starts with garbage: write every element that is read, zeros too.",
            pc=access.pc,
            address=granule * self.shadow.granule % self.shared_stride,
            array=name or "shared",
            index=index,
            **who,
        )

    def _race(self, access: Access, conflict: Conflict) -> KernelFault:
        where, name, index = self._spot(access, conflict.granule)
        who = self.who(conflict.lane)
        other = self.who(conflict.other)
        line = self.program.instructions[conflict.other_pc].line
        mend = self.barrier_mend(access.pc, conflict.other_pc, conflict.lane, conflict.other)
        return self.fault(
            "race",
            f"thread {who['thread']} of block {who['block']} {conflict.kind} {where}, which thread"
            f" {other['thread']} {conflict.other_kind} at line {line} with no barrier between",
            mend,
            pc=access.pc,
            other_line=line,
            other_pc=conflict.other_pc,
            other_thread=other["thread"],
            other_block=other["block"],
            address=conflict.granule * self.shadow.granule % self.shared_stride,
            array=name or "shared",
            index=index,
            **who,
        )

    def barrier_mend(self, pc: int, other_pc: int, lane: int, other: int) -> str:
        """What to do about two accesses of one block, the other one the earlier."""
        numba = self.language == "numba"
        line = self.program.instructions[other_pc].line
        mine = self.program.instructions[pc].line
        between = f"between line {line} and line {mine}"
        if line is not None and mine is not None and line > mine:
            between = f"after line {line}, before the next turn of the loop reaches line {mine}"
        block = "cuda.syncthreads()" if numba else "__syncthreads()"
        if other_pc == pc:
            return "Let one thread write it, or use an atomic."
        mend = f"Put a barrier, {block}, {between}"
        if lane // 32 == other // 32:
            warp = "cuda.syncwarp()" if numba else "__syncwarp()"
            return f"{mend}; {warp} is enough only where all threads that share elements are of one warp, as these two."
        return f"{mend}."

    def report(self, access: Access, place: Place, mask: Mask, to: object = None, sizes: object = None) -> None:
        """Tell counters and trace of an access.

        `to` is where in shared memory cp.async brings what it reads, `sizes` the bytes of it if that is not all.
        """
        address = place.address
        space = access.reported or place.space
        if place.space != "global" and access.space == "generic":
            address = address & s64((1 << 60) - 1)
        said = access.instruction, space, access.kind, address, mask, access.width, self.chunk
        if self.counters is not None:
            self.counters.access(*said, *(() if to is None else (to, sizes)))
        if self.trace is not None:
            self.trace.access(*said)


_WINDOWS = (("param", PARAM_WINDOW), ("local", LOCAL_WINDOW), ("shared", SHARED_WINDOW))


def _same_bits(a: object, b: object) -> object:
    """Equal as bits: a NaN equals itself."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind == "f":
        kind = f"u{a.dtype.itemsize}"
        a, b = a.view(kind), b.view(kind)
    return a == b
