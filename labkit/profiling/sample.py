"""What a launch of any size does, from a few of its blocks: all that the speed-of-light model asks of a kernel.

A launch of thousands of blocks would take the emulator minutes, and its blocks do the same work. So only some of them
run, spread evenly over the grid, with the addresses that they really have; sums are multiplied by blocks per sampled
block. That is exact where all blocks do equal work. Distinct bytes are no such sum: those of an array grow with the
blocks until the array is used up.

In what order a block's instructions wait for one another is worked out on the PTX of its busiest warp: an instruction
starts when its operands are there, and a branch or a barrier is not passed before all instructions ahead of it have
started. Within such a stretch order does not count, since ptxas moves loads up.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.emulator.compiler import defs_and_uses
from labkit.emulator.counters import GRANULE, LANES, SECTOR, Counters
from labkit.emulator.engine import Chunk, Emulation, Machine
from labkit.emulator.faults import KernelFault
from labkit.emulator.memory import WINDOW_BITS
from labkit.emulator.ptx import parse
from labkit.emulator.sass import machine_code
from labkit.emulator.steps import is_barrier
from labkit.errors import LabkitError
from labkit.models.occupancy import occupancy
from labkit.models.speed import LINE, SCHEDULERS, Work, latencies

if TYPE_CHECKING:
    from labkit.emulator.launch import Launch
    from labkit.emulator.ptx import Instruction

BLOCKS = 3  # of each launch: the first, the last, and between them
TRACED = 12_000  # instructions of a block that are looked at one by one; the rest goes at the same pace
MOST = 2_000_000  # instructions of a block; of one that takes more, it is said that it makes no progress
L1_BYTES = 256 * 1024  # of a multiprocessor with sm_90, shared memory included (Hopper tuning guide)
MERGED = 16  # sectors per warp that wait for their other bytes before they are stored


def works(fn: Callable[[], object], names: Mapping[str, Any] | None = None, blocks: int = BLOCKS) -> list[Work]:
    """Run `blocks` blocks of each launch of `fn` on the emulator; what the whole launches do.

    Outputs are written only in part. Raises LabkitError where `fn` launches nothing.
    """
    from labkit.kernels import emulating

    emulation = _Sampled(blocks)
    with emulating(emulation, names):
        fn()
    if not emulation.found:
        raise LabkitError("No kernel was launched, so there is no time to predict; launch one inside the function.")
    return emulation.found


class _Sampled(Emulation):
    """An emulation that runs some blocks of each launch: first while all is looked at, then to the end for counters."""

    def __init__(self, blocks: int) -> None:
        super().__init__(sanitize=False, max_steps=MOST)
        self.sampled = blocks
        self.found: list[Work] = []

    def run(self, launch: Launch) -> None:
        program = parse(launch.ptx).program(launch.entry)
        total = int(np.prod(launch.grid))
        chosen = np.unique(np.linspace(0, total - 1, min(self.sampled, total)).astype(int)).tolist()
        facts = Counters()
        facts.begin(launch, program.instructions)
        threads = int(np.prod(launch.block))
        fits = occupancy(threads, *_resources(facts.metrics)).blocks
        looks = [_Look(L1_BYTES // SECTOR // fits) for _ in chosen]
        with np.errstate(all="ignore"):
            for look, block in zip(looks, chosen, strict=True):
                self.counters, self.recorder = None, look
                machine = Machine(self, launch, program)
                with contextlib.suppress(_Enough):
                    machine.start(Chunk(launch, block, 1))
                    machine.loop()
                look.settle()
            # Where blocks wait for one another, some cannot run alone: the others speak for them.
            alone = [not look.waits(program.instructions) for look in looks]
            if not any(alone):
                raise LabkitError(
                    f"Every block of {program.kernel} that was tried waits for another block, so none can be run "
                    "alone, and no time can be predicted."
                )
            kept, each = [], []
            for block, look in itertools.compress(zip(chosen, looks, strict=True), alone):
                counters = self.counters = Counters()
                self.recorder = None
                counters.begin(launch, program.instructions)
                machine = Machine(self, launch, program)
                machine.start(Chunk(launch, block, 1))
                try:
                    machine.loop()
                except KernelFault as fault:
                    if fault.kind != "no_progress" or block == chosen[-1] and not each:
                        raise
                    continue  # it waits, after all
                if machine.jit is not None:
                    machine.jit.finish()
                counters.end()
                kept.append(look)
                each.append(counters.metrics)
        self.found.append(_work(launch, program, kept, each, total, self.memory))


class _Enough(Exception):
    """The beginning of the block has been seen."""


class _Look:
    """What the beginning of one block does: its instructions in order, and what its accesses ask of the caches."""

    def __init__(self, kept: int) -> None:
        self.pcs: list[int] = []
        self.who: list[np.ndarray] = []  # the warps that take part, one bool each
        self.far: dict[int, np.ndarray] = {}  # step -> whether a warp's load goes beyond L1
        self.counted: dict[int, int] = defaultdict(int)  # warp instructions by program counter
        self.lanes: dict[int, int] = defaultdict(int)  # thread instructions
        self.requests = self.lines = self.sectors = 0
        self.asked = 0  # loads: sectors that L1 did not have
        self.whole = self.partly = 0  # stores: sectors
        self.loaded: list[np.ndarray] = []
        self.stored: list[np.ndarray] = []
        self.atomic: list[np.ndarray] = []
        self.kept = kept  # sectors that L1 holds for this block
        self.l1: OrderedDict[int, None] = OrderedDict()
        self.open: OrderedDict[tuple[int, int], int] = OrderedDict()  # (warp, sector) -> bytes stored
        self._masks: dict[int, tuple] = {}

    def start(self, machine: Machine) -> bool:
        machine.counters = self
        return True

    def executed(self, pc: int, active: Any, pred_on: Any) -> None:
        if len(self.pcs) == TRACED:
            raise _Enough
        known = self._masks.get(id(active))
        if known is None or known[0] is not active:
            who = active.where.reshape(-1, LANES).any(axis=1)
            known = self._masks[id(active)] = active, who, int(np.count_nonzero(who))
        self.counted[pc] += known[2]
        self.lanes[pc] += active.threads
        self.pcs.append(pc)
        self.who.append(known[1])

    def access(
        self, instr: Instruction, space: str, kind: str, addr: Any, mask: Any, width: int, chunk: Any, *_: Any
    ) -> None:
        if space != "global" or not mask.threads:
            return
        where = mask.where
        addr = addr if np.ndim(addr) else np.full(len(where), addr)
        rows = np.sort(np.where(where, addr // SECTOR, -1).reshape(-1, LANES), axis=1)
        first = rows >= 0
        first[:, 1:] &= rows[:, 1:] != rows[:, :-1]
        newline = first.copy()
        newline[:, 1:] &= rows[:, 1:] // (LINE // SECTOR) != rows[:, :-1] // (LINE // SECTOR)
        self.requests += int(np.count_nonzero(first.any(axis=1)))
        self.lines += int(np.count_nonzero(newline))
        self.sectors += int(np.count_nonzero(first))
        if kind == "ld":
            self.loaded.append(np.unique(rows[first]))
            past = {"cg", "volatile", "relaxed", "acquire"} & set(instr.mods)
            self.far[len(self.pcs) - 1] = self._load(rows, first, bool(past))
        elif kind == "st":
            self.stored.append(np.unique(rows[first]))
            self._store(rows, first, width)
        else:
            self.atomic.append(np.unique(rows[first]))

    def _load(self, rows: np.ndarray, first: np.ndarray, past: bool) -> np.ndarray:
        """Which warps' loads go beyond L1; it keeps what was used last."""
        far = np.zeros(len(rows), bool)
        for warp, (row, on) in enumerate(zip(rows, first, strict=True)):
            for sector in row[on].tolist():
                if past or sector not in self.l1:
                    far[warp] = True
                    self.asked += 1
                    if len(self.l1) >= self.kept:
                        self.l1.popitem(last=False)
                    self.l1[sector] = None
                else:
                    self.l1.move_to_end(sector)
        return far

    def _store(self, rows: np.ndarray, first: np.ndarray, width: int) -> None:
        """Sectors that a warp's stores fill, soon after one another, and those of which they write a part."""
        for warp, (row, on) in enumerate(zip(rows, first, strict=True)):
            starts = np.flatnonzero(on)
            ends = [*starts[1:].tolist(), LANES][: len(starts)]
            for at, end in zip(starts.tolist(), ends, strict=True):
                key = warp, int(row[at])
                filled = self.open.pop(key, 0) + (end - at) * width
                if filled >= SECTOR:
                    self.whole += 1
                else:
                    self.open[key] = filled
        while len(self.open) > MERGED * len(rows):
            self.open.popitem(last=False)
            self.partly += 1

    @staticmethod
    def granules(sectors: list[np.ndarray]) -> np.ndarray:
        """The distinct pieces that device memory is read and written in."""
        return np.unique(_distinct(sectors) // (GRANULE // SECTOR))

    def waits(self, code: list[Instruction]) -> bool:
        """Whether the block goes round in circles, asking for a word of global memory again and again."""
        circle = [code[pc] for pc in set(self.pcs[-2000:])] if len(self.pcs) == TRACED else []
        asks = any(i.op == "atom" or i.op == "ld" and {"volatile", "relaxed", "acquire"} & set(i.mods) for i in circle)
        return asks and len(circle) < 20 and not any(i.op == "fma" for i in circle)

    def settle(self) -> None:
        self.partly += len(self.open)
        self.open.clear()


# ---------------------------------------------------------------------------- the whole launch

_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
_FLOPS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
_TENSOR = "sm__ops_path_tensor_src_{}.sum"


def _resources(metrics: Mapping[str, float]) -> tuple[int, int]:
    """Registers per thread and bytes of shared memory per block."""
    static, dynamic = (metrics[f"launch__shared_mem_per_block_{kind}"] for kind in ("static", "dynamic"))
    return int(metrics["launch__registers_per_thread"]), int(static + dynamic)


def _work(
    launch: Launch, program: Any, looks: list[_Look], each: list[Mapping[str, float]], total: int, memory: Any
) -> Work:
    code = program.instructions
    # The first and the last block may be special: sums are those of the blocks between them.
    chains = [
        [
            cycles * max(1.0, m["smsp__inst_executed.sum"] / max(sum(look.counted.values()), 1))
            for cycles in _chains(look, launch, program, *_about(look, m, launch, program, memory, total))
        ]
        for look, m in zip(looks, each, strict=True)
    ]
    if len(looks) > 2:
        looks, each = looks[1:-1], each[1:-1]
    scale = total / len(looks)

    def summed(pattern: str, kinds: str) -> float:
        return scale * sum(m.get(pattern.format(kind), 0.0) for m in each for kind in kinds.split())

    # What was looked at is a part of what was counted: its shares hold for all.
    seen = max(sum(sum(look.counted.values()) for look in looks), 1)
    more = summed("smsp__inst_executed.{}", "sum") / (scale * seen)
    loads = summed(_SECTORS, "ld")
    read = _growing([k.granules(k.loaded) for k in looks], GRANULE, scale * more, memory)
    written = _growing([k.granules(k.stored) for k in looks], GRANULE, scale * more, memory)
    in_part = sum(k.partly for k in looks) / max(sum(k.whole + k.partly for k in looks), 1)
    atomic = _growing([_distinct(k.atomic) for k in looks], SECTOR, scale, memory)
    lanes: dict[str, float] = defaultdict(float)
    for look in looks:
        for pc, threads in look.lanes.items():
            lanes[unit(code[pc])] += scale * more * threads
    issued = sum(_issued(look.counted, launch, program) for look in looks)
    asked = scale * more * sum(k.asked for k in looks)
    waves = summed(_WAVEFRONTS, "ld st atom")
    registers, shared = _resources(each[0])
    return Work(
        blocks=total,
        threads=int(np.prod(launch.block)),
        registers=registers,
        shared=shared,
        dram_read=read,
        dram_written=written,
        dram_filled=written * in_part,
        l2_loaded=min(asked, loads) if loads else 0.0,
        l2_stored=scale * more * sum(k.whole for k in looks),
        l2_partly=scale * more * sum(k.partly for k in looks),
        lines=scale * more * sum(k.lines for k in looks),
        wavefronts=waves,
        instructions=scale * more * issued,
        fp32=summed(_FLOPS, "fadd fmul ffma ffma"),  # a multiply-add is two operations
        fp64=summed(_FLOPS, "dadd dmul dfma"),
        tensor=summed(_TENSOR, "bf16_dst_fp32 fp16 tf32_dst_fp32 int8"),
        special=lanes["special functions"],
        integer=lanes["integer"],
        atomic_sectors=summed(_SECTORS, "atom red"),
        atomic_lines=max(1.0, atomic / LINE) if atomic else 0.0,
        chain=max(cycles for cycles, _ in chains),
        alone=max(cycles for _, cycles in chains),
    )


def _about(
    look: _Look, metrics: Mapping[str, float], launch: Launch, program: Any, memory: Any, total: int
) -> tuple[float, float, float]:
    """Of one block: the part of what L2 is asked for that comes from device memory, passes per shared access, and
    machine instructions per `slots`."""
    code = program.instructions
    read = _growing([look.granules(look.loaded)], GRANULE, total, memory)
    waves = sum(metrics.get(_WAVEFRONTS.format(kind), 0.0) for kind in ("ld", "st"))
    waves *= min(1.0, sum(look.counted.values()) / max(metrics["smsp__inst_executed.sum"], 1.0))  # of what was seen
    asked = sum(n for pc, n in look.counted.items() if _is_shared(code[pc]))
    slotted = sum(n * slots(code[pc]) for pc, n in look.counted.items())
    return (
        min(1.0, (read + 1.0) / (SECTOR * look.asked * total + 1.0)),
        waves / max(asked, 1),
        _issued(look.counted, launch, program) / max(slotted, 1.0),
    )


def _is_shared(i: Instruction) -> bool:
    return i.op in ("ld", "st") and "shared" in "".join(i.mods)


def _distinct(pieces: list[np.ndarray]) -> np.ndarray:
    return np.unique(np.concatenate(pieces)) if pieces else np.zeros(0, np.int64)


def _growing(blocks: list[np.ndarray], unit: int, scale: float, memory: Any) -> float:
    """Bytes of distinct pieces that all blocks touch: as many more as there are blocks, at most each whole array."""
    together = _distinct(blocks)
    found = 0.0
    windows, counts = np.unique(together * unit >> WINDOW_BITS, return_counts=True)
    for window, count in zip(windows.tolist(), counts.tolist(), strict=True):
        size = len(memory.buffers[window - 1].data)
        found += min(scale * count * unit, -(-size // unit) * unit)
    return found


# ---------------------------------------------------------------------------- one block's time

_SPECIAL = {"ex2", "lg2", "sin", "cos", "rsqrt", "rcp", "sqrt", "tanh"}
_LOGIC = {"and", "or", "xor", "not", "shl", "shr", "shf", "min", "max", "setp", "selp", "lop3", "prmt", "bfe", "bfi"}
_FREE = {"mov", "cvta", "ret", "exit"}  # of registers, names and ends: ptxas needs no instruction for most


def unit(i: Instruction) -> str:
    """Which of the narrower pipes an instruction goes to, "" for the others."""
    wide = i.type in ("f64",)
    if i.op in _SPECIAL and not wide:
        return "special functions"
    if i.op in _LOGIC and not (i.type or "").startswith("f"):
        return "integer"
    return ""


def slots(i: Instruction) -> float:
    """Machine instructions that ptxas makes of one PTX instruction, on average; 64-bit integers take two and more."""
    kind = i.type or ""
    if i.op in _FREE or i.op == "ld" and {"param", "const"} & set(i.mods):
        return 0.0
    if kind in ("s64", "u64", "b64", "pred64") and i.op not in ("ld", "st", "cvt"):
        return {"mul": 4.0, "mad": 4.0, "div": 70.0, "rem": 70.0}.get(i.op, 2.0)
    if i.op in ("div", "rem") and kind[0] in "su":
        return 18.0
    if i.op in ("div", "sqrt", "rcp") and "approx" not in i.mods:
        return 9.0
    return 1.0


def _latency(i: Instruction, cycles: dict[str, float]) -> float:
    """Cycles until the result of an instruction that touches no global memory can be used."""
    if i.op in ("shfl", "vote", "match", "redux", "activemask"):
        return cycles["shuffle"]
    if i.op == "ld" and "shared" in "".join(i.mods) or i.op == "ldmatrix":
        return cycles["shared"]
    if i.op in ("mma", "wmma"):
        return cycles["tensor"]
    if i.op in _FREE or i.op == "ld":
        return 0.0
    if i.op in ("atom", "red"):
        return cycles["atomic"]
    if i.op in _SPECIAL:
        return cycles["special function"] * (2 if "approx" not in i.mods else 1)
    if i.type == "f64":
        return cycles["double"]
    if unit(i) == "integer":
        return cycles["integer"]
    return cycles["multiply-add"]


def _chains(
    look: _Look, launch: Launch, program: Any, fraction: float, passes: float, swelling: float
) -> tuple[float, float]:
    """Cycles from the beginning to the end of what was seen of one block: as if each of its warps were alone on the
    multiprocessor, and with the warps of a scheduler taking turns at issuing, and those of a block at shared memory.

    fraction: of what L2 is asked for, the part that comes from device memory.  passes: wavefronts per shared access.
    swelling: machine instructions per `slots`.
    """
    who = np.array(look.who)
    if not len(who):
        return 0.0, 0.0
    warps = who.shape[1]
    warp = int(who.sum(axis=0).argmax())
    steps = np.flatnonzero(who[:, warp]).tolist()
    code = program.instructions
    cycles = latencies()
    beyond = cycles["L2 hit"] + fraction * (cycles["DRAM"] - cycles["L2 hit"])
    together = _together(launch, program)
    leaders = _leaders(code)
    near = [_latency(i, cycles) for i in code]
    barriers = [is_barrier(i) for i in code]
    flows = [tuple([r.slot for r in regs] for regs in defs_and_uses(i)) for i in code]

    def walk(sharing: float, turns: float) -> float:
        takes = [slots(i) * sharing * swelling for i in code]
        served = [passes * turns if _is_shared(i) else 0.0 for i in code]
        ready: dict[int, float] = {}
        begin = latest = issued = shared = 0.0
        before = turn = 0
        for step in steps:
            pc = look.pcs[step]
            if pc in leaders:
                # The same stretch again: ptxas unrolls short loops, and so has several turns' loads in flight.
                turn = turn + 1 if pc == before else 0
                if turn % together == 0 or pc != before:
                    begin, issued, shared = max(latest, begin + max(issued, shared)), 0.0, 0.0
                before = pc
            issued += takes[pc]
            shared += served[pc]
            defs, uses = flows[pc]
            at = begin
            for slot in uses:
                when = ready.get(slot, 0.0)
                if when > at:
                    at = when
            if at > latest:
                latest = at
            wait = near[pc]
            far = look.far.get(step)
            if far is not None:
                wait = beyond if far[warp] else cycles["L1 hit"]
            for slot in defs:
                ready[slot] = at + wait
            if barriers[pc]:
                begin, issued, shared = max(latest, begin + max(issued, shared)) + cycles["barrier"], 0.0, 0.0
        return max(latest, begin + max(issued, shared), max(ready.values(), default=0.0))

    return walk(1.0, 1.0), walk(max(1.0, warps / SCHEDULERS), float(warps))


_ANCHORS = ("floats", "global", "shared")  # what ptxas neither adds nor drops: by its count, a line's loop was unrolled


def _issued(counted: Mapping[int, int], launch: Launch, program: Any) -> float:
    """Machine instructions for PTX instructions that were executed `counted` times, line by line.

    A line's share of the machine code, over how often ptxas has unrolled it; lines with nothing to tell that by are
    taken to be unrolled as those are that run about as often. ptxas's own routines run as often as they are called:
    those of 64-bit divisions each time, and those of floating point for no ordinary numbers.
    """
    machine, ptx, unrolled, routines = Counter(), Counter(), {}, Counter()
    runs: dict[Any, int] = defaultdict(int)
    for sass in machine_code(launch.ptx, launch.entry, max_registers=launch.max_registers).code:
        name = sass.op.split(".")[0]
        if sass.routine:
            routines[sass.routine] += name != "NOP"
            continue
        if name != "NOP":
            machine[sass.at] += 1
        kind = "floats" if name[1:] in ("FMA", "ADD", "MUL") and name[0] in "FD" else None
        kind = {"LDG": "global", "STG": "global", "LDS": "shared", "STS": "shared"}.get(name, kind)
        machine[sass.at, kind] += 1
    total = 0.0
    for i in program.instructions:
        runs[i.inner] += counted.get(i.index, 0)
        ptx[i.inner] += 1
        if i.op in ("div", "rem") and i.type in ("s64", "u64"):
            total += counted.get(i.index, 0) * routines[f"__cuda_sm20_{i.op}_{i.type}"]
        kind = None
        if i.op in ("add", "sub", "mul", "fma", "mad") and (i.type or "").startswith("f"):
            kind = "floats"
        elif i.op in ("ld", "st"):
            kind = "shared" if "shared" in "".join(i.mods) else "global" if "global" in i.mods else None
        ptx[i.inner, kind] += 1
    turns = {at: n / ptx[at] for at, n in runs.items() if n}
    for at in turns:
        kind = next((k for k in _ANCHORS if ptx[at, k] and machine[at, k]), None)
        if kind:
            unrolled[at] = machine[at, kind] / ptx[at, kind]
    for at, often in turns.items():
        times = unrolled.get(at)
        if times is None:
            near = min(unrolled, key=lambda other: abs(math.log(turns[other] / often)), default=None)
            alike = near is not None and abs(math.log(turns[near] / often)) < 1.5
            times = unrolled[near] if alike else 1.0
        total += often * machine[at] / times
    return total


def _leaders(code: list[Instruction]) -> set[int]:
    """Where control may come from elsewhere, or has just been decided."""
    found = {0}
    for i in code:
        if i.op in ("bra", "brx"):
            found.add(i.index + 1)
            for operand in i.operands:
                found.update(getattr(operand, "pc", ()))
    return found


def _together(launch: Launch, program: Any) -> int:
    """How many turns of a loop have their loads in flight at once, by the machine code: at least 1."""
    most, since = 0, 0
    waiting: set[str] = set()
    for sass in machine_code(launch.ptx, launch.entry).code:
        name = sass.op.split(".")[0]
        registers = re.findall(r"\bU?R\d+\b", sass.operands)
        if waiting & set(registers):
            waiting, since = set(), 0
        if name == "LDG":
            waiting.add(registers[0])
            since += 1
            most = max(most, since)
        if name in ("BRA", "BAR", "EXIT"):
            waiting, since = set(), 0
    leaders, here, there = _leaders(program.instructions), 0, 0
    for i in program.instructions:
        if i.index in leaders:
            here = 0
        if i.op == "ld" and "global" in i.mods:
            here += 1
            there = max(there, here)
    return max(1, most // there) if there else 1
