"""What the hardware's counters would read, from the addresses and masks of an emulated run.

The rules were fitted to Nsight Compute on an H200, 992 accesses of one warp each, and match them to
the last digit (tests/counters_h200.json holds the readings):

* global: one request per warp instruction with an active lane; sectors are the distinct 32-byte
  pieces that its lanes touch. Atomics repeat a sector as often as its most wanted element.
* cp.async: by the lanes that copy anything, however much. Through the L1 (.ca) as loads do; past it (.cg) a sector for
  each 32 bytes of shared memory that lanes write from one line of 128 bytes (tests/copies_h200.json has readings).
* shared: a wavefront serves each of the 32 banks (4 bytes wide) one word. 8-byte accesses go by half
  warps and 16-byte ones by quarter warps; a load whose lanes (n, n^1), or (n, n^2), all agree on
  the address takes half as many passes. Atomics serve one lane per bank and wavefront.
* bank conflicts are the wavefronts beyond those passes.
* ldmatrix and stmatrix: each 8 rows of 16 bytes as a quarter warp's 16-byte accesses; wmma's loads and stores as
  the loads and stores, or ldmatrix, that ptxas makes of them.
* tensor operations: 2 * m * n * k of a warp's instruction.
* local: lanes are interleaved by 4 bytes, so that a word of a whole warp is one 128-byte line.
"""

from __future__ import annotations

from collections import Counter as Tally
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.emulator import sass, tensor
from labkit.emulator.ptx import parse, short_name
from labkit.emulator.sass import AS_PTX, METRICS, Plan, memory_plan

if TYPE_CHECKING:
    from labkit.emulator.launch import Launch
    from labkit.emulator.memory import Memory
    from labkit.emulator.ptx import Instruction

LANES = 32
SECTOR = 32
LINE = 128
GRANULE = 64  # bytes that DRAM reads at once on GH100
_NONE = np.iinfo(np.int64).max  # stands for an inactive lane; sorts last
_WINDOW_BITS = 36  # one buffer's window, see memory.py

_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_{}_op_{}.sum"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_{}_op_{}.sum"
_PER_REQUEST = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_{}_op_{}.ratio"
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
_LOCAL = "smsp__sass_inst_executed_op_local_{}.sum"
_FLOPS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
_TENSOR = "sm__ops_path_tensor_src_{}.sum"
_DISTINCT = "labkit__distinct_bytes_global_op_{}.sum"
_INST = "smsp__inst_executed.sum"
_THREADS = "smsp__thread_inst_executed.sum"
_RATIO = "smsp__thread_inst_executed_per_inst_executed.ratio"
_DIVERGENT = "smsp__sass_branch_targets_threads_divergent.sum"
_DRAM_READ = "dram__bytes_read.sum"
_BUSIEST = "labkit__inst_executed_busiest_block.sum"
GLOBAL_KINDS = ("ld", "st", "atom", "red")

SUMS = (
    *(m.format("global", k) for k in GLOBAL_KINDS for m in (_REQUESTS, _SECTORS)),
    *(m.format(k) for k in ("ld", "st", "atom") for m in (_WAVEFRONTS, _CONFLICTS)),
    *(m.format("local", k) for k in ("ld", "st") for m in (_REQUESTS, _SECTORS)),
    *(_LOCAL.format(k) for k in ("ld", "st")),
    *(_FLOPS.format(p + o) for p in "fdh" for o in ("add", "mul", "fma")),
    *(_TENSOR.format(t) for t in ("bf16_dst_fp32", "fp16", "tf32_dst_fp32", "int8", "fp64")),
    _INST,
    _THREADS,
    _DIVERGENT,
    _BUSIEST,
    *(_DISTINCT.format(k) for k in ("ld", "st")),
    _DRAM_READ,
)
RATIOS = {
    **{
        _PER_REQUEST.format(space, k): (_SECTORS.format(space, k), _REQUESTS.format(space, k))
        for space, kinds in (("global", GLOBAL_KINDS), ("local", ("ld", "st")))
        for k in kinds
    },
    _RATIO: (_THREADS, _INST),
}

# What every launch reads from DRAM beside its data and its code: the median of 130 launches that an H200 ran, less
# those two. Each is within WITHIN of it.
LAUNCH_BYTES = 2240
WITHIN = {_DRAM_READ: 2048}  # how far a reading may be from a count that is "modeled", per launch
CACHED = 20 << 20  # bytes that L2 surely keeps


# ---------------------------------------------------------------------------- the rules


def distinct(keys: np.ndarray, active: np.ndarray | None = None) -> int:
    """The number of distinct keys among the active lanes of each warp, summed over the warps.

    keys: int64 (warps, 32); active: bool of that shape, None for all lanes.
    """
    if active is not None:
        keys = np.where(active, keys, _NONE)
    left, right = keys[:, :-1], keys[:, 1:]
    if (right < left).any():
        keys = np.sort(keys, axis=1)
        left, right = keys[:, :-1], keys[:, 1:]
    total = np.count_nonzero(left != right) + len(keys)
    if active is not None:
        total -= np.count_nonzero(keys[:, -1] == _NONE)
    return int(total)


def atomic_sectors(addr: np.ndarray, active: np.ndarray | None, width: int) -> int:
    """Sectors of global atomics: each distinct sector as often as its most wanted element."""
    element = addr // width
    if active is not None:
        element = np.where(active, element, _NONE)
    element = np.sort(element, axis=1)
    warp = np.arange(element.size) // LANES
    flat = element.ravel()
    keep = flat != _NONE
    flat, warp = flat[keep], warp[keep]
    if not len(flat):
        return 0
    first = _starts(flat, warp)
    lanes = np.diff(np.append(first, len(flat)))
    sector, warp = flat[first] * width // SECTOR, warp[first]
    return int(np.maximum.reduceat(lanes, _starts(sector, warp)).sum())


def copied_sectors(addr: np.ndarray, to: np.ndarray, active: np.ndarray | None) -> tuple[int, bool]:
    """Sectors of copies of 16 bytes past the L1, from `addr` to `to` in shared memory.

    addr, to: bytes, int64 (warps, 32); active: bool of that shape, None for all lanes.
    A sector fills 32 bytes of shared memory from one line of 128 bytes, wherever its two pieces lie in that. Also
    returns whether it is sure: of lanes that write the same piece, no reading tells which one counts.
    """
    active = np.ones(addr.shape, dtype=bool) if active is None else active
    pieces = np.sort(np.where(active, to // 16, -1 - np.arange(LANES)), axis=1)
    columns = to[active] // SECTOR, addr[active] // LINE, np.nonzero(active)[0]
    order = np.lexsort(columns)
    sectors = len(_starts(*(column[order] for column in columns))) if len(order) else 0
    return sectors, not (pieces[:, 1:] == pieces[:, :-1]).any()


def wavefronts(
    offset: np.ndarray, active: np.ndarray | None, width: int, kind: str = "ld"
) -> tuple[int, int]:
    """(wavefronts, bank conflicts) of shared accesses, summed over the warps.

    offset: int64 (warps, 32), bytes; active: bool of that shape or None; width: bytes per lane;
    kind: "ld", "st" or "atom".
    """
    if active is None:
        # Warps usually differ by a constant, and a constant only turns the banks around.
        shape = offset - offset[:, :1]
        aligned = not ((offset[:, 0] - offset[0, 0]) % 4).any()
        if len(offset) > 1 and aligned and (shape == shape[0]).all():
            waves, conflicts = wavefronts(offset[:1], None, width, kind)
            return waves * len(offset), conflicts * len(offset)
        if width <= 4 and kind != "atom":
            word = offset >> 2
            if (word.max(axis=1) - word.min(axis=1) < 32).all():
                return len(offset), 0
        active = np.ones(offset.shape, dtype=bool)
    if kind == "atom":
        return _passes(offset, active, width, 1, lanes_count=True)
    groups = max(width // 4, 1)
    if groups == 1 or kind == "st":
        return _passes(offset, active, width, groups)
    paired = np.zeros(len(offset), dtype=bool)
    lane = np.arange(LANES)
    for step in (1, 2):
        other = lane ^ step
        agree = (offset == offset[:, other]) | ~active | ~active[:, other]
        paired |= agree.all(axis=1)
    waves, conflicts = 0, 0
    for rows, count in ((paired, groups // 2), (~paired, groups)):
        if rows.any():
            more, worse = _passes(offset[rows], active[rows], width, count)
            waves, conflicts = waves + more, conflicts + worse
    return waves, conflicts


def _passes(
    offset: np.ndarray, active: np.ndarray, width: int, groups: int, lanes_count: bool = False
) -> tuple[int, int]:
    """Wavefronts when the warp goes in `groups` passes, and those beyond one per pass in use."""
    size = LANES // groups
    offset, active = offset.reshape(-1, size), active.reshape(-1, size)
    used = active.any(axis=1)
    offset, active = offset[used], active[used]
    if not len(offset):
        return 0, 0
    group = np.broadcast_to(np.arange(len(offset))[:, None], offset.shape)[active]
    word = offset[active] >> 2
    if width > 4:
        words = width // 4
        word = (word[:, None] + np.arange(words)).ravel()
        group = np.repeat(group, words)
    bank = word & 31
    if not lanes_count:
        order = np.lexsort((word, group))
        word, group, bank = word[order], group[order], bank[order]
        first = _starts(word, group)
        group, bank = group[first], bank[first]
    load = np.bincount(group * 32 + bank, minlength=len(offset) * 32).reshape(-1, 32)
    waves = int(load.max(axis=1).sum())
    return waves, waves - len(offset)


def _starts(*columns: np.ndarray) -> np.ndarray:
    """Where a run of equal rows begins."""
    new = np.zeros(len(columns[0]), dtype=bool)
    new[0] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)


# ---------------------------------------------------------------------------- distinct bytes


class _Seen:
    """Which bytes of one buffer were touched, one flag per `unit` bytes of its window."""

    def __init__(self, unit: int) -> None:
        self.unit = unit
        self.flags = np.zeros(1024, dtype=bool)

    def mark(self, offset: np.ndarray, width: int) -> None:
        """offset: bytes from the start of the window, aligned to `width`."""
        if width < self.unit:
            self.flags = np.repeat(self.flags, self.unit // width)
            self.unit = width
        top = int(offset.max()) // self.unit + width // self.unit
        if top > len(self.flags):
            grown = np.zeros(1 << int(top - 1).bit_length(), dtype=bool)
            grown[: len(self.flags)] = self.flags
            self.flags = grown
        index = offset // self.unit
        for k in range(width // self.unit):
            self.flags[index + k] = True

    def at(self, unit: int, length: int) -> np.ndarray:
        """The flags per `unit` bytes (a divisor of the own unit), padded to `length` bytes."""
        flags = np.zeros(length // unit, dtype=bool)
        mine = np.repeat(self.flags, self.unit // unit)
        flags[: len(mine)] = mine
        return flags


def _union(seen: list[_Seen]) -> np.ndarray:
    """Which pieces of the smallest unit any of them touched, as flags over whole granules."""
    unit = min(s.unit for s in seen)
    length = -(-max(len(s.flags) * s.unit for s in seen) // GRANULE) * GRANULE
    flags = seen[0].at(unit, length)
    for other in seen[1:]:
        flags |= other.at(unit, length)
    return flags


def _spins(instructions: list[Instruction]) -> bool:
    """Whether an atomic stands in a loop, so that its count may depend on what other threads do meanwhile."""
    loops = _loops(instructions)
    return any(i.op == "atom" and any(first <= i.index <= back for first, back in loops) for i in instructions)


def _loops(instructions: list[Instruction]) -> list[tuple[int, int]]:
    """Each loop by its first instruction and the branch that goes back to it."""
    branches = [i for i in instructions if i.op == "bra"]
    return [(b.operands[0].pc[0], b.index) for b in branches if b.operands[0].pc[0] <= b.index]


def _leaving(instructions: list[Instruction], parting: list[int]) -> dict[tuple[int, int], bool]:
    """For each loop, whether lanes of a warp leave it at different times: `parting` branches go on, or out of it."""
    return {
        (first, back): any(
            pc == back or first <= pc <= back and not all(first <= to <= back for to in instructions[pc].operands[0].pc)
            for pc in parting
        )
        for first, back in _loops(instructions)
    }


# ---------------------------------------------------------------------------- accumulation


class Counters:
    """Counts of the launches of one emulation; those of several launches add up.

    After a run: `metrics` (ncu's full names), `lines` (one dict per source line), `fidelity` of each
    metric ("exact", "bound" or "modeled"), `buffers` (distinct bytes per array, by its number) and
    `launches`, and `described`, facts of each launch. `sass=False` counts the PTX as it stands, without
    asking ptxas what it made of it. `memory` tells which memory is new: what nobody has written before a
    launch, the launch does not read from DRAM.
    """

    def __init__(self, *, sass: bool = True) -> None:
        self.sass = sass
        self.memory: Memory | None = None
        self.launches = 0
        self.kernels: list[str] = []
        self.described: list[dict[str, float]] = []
        self.notes: list[str] = []
        self.buffers: dict[int, dict[str, int]] = {}
        self._lines: dict[tuple[str | None, int | None], dict[str, float]] = {}
        self._totals = dict.fromkeys(SUMS, 0.0)
        self._launch: dict[str, float] = {}
        self._fidelity: dict[str, str] = {
            _INST: "modeled",
            _THREADS: "modeled",
            _RATIO: "modeled",
            _DIVERGENT: "modeled",
            _BUSIEST: "modeled",
            _DRAM_READ: "modeled",
        }

    # ---- what the engine calls

    def prepare(self, launch: Launch) -> None:
        """A launch is about to be compiled for the emulator: let its machine code be made meanwhile."""
        if self.sass:
            sass.begin(launch)

    def begin(self, launch: Launch, instructions: list[Instruction]) -> None:
        """A launch starts; its instructions' `index` are the program counters used below."""
        self._program = instructions
        count = len(instructions)
        self._warps, self._threads, self._on = [0] * count, [0] * count, [0] * count
        self._divergent = [0] * count
        self._branch = [i.op == "bra" and i.guard is not None for i in instructions]
        self._access: dict[tuple[int, str, str], list[int]] = {}
        self._memo: dict[int, tuple] = {}
        self._rows: dict[tuple | None, tuple] = {}
        self._seen: dict[tuple, _Seen] = {}  # by source position, direction and buffer
        buffers = enumerate(self.memory.buffers) if self.memory else ()
        self._new = {n: b.initialized.data == 0 for n, b in buffers if b.initialized is not None}
        self.launches += 1
        self.kernels.append(short_name(launch.entry))
        self._describe(launch)
        if any(i.op == "wmma" and "mma" not in i.mods and "global" not in i.mods for i in instructions):
            # ptxas's accesses are known, but ncu has not been asked for their wavefronts.
            shared = (m.format(k) for k in ("ld", "st") for m in (_WAVEFRONTS, _CONFLICTS))
            self._fidelity.update({name: "modeled" for name in shared if self._fidelity.get(name) != "bound"})
        if _spins(instructions):
            # How often a thread asks before it gets its turn is a matter of time, which nothing here knows.
            for form in (_REQUESTS, _SECTORS, _PER_REQUEST):
                self._fidelity[form.format("global", "atom")] = "bound"

    def executed(self, pc: int, active: Any, pred_on: Any) -> None:
        """Instruction `pc` runs in the lanes `active`, and takes effect in `pred_on`."""
        self._warps[pc] += active.warps
        self._threads[pc] += active.threads
        on = pred_on.threads
        self._on[pc] += on
        if self._branch[pc] and 0 < on < active.threads:
            taken = pred_on.bits.reshape(-1, LANES)
            stays = ~taken if active.bits is None else active.bits.reshape(-1, LANES) & ~taken
            self._divergent[pc] += int((taken.any(axis=1) & stays.any(axis=1)).sum())

    def access(
        self, instr: Instruction, space: str, kind: str, addr: Any, mask: Any, width: int, chunk: Any, to: Any = None,
        sizes: Any = None,
    ) -> None:  # fmt: skip
        """The lanes of `mask` access `width` bytes each at `addr` (one per thread, or one for all).

        to : where in shared memory cp.async brings them.  sizes : how many of them, where that is not all everywhere.
        """
        if space not in ("global", "shared", "local") or not mask.threads:
            return
        pc = instr.index
        if to is not None:
            self._copy(instr, addr, _bits(mask, chunk), mask.warps, width, chunk, to, sizes)
            return
        kind = self._kinds.get(pc, kind)
        last = self._memo.get(pc)
        if last is not None and last[0] is addr and last[1] is mask and last[2] is chunk:
            counts = last[3]
        else:
            counts = None
            bits = _bits(mask, chunk)
            if last is not None and space == "shared" and last[1] is mask and last[2] is chunk:
                # Shared offsets come back with every turn of a loop over tiles.
                if np.ndim(addr) and np.ndim(last[0]) and np.array_equal(addr, last[0]):
                    counts = last[3]
            if counts is None:
                counts = self._count(pc, space, kind, addr, bits, mask, width)
            self._memo[pc] = (addr, mask, chunk, counts)
        total = self._access.setdefault((pc, space, kind), [0, 0, 0])
        for k in range(3):
            total[k] += counts[k]

    def _copy(
        self, instr: Instruction, addr: Any, bits: np.ndarray | None, warps: int, width: int, chunk: Any, to: Any,
        sizes: Any,
    ) -> None:  # fmt: skip
        if sizes is None:
            self._mark(instr.index, "ld", addr, bits, width)
        else:
            for shift in range(0, width, 4):
                some = (sizes > shift) & (chunk.valid if bits is None else bits)
                if some.any():
                    self._mark(instr.index, "ld", addr + shift, some, 4)
        threads = (len(chunk.valid),)
        addr, to = (np.broadcast_to(np.asarray(a, dtype=np.int64), threads).reshape(-1, LANES) for a in (addr, to))
        active = None if bits is None else bits.reshape(-1, LANES)
        if "cg" in instr.mods:
            sectors, sure = copied_sectors(addr, to, active)
        else:
            sectors, sure = distinct(addr // SECTOR, active), True
        total = self._access.setdefault((instr.index, "global", "ld"), [0, 0, 0])
        total[0] += warps
        total[1] += sectors
        if not sure:
            self._fidelity[_SECTORS.format("global", "ld")] = "bound"

    # What compiled code has counted, once per launch.

    def rows(
        self, instr: Instruction, space: str, kind: str, addr: np.ndarray, active: np.ndarray, width: int,
        *, times: int = 1,
    ) -> None:  # fmt: skip
        """`times` accesses of warps at `addr`, int64 (warps, 32), by the lanes `active`; no bytes are marked."""
        bits = None if active.all() else active
        mask = SimpleNamespace(warps=len(addr), threads=int(active.sum()))
        total = self._access.setdefault((instr.index, space, kind), [0, 0, 0])
        for shift, size in self._parts.get(instr.index, ((0, width),)):
            merged = instr.index in self._merged
            key = (space, kind, size, merged, (addr[0] + shift).tobytes(), active.tobytes()) if len(addr) == 1 else None
            counts = self._rows.get(key)
            if counts is None:
                counts = self._part(space, kind, addr, bits, mask, shift, size, merged)
                if key is not None:
                    self._rows[key] = counts
            for k, n in enumerate(counts):
                total[k] += n * times

    def marked(self, at: tuple, kind: str, buffer: int, offsets: np.ndarray, width: int) -> None:
        """Code of source position `at` has touched `width` bytes at `offsets` from the start of a buffer's window."""
        seen = self._seen.setdefault((at, kind, buffer), _Seen(width))
        seen.mark(offsets, width)

    def end(self, busiest: int = 0) -> None:
        """The launch is over, whose busiest block ran so many instructions: fold its counts into the totals."""
        self._totals[_BUSIEST] += busiest
        # Lanes that leave a loop at different times meet later once it is unrolled: each access has fewer of them.
        parting = [n for n, split in enumerate(self._divergent) if split]
        leaving = _leaving(self._program, parting)
        for pc, space, kind in self._access if parting else ():
            around = [loop for loop in leaving if loop[0] <= pc <= loop[1]]
            if pc in self._repeated and (any(leaving[loop] for loop in around) or not around):
                kinds = ("atom", "red") if kind in ("atom", "red") else (kind,)
                self._fidelity.update(dict.fromkeys((m.format(k) for m in METRICS[space] for k in kinds), "bound"))
        for pc, space, kind in self._access if parting else ():
            if (space, kind) == ("local", "ld") and self._threads[pc] < LANES * self._warps[pc]:
                # ptxas may load before the branch that leads there: local memory is always there to be read.
                self._fidelity.update(dict.fromkeys((m.format("ld") for m in METRICS["local"]), "bound"))
        for pc, (branch, taken) in self._sunk.items():
            # Exact all the same where every lane goes where the load went.
            if self._on[branch] != (self._threads[branch] if taken else 0):
                spaces = [s for s in METRICS if s in self._program[pc].mods] or ("global", "shared")
                self._fidelity.update(dict.fromkeys((m.format("ld") for s in spaces for m in METRICS[s]), "bound"))
        if self._idle_code() > WITHIN[_DRAM_READ]:
            self._fidelity[_DRAM_READ] = "bound"
        for pc, instr in enumerate(self._program):
            if not self._warps[pc]:
                continue
            self._add(instr, _INST, self._warps[pc])
            self._add(instr, _THREADS, self._threads[pc])
            if self._divergent[pc]:
                self._add(instr, _DIVERGENT, self._divergent[pc])
            if made := tensor.operations(instr):
                self._add(instr, _TENSOR.format(made[0]), made[1] * self._on[pc] // LANES)
            flop, lanes = _flop(instr)
            if flop:
                self._add(instr, _FLOPS.format(flop), lanes * self._on[pc])
        for (pc, space, kind), (requests, work, conflicts) in self._access.items():
            instr = self._program[pc]
            if space == "shared":
                kind = "atom" if kind == "red" else kind
                self._add(instr, _WAVEFRONTS.format(kind), work)
                self._add(instr, _CONFLICTS.format(kind), conflicts)
            else:
                self._add(instr, _REQUESTS.format(space, kind), requests)
                self._add(instr, _SECTORS.format(space, kind), work)
                if space == "local":
                    self._add(instr, _LOCAL.format(kind), conflicts)
        self._fold_bytes()
        del self._program, self._memo, self._rows, self._seen, self._access

    # ---- results

    @property
    def metrics(self) -> dict[str, float]:
        """Totals under ncu's names; ratios of things that never happened are left out."""
        return {**self._launch, **_with_ratios(self._totals)}

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Counts per source line, sorted: file, line, and the metrics that are not zero there."""
        order = sorted(self._lines, key=lambda at: (at[0] or "", at[1] or 0))
        return [
            {"file": file, "line": line, **_with_ratios(self._lines[file, line])}
            for file, line in order
        ]

    @property
    def fidelity(self) -> dict[str, str]:
        """How far to trust each metric: "exact", "bound" or "modeled"."""
        found = {name: self._fidelity.get(name, "exact") for name in self.metrics}
        for ratio, (above, below) in RATIOS.items():
            if ratio in found and "bound" in (found[above], found[below]):
                found[ratio] = "bound"
        return found

    # ---- inside

    def _idle_code(self) -> float:
        """Bytes of machine code that did not run: each line's, as far as its PTX did not run.

        The GPU fetches code ahead of what runs: in most launches all of it, and in some only part.
        """
        there, idle = Tally(), Tally()
        for pc, instr in enumerate(self._program if self._code else ()):
            there[instr.inner] += 1
            idle[instr.inner] += not self._warps[pc]
        return sum(size * idle[at] / there[at] for at, size in self._code.items() if there[at])

    def _describe(self, launch: Launch) -> None:
        program = parse(launch.ptx).program(launch.entry)
        blocks, threads = int(np.prod(launch.grid)), int(np.prod(launch.block))
        facts = {
            "launch__grid_size": blocks,
            "launch__block_size": threads,
            "launch__thread_count": blocks * threads,
            "launch__shared_mem_per_block_static": program.shared_size,
            "launch__shared_mem_per_block_dynamic": launch.shared,
        }
        plan = memory_plan(launch, program) if self.sass else Plan(bounds=AS_PTX)
        self._parts, self._kinds, self._repeated, self._merged = plan.parts, plan.kinds, plan.repeated, plan.merged
        self._sunk, self._code = plan.sunk, plan.code
        if plan.exact:
            self._totals[_DRAM_READ] += plan.launch["labkit__code_bytes"] + LAUNCH_BYTES
        else:
            self._fidelity[_DRAM_READ] = "bound"
            self._fidelity.update(dict.fromkeys(("launch__registers_per_thread", "labkit__code_bytes"), "modeled"))
        self.notes += [n for n in plan.notes if n not in self.notes]
        facts.update(plan.launch)
        self._fidelity.update(dict.fromkeys(plan.bounds, "bound"))
        self.described.append(facts)
        sums = ("launch__grid_size", "launch__thread_count", "labkit__code_bytes")
        for name, value in facts.items():
            old = self._launch.get(name, 0)
            self._launch[name] = old + value if name in sums else max(old, value)

    def _count(
        self, pc: int, space: str, kind: str, addr: Any, bits: Any, mask: Any, width: int
    ) -> tuple[int, int, int]:
        """(requests, sectors or wavefronts, conflicts) of one access of the chunk.

        For local memory the third is the number of warp instructions.
        """
        parts = self._parts.get(pc)
        if parts is None:
            parts = ((0, width),)
        if space == "global":
            self._mark(pc, kind, addr, bits, width)
        total = [0, 0, 0]
        for shift, size in parts:
            for k, n in enumerate(self._part(space, kind, addr, bits, mask, shift, size, pc in self._merged)):
                total[k] += n
        return tuple(total)

    def _part(
        self, space: str, kind: str, addr: Any, bits: Any, mask: Any, shift: int, width: int, merged: bool
    ) -> tuple[int, int, int]:
        warps = mask.warps
        atomic = kind in ("atom", "red") and not merged  # merged, they go by addresses, as loads do
        if np.ndim(addr) == 0:
            if space == "global" and not atomic or space == "shared" and width <= 4 and not atomic:
                return warps, warps, 0
            size = bits.size if bits is not None else mask.threads
            addr = np.full(size, addr, dtype=np.int64)
        addr = addr.reshape(-1, LANES)
        active = None
        if bits is not None:
            active = bits.reshape(-1, LANES)
            if warps < len(addr):
                rows = active.any(axis=1)
                addr, active = addr[rows], active[rows]
        if shift:
            addr = addr + shift
        if space == "shared":
            waves, conflicts = wavefronts(addr, active, width, "atom" if atomic else "ld" if merged else kind)
            return warps, waves, conflicts
        if space == "local":
            words = max(width // 4, 1)
            lane = np.arange(LANES)
            sectors = sum(
                distinct((((addr >> 2) + k) * 128 + lane * 4) // SECTOR, active)
                for k in range(words)
            )
            return warps * words, sectors, warps
        if atomic:
            return warps, atomic_sectors(addr, active, width), 0
        return warps, distinct(addr >> 5, active), 0

    def _mark(self, pc: int, kind: str, addr: Any, bits: Any, width: int) -> None:
        addr = np.atleast_1d(np.asarray(addr)).astype(np.int64, copy=False)
        if bits is not None and len(addr) > 1:
            addr = addr[bits]
        directions = ("ld", "st") if kind in ("atom", "red") else (kind,)
        first, last = int(addr.min()) >> _WINDOW_BITS, int(addr.max()) >> _WINDOW_BITS
        windows = [first] if first == last else np.unique(addr >> _WINDOW_BITS).tolist()
        for window in windows:
            inside = addr if first == last else addr[addr >> _WINDOW_BITS == window]
            for direction in directions:
                key = (self._at(self._program[pc]), direction, window - 1)
                seen = self._seen.get(key)
                if seen is None:
                    seen = self._seen[key] = _Seen(width)
                seen.mark(inside - (window << _WINDOW_BITS), width)

    def _fold_bytes(self) -> None:
        by_buffer: dict[tuple, list[_Seen]] = {}
        for (at, direction, buffer), seen in self._seen.items():
            name = _DISTINCT.format(direction)
            counts = self._lines[at]
            counts[name] = counts.get(name, 0) + int(_union([seen]).sum()) * seen.unit
            by_buffer.setdefault((direction, buffer), []).append(seen)
        granules: dict[tuple, np.ndarray] = {}
        for (direction, buffer), seen in by_buffer.items():
            flags, unit = _union(seen), min(s.unit for s in seen)
            used = int(flags.sum()) * unit
            entry = self.buffers.setdefault(buffer, {"ld": 0, "st": 0})
            entry[direction] += used
            self._totals[_DISTINCT.format(direction)] += used
            if direction == "ld" and buffer in self._new:
                old = np.zeros(len(flags) * unit, dtype=bool)
                new = self._new[buffer][: len(old)]
                old[: len(new)] = ~new
                flags = flags & old.reshape(-1, unit).any(axis=1)
            granules[direction, buffer] = flags.reshape(-1, GRANULE // unit).any(axis=1)
        for (direction, buffer), read in granules.items():
            if direction == "ld":
                self._totals[_DRAM_READ] += int(read.sum()) * GRANULE
                stored = granules.get(("st", buffer), read[:0])
                both = min(len(read), len(stored))
                if (read[:both] & stored[:both]).any():
                    # What is stored before it is loaded comes from L2; what is loaded first comes from DRAM.
                    self._fidelity[_DRAM_READ] = "bound"
        if sum(int(g.sum()) for g in granules.values()) * GRANULE > CACHED:
            self._fidelity[_DRAM_READ] = "bound"

    @staticmethod
    def _at(instr: Instruction) -> tuple[str | None, int | None]:
        return instr.file, instr.line

    def _add(self, instr: Instruction, name: str, value: float) -> None:
        self._totals[name] += value
        counts = self._lines.setdefault(self._at(instr), {})
        counts[name] = counts.get(name, 0) + value


def _bits(mask: Any, chunk: Any) -> np.ndarray | None:
    """The active lanes as bool over the chunk's threads, None where all of them are active."""
    if mask.threads == len(chunk.valid):
        return None
    return chunk.valid if mask.bits is None else mask.bits


def _flop(instr: Instruction) -> tuple[str | None, int]:
    """Which of ncu's floating-point counters an instruction feeds, and how often per thread."""
    op = {"add": "add", "sub": "add", "mul": "mul", "fma": "fma", "mad": "fma"}.get(instr.op)
    kind = {
        "f32": ("f", 1),
        "f64": ("d", 1),
        "f16": ("h", 1),
        "bf16": ("h", 1),
        "f16x2": ("h", 2),
        "bf16x2": ("h", 2),
    }.get(instr.type)
    return (kind[0] + op, kind[1]) if op and kind else (None, 0)


def _with_ratios(sums: dict[str, float]) -> dict[str, float]:
    ratios = {
        name: sums[above] / sums[below]
        for name, (above, below) in RATIOS.items()
        if sums.get(below) and above in sums
    }
    return {**sums, **ratios}
