"""Counts per source line as Nsight Compute reads them, under the names of the emulator's lines.

ncu counts per machine instruction, and line information says which line each came from. What an instruction
counts for follows from its opcode. Lines of inlined functions are the functions' own.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable
from typing import Any

from labkit.emulator.counters import RATIOS
from labkit.emulator.ptx import short_name

SAMPLES = "smsp__pcsamp_sample_count"
# What ncu is asked for besides metrics: per-instruction counts, samples of the warps' states, and the source itself.
OPTIONS = ("--section", "SourceCounters", "--import-source", "yes")
PRINT = ("--page", "source", "--csv", "--print-source", "cuda,sass")

_INST, _THREADS = "smsp__inst_executed.sum", "smsp__thread_inst_executed.sum"
_DIVERGENT = "smsp__sass_branch_targets_threads_divergent.sum"
_GLOBAL = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
_SHARED = "l1tex__data_{}_mem_shared_op_{}.sum"
_KINDS = {
    "LDG": ("global", "ld"), "STG": ("global", "st"), "ATOMG": ("global", "atom"), "REDG": ("global", "red"),
    "RED": ("global", "red"), "LDGSTS": ("global", "ld"), "LDS": ("shared", "ld"), "LDSM": ("shared", "ld"),
    "STS": ("shared", "st"), "STSM": ("shared", "st"), "ATOMS": ("shared", "atom"), "LDL": ("local", "ld"),
    "STL": ("local", "st"),
}  # fmt: skip
_FLOP = {f"{p.upper()}{o.upper()}": (p + o, 1) for p in "fd" for o in ("add", "mul", "fma")}
_FLOP |= {f"H{o.upper()}2": ("h" + o, 2) for o in ("add", "mul", "fma")}


def read(text: str) -> dict[str, list[dict[str, Any]]]:
    """By kernel, the counts per line of all its launches in the report, from what `ncu --import ... *PRINT` prints.

    Each line is a dict as `Profile.line_counts` has them: file, line, and the metrics that are not zero there.
    """
    found: dict[str, dict[tuple[str, int], dict[str, float]]] = {}
    file = kernel = line = None
    at: dict[str, int] = {}
    for row in csv.reader(io.StringIO(text)):
        if len(row) == 2 and row[0] == "File Path":
            file, at = row[1], {}
        elif row and row[0] == "Function Name":
            kernel = plain(row[1])
        elif row and row[0] == "Line No":
            at = {name: k for k, name in reversed(list(enumerate(row)))}
            at["SASS"] = at.get("Address", 0) + 1
        elif at and file and kernel and len(row) > at["SASS"]:
            if row[0]:
                line = int(row[0]) if row[0].isdecimal() else None
            elif line is not None and row[at["Address"]].startswith("0x"):
                for name, value in _instruction(row, at):
                    counts = found.setdefault(kernel, {}).setdefault((file, line), {})
                    counts[name] = counts.get(name, 0.0) + value
    return {
        kernel: [{"file": file, "line": line, **_with_ratios(lines[file, line])} for file, line in sorted(lines)]
        for kernel, lines in found.items()
    }


def together(kernels: Iterable[list[dict[str, Any]]]) -> tuple[dict[str, Any], ...]:
    """The lines of several kernels, or launches, added up."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for lines in kernels:
        for counted in lines:
            counts = found.setdefault((counted["file"] or "", counted["line"] or 0), {})
            unknown = {b: math.nan for a, b in RATIOS.values() if a in counted and b not in counted}
            for name, value in {**counted, **unknown}.items():
                if name not in ("file", "line") and name not in RATIOS:
                    counts[name] = counts.get(name, 0.0) + value
    return tuple(
        {"file": file or None, "line": line or None, **_with_ratios(found[file, line])} for file, line in sorted(found)
    )


def plain(name: str) -> str:
    """A kernel's name without return type, scopes, template arguments, parameters and numba's tags.

    Of torch's elementwise kernels, which are all called alike, the functor stays: `elementwise_kernel<MulFunctor>`.
    """
    name = re.sub(r"\[[^\[\]]*\](?=\[|\(|$)", "", short_name(name))
    functors = re.findall(r"\w*Functor\w*", name)
    depth, kept = 0, []
    for letter in name:
        depth += letter in "<("
        if not depth:
            kept.append(letter)
        depth -= letter in ">)"
    bare = "".join(kept).strip().split(" ")[-1].split("::")[-1] or name
    return f"{bare}<{functors[-1]}>" if functors else bare


def _instruction(row: list[str], at: dict[str, int]) -> Iterable[tuple[str, float]]:
    def count(column: str) -> float:
        try:
            return float(row[at[column]].replace(",", ""))
        except (KeyError, ValueError):
            return 0.0

    executed, lanes = count("Instructions Executed"), count("Thread Instructions Executed")
    on = count("Predicated-On Thread Instructions Executed")
    if samples := count("# Samples"):
        yield SAMPLES, samples
    if not executed:
        return
    yield _INST, executed
    yield _THREADS, lanes
    if divergent := count("Divergent Branches"):
        yield _DIVERGENT, divergent
    words = row[at["SASS"]].split()
    opcode = next((word for word in words if not word.startswith("@")), "").split(".")[0]
    if opcode in _FLOP:
        name, each = _FLOP[opcode]
        yield f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum", each * on
    space, kind = _KINDS.get(opcode, (None, ""))
    if space == "global":
        yield _GLOBAL.format("sectors", kind), count("L2 Theoretical Sectors Global")
        # With lanes predicated off, whole warps may have asked for nothing: how many is not known.
        yield _GLOBAL.format("requests", kind), executed if on == lanes else math.nan
    elif space == "shared":
        wavefronts = count("L1 Wavefronts Shared")
        yield _SHARED.format("pipe_lsu_wavefronts", kind), wavefronts
        if excess := wavefronts - count("L1 Wavefronts Shared Ideal"):
            yield _SHARED.format("bank_conflicts_pipe_lsu", kind), excess
    elif space == "local":
        yield f"smsp__sass_inst_executed_op_local_{kind}.sum", executed
        yield f"l1tex__t_sectors_pipe_lsu_mem_local_op_{kind}.sum", count("L2 Theoretical Sectors Local")


def _with_ratios(counts: dict[str, float]) -> dict[str, float]:
    counts = {name: value for name, value in counts.items() if not math.isnan(value)}
    ratios = {r: counts[a] / counts[b] for r, (a, b) in RATIOS.items() if counts.get(b) and a in counts}
    return {**counts, **ratios}
