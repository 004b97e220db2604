"""Lanes that part meet again where the machine code lets them wait for each other, wherever the PTX puts their ways."""

from __future__ import annotations

import numpy as np
import pytest
from engine_tools import add, ptx_kernel

from labkit.emulator import Emulation, Launch
from labkit.emulator.counters import Counters
from labkit.emulator.ptx import parse
from labkit.emulator.turns import turns

# Lanes 0 to 4 go behind the end and come back, in each of 3 turns.
BEHIND_THE_END = """
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd2, %rd0, %rd1;
    mov.u32 %r1, 0;
    setp.lt.u32 %p1, %r0, 5;
again:
    @%p1 bra rare;
    mov.u32 %r2, 1;
both:
    ld.global.u32 %r3, [%rd2];
    add.u32 %r3, %r3, %r2;
    st.global.u32 [%rd2], %r3;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p2, %r1, 3;
    @%p2 bra again;
    ret;
rare:
    mov.u32 %r2, 2;
    bra.uni both;
"""
# Lane n has n / 8 turns; what follows the loop stands in its middle.
AMID_THE_LOOP = """
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd2, %rd0, %rd1;
    shr.u32 %r1, %r0, 3;
again:
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra on;
    ld.global.u32 %r3, [%rd2];
    add.u32 %r3, %r3, 1;
    st.global.u32 [%rd2], %r3;
    ret;
on:
    sub.u32 %r1, %r1, 1;
    bra.uni again;
"""


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
@pytest.mark.parametrize(
    "body, times, result",
    [(BEHIND_THE_END, 3, np.where(np.arange(64) % 64 < 5, 6, 3)), (AMID_THE_LOOP, 1, np.ones(64))],
)
def test_ways_come_before_where_they_join(body, times, result, engine):
    counters, data = Counters(sass=False), np.zeros(64, np.uint32)
    emulation = Emulation(counters=counters, engine=engine)
    emulation.run(Launch(ptx_kernel(body), "k", (1, 1, 1), (64, 1, 1), (add(emulation, data, "a"),)))
    assert data.tolist() == result.tolist()
    for kind in ("ld", "st"):
        assert counters.metrics[f"l1tex__t_requests_pipe_lsu_mem_global_op_{kind}.sum"] == 2 * times


def order(body):
    """The labels of a kernel in the order in which they are run, without those before the first branch."""
    program = parse(ptx_kernel(body)).program("k")
    places = turns(program.instructions)
    assert sorted(places) == list(range(len(places)))
    labels = {o.name: o.pc[0] for i in program.instructions for o in i.operands if i.op == "bra"}
    return sorted(labels, key=lambda name: places[labels[name]])


def test_loops_come_before_what_follows_them_and_keep_together():
    body = """
    bra.uni outer;
    end: ret;
    late: @%p3 bra inner; bra.uni next;
    outer: @%p1 bra end;
    inner: @%p2 bra late; bra.uni rare;
    next: @%p4 bra outer; ret;
    rare: bra.uni late;
    """
    assert order(body.replace(": ", ":\n").replace("; ", ";\n")) == ["outer", "inner", "rare", "late", "next", "end"]


def test_an_order_that_is_such_a_one_is_kept():
    body = "again:\n@%p1 bra end;\n@%p2 bra on;\non:\n@%p3 bra again;\nend:\nret;\n"
    places = turns(parse(ptx_kernel(body)).program("k").instructions)
    assert places == list(range(len(places)))
