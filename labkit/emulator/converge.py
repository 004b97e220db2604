"""Warp operations wait for the lanes that their member masks name; threads made late wait for all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from labkit.emulator.engine import Machine, Mask

u32 = np.uint32
LATE_TURNS = 50
Source = tuple[int, Callable | None]


def ballot(bits: np.ndarray) -> np.ndarray:
    """One uint32 per warp of 32 bools."""
    return np.packbits(bits.reshape(-1, 32), axis=1, bitorder="little").view(u32).ravel()


def meeting(pc: int, members: Source, inner: Callable) -> Callable:
    """A step that lets `inner` run once all lanes of a warp that its members name are there."""

    def step(m: Machine, mask: Mask) -> int | None:
        ready = m.held.ready(pc, mask, members)
        if ready is mask:
            return inner(m, mask)
        if ready is not None:
            inner(m, ready)
            m.push(pc + 1, ready)
            m.refresh()
        return -1

    return step


class Held:
    """Of a chunk: `masks` are the threads that wait before an instruction until others come."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.masks: dict[int, Mask] = {}
        self.late: set[int] = set()  # of them, the instructions where threads are only made late
        self.turns = 0
        self.free: int | None = None  # where the late ones may go on
        self.members: dict[int, Source] = {}
        self.memo: dict[int, tuple] = {}

    def hold(self, pc: int, mask: Mask) -> None:
        before = self.masks.get(pc)
        self.masks[pc] = mask if before is None else self.machine.union(before, mask)
        self.machine.refresh()

    def ready(self, pc: int, mask: Mask, members: Source) -> Mask | None:
        """The threads of the warps whose named lanes are all there; the others are held."""
        m = self.machine
        slot, get = members
        register = m.R[slot]
        memo = self.memo.get(pc)
        if memo is not None and memo[0] is mask and memo[1] is register and memo[2] is m.live and pc not in self.masks:
            return mask
        self.members[pc] = members
        if pc in self.masks:
            whole = m.union(mask, self.masks.pop(pc))
            m.refresh()
        else:
            whole = mask
        missing = self.missing(pc, whole)
        if not missing.any():
            self.memo[pc] = (whole, register, m.live)
            return whole
        incomplete = np.repeat(missing != 0, 32)
        self.hold(pc, m.narrow(whole, incomplete))
        go = whole.where & ~incomplete
        return m.mask(go) if go.any() else None

    def missing(self, pc: int, mask: Mask) -> np.ndarray:
        """Of each warp, the live lanes (as bits) that lanes of the mask name and that are not in it."""
        m = self.machine
        slot, get = self.members[pc]
        names = m.R[slot] if get is None else get(m.R[slot])
        here = ballot(mask.where)
        if np.ndim(names):
            lane = u32(1) << (np.arange(m.chunk.lanes, dtype=u32) & u32(31))
            alone = mask.where & ((names & lane) == 0)
            if m.sanitize and alone.any():
                raise self.stray(pc, int(np.argmax(alone)), int(names[np.argmax(alone)]))
            names = np.bitwise_or.reduce(np.where(mask.where, names, u32(0)).reshape(-1, 32), axis=1)
        else:
            alone = here & ~u32(names)
            if m.sanitize and alone.any():
                warp = int(np.argmax(alone != 0))
                lane = warp * 32 + int(alone[warp] & -alone[warp]).bit_length() - 1
                raise self.stray(pc, lane, int(names))
            names = np.where(here != 0, u32(names), u32(0))
        return names & ballot(m.live.where) & ~here

    def sync_warp(self, pc: int, mask: Mask, members: Source) -> int | None:
        """`bar.warp.sync`, which lanes may meet from different places in the code."""
        m = self.machine
        alone = mask
        others = [p for p in self.masks if p != pc and self.is_sync(p)]
        for p in others:
            mask = m.union(mask, self.masks[p])
        if others or pc in self.masks:
            self.members[pc] = members
            if pc in self.masks:
                mask = m.union(mask, self.masks[pc])
            missing = self.missing(pc, mask)
            done = m.narrow(mask, np.repeat((missing == 0) & (ballot(alone.where) != 0), 32))
            for p in [*others, pc]:
                group = self.masks.pop(p, None)
                if group is not None:
                    on = m.narrow(group, done.where)
                    if on.threads:
                        m.push(p + 1, on)
                    if on.threads < group.threads:
                        self.masks[p] = m.without(group, on) if on.threads else group
            if done.threads:
                m.sync_warp(done)
            mine = m.narrow(alone, done.where)
            if mine.threads:
                m.push(pc + 1, mine)
            if mine.threads < alone.threads:
                self.hold(pc, m.without(alone, mine) if mine.threads else alone)
            m.refresh()
            return -1
        ready = self.ready(pc, mask, members)
        if ready is None:
            return -1
        m.sync_warp(ready)
        if ready is mask:
            return None
        m.push(pc + 1, ready)
        m.refresh()
        return -1

    def is_sync(self, pc: int) -> bool:
        return self.machine.program.instructions[pc].op in ("bar", "barrier") and pc not in self.late

    def another_turn(self) -> None:
        """Groups that spin take turns; after many, the late ones may be what they wait for."""
        self.turns += 1
        if self.turns % LATE_TURNS == 0:
            self.late_ones_go()

    def late_ones_go(self) -> None:
        """Others spin, perhaps for what the late threads have to do."""
        for pc in self.late & set(self.masks):
            self.machine.push(pc, self.masks.pop(pc))
            self.free = pc
        self.machine.refresh()

    def let_go(self) -> None:
        """Nobody else can run: late threads go on, and so do those whose partners have exited meanwhile."""
        m = self.machine
        for pc in [*self.masks]:
            if pc in self.late or not m.sanitize or not self.missing(pc, self.masks[pc]).all():
                mask = self.masks[pc]
                if pc not in self.late and m.sanitize:
                    mask = m.narrow(mask, np.repeat(self.missing(pc, mask) == 0, 32))
                    if not mask.threads:
                        continue
                rest = mask.threads < self.masks[pc].threads
                group = self.masks.pop(pc)
                if rest:
                    self.masks[pc] = m.without(group, mask)
                if pc in self.late:
                    self.free = pc
                    m.push(pc, mask)
                elif m.sanitize:
                    m.push(pc, mask)
                else:
                    self.go_without(pc, mask)
                m.refresh()
                return
        pc = next(iter(self.masks))
        raise self.never(pc, self.masks[pc])

    def go_without(self, pc: int, mask: Mask) -> None:
        """Run a warp operation without the lanes that never come."""
        m = self.machine
        slot, _ = self.members[pc]
        kept = m.R[slot]
        m.R[slot] = np.repeat(ballot(mask.where), 32).astype(kept.dtype if hasattr(kept, "dtype") else u32)
        went = m.steps[pc](m, mask)
        m.R[slot] = kept
        if went is None:
            m.push(pc + 1, mask)

    # ---- faults

    def sources(self, pc: int, mask: Mask, mode: str, source: np.ndarray) -> None:
        """Raise where a shuffle reads a lane that is not there and the value is likely to be used."""
        m = self.machine
        active = mask.where.reshape(-1, 32)
        bad = active & ~np.take_along_axis(active, np.broadcast_to(source, active.shape), axis=1)
        if mode in ("up", "down") and bad.any():
            # Trees and scans leave the values of the far lanes unused.
            edge = active.argmax(axis=1) if mode == "down" else 31 - active[:, ::-1].argmax(axis=1)
            only = np.zeros_like(bad)
            only[np.arange(len(bad)), edge] = True
            bad = bad & only
        if not bad.any():
            return
        lane = int(np.argmax(bad.ravel()))
        j = int(np.broadcast_to(source, active.shape)[lane // 32, lane % 32])
        who = m.who(lane)
        raise m.fault(
            "shuffle",
            f"thread {who['thread']} of block {who['block']}, lane {lane % 32} of its warp, reads lane {j}, which is"
            f" not there{self.where_is(lane // 32 * 32 + j)}",
            "Let all lanes whose values are read reach the shuffle, with a neutral value where they have none.",
            pc=pc,
            **who,
        )

    def stray(self, pc: int, lane: int, names: int) -> Exception:
        m = self.machine
        who = m.who(lane)
        return m.fault(
            "shuffle",
            f"thread {who['thread']} of block {who['block']}, lane {lane % 32} of its warp, is not named by the member"
            f" mask {names:#010x}",
            "Name in the mask exactly the lanes that get here; a mask taken before a branch names more or fewer.",
            pc=pc,
            **who,
        )

    def never(self, pc: int, mask: Mask) -> Exception:
        m = self.machine
        missing = self.missing(pc, mask)
        warp = int(np.argmax(missing != 0))
        absent = int(missing[warp])
        lane = warp * 32 + (absent & -absent).bit_length() - 1
        here = mask.where.reshape(-1, 32)[warp]
        who = m.who(warp * 32 + int(np.argmax(here)))
        instruction = m.program.instructions[pc]
        sync = self.is_sync(pc)
        what = "cuda.syncwarp()" if m.language == "numba" else "__syncwarp()"
        what = what if sync else f"{instruction.op} of a warp"
        return m.fault(
            "barrier" if sync else "shuffle",
            f"{what} names lane {lane % 32} and {absent.bit_count() - 1} others of the warp of thread {who['thread']}"
            f" of block {who['block']}, of which {int(here.sum())} lanes get here{self.where_is(lane)}",
            "Take it out of the branch, or name in the mask only the lanes that get here.",
            pc=pc,
            other_line=self.line_of(lane),
            **who,
        )

    def line_of(self, lane: int) -> int | None:
        m = self.machine
        pcs = [p for (p, _), g in m.waiting.items() if g.where[lane]]
        pcs += [p for p, g in self.masks.items() if g.where[lane]]
        if m.exit_pc[lane] >= 0:
            pcs = [int(m.exit_pc[lane])]
        return m.program.instructions[pcs[0]].line if pcs else None

    def where_is(self, lane: int) -> str:
        """`; that lane has exited at line 4`, where anything is known of it."""
        m = self.machine
        line = self.line_of(lane)
        if not m.chunk.valid[lane]:
            return "; the block has no such thread"
        if m.exit_pc[lane] >= 0:
            return f"; lane {lane % 32} has exited" + (f" at line {line}" if line else "")
        return f"; lane {lane % 32} waits at line {line}" if line else f"; lane {lane % 32} is elsewhere"
