"""What a structural gate is judged by, so that no launch beside a kernel, and no other road to memory, passes it.

A gate names one counter. A kernel could please that alone: with atomics, which are no loads; with busy warps beside
diverging ones, which raise the mean of lanes; with no shared memory at all, and two rungs lower. So reads by atomics
count as loads, lanes are judged by how many stay idle, and no other cost may be far beyond what both references have. A
grid is judged by its busiest block: others, busy or not, change nothing for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from labkit.problems._metrics import INSTRUCTIONS, LANES, LOAD_SECTORS, STORE_SECTORS

THREADS = "smsp__thread_inst_executed.sum"
COSTS = {
    LOAD_SECTORS: "sectors of global loads and atomics",
    STORE_SECTORS: "sectors of global stores",
    INSTRUCTIONS: "instructions of warps",
}
SLACK = 2.0  # times the more costly of the references
SECTORS = (LOAD_SECTORS, STORE_SECTORS)
LITTLE = 0.1  # of all sectors that a reference moves: a surplus of fewer costs nothing that anyone could measure
_LOAD, _ATOMICS = "_mem_global_op_ld", ("_mem_global_op_atom", "_mem_global_op_red")


def needed(gates: Iterable[str]) -> tuple[str, ...]:
    """The metrics to count for some gates."""
    names = [*gates, *COSTS, THREADS]
    names += [name.replace(_LOAD, other) for name in names if _LOAD in name for other in _ATOMICS]
    return tuple(dict.fromkeys(names))


def shown(metrics: Mapping[str, float], name: str) -> float:
    """A count as reports show it: loads with atomics, a mean of lanes as it was read."""
    return metrics[name] if name == LANES else _judged(metrics, name)


def passes(
    name: str, yours: Mapping[str, float], optimised: Mapping[str, float], unoptimised: Mapping[str, float]
) -> bool:
    """Whether a count is nearer, as a factor, to the optimized kernel's than to the unoptimized one's, or better."""
    return gate(*(_judged(metrics, name) for metrics in (yours, optimised, unoptimised)))


def note(name: str) -> str:
    """How a gate is judged, where its name does not say; a sentence without its capital and full stop."""
    if name == LANES:
        return "judged by how many lanes stay idle in all"
    return "atomics count as loads" if _LOAD in name else ""


def gate(yours: float, optimised: float, unoptimised: float) -> bool:
    """Whether yours is on the optimized side of the two's geometric mean, or of their mean where one is zero."""
    if min(optimised, unoptimised) > 0:
        middle = math.sqrt(optimised * unoptimised)
    else:
        middle = (optimised + unoptimised) / 2
    return yours <= middle if optimised < unoptimised else yours >= middle


def excesses(yours: Mapping[str, float], optimised: Mapping[str, float], unoptimised: Mapping[str, float]) -> list[str]:
    """One sentence for each cost that is far beyond that of both references, and not a trifle beside what they move."""
    found = []
    trifle = LITTLE * max(sum(_judged(metrics, name) for name in SECTORS) for metrics in (optimised, unoptimised))
    for name, what in COSTS.items():
        most = max(_judged(optimised, name), _judged(unoptimised, name))
        mine = _judged(yours, name)
        if mine > SLACK * most + (trifle if name in SECTORS else 0):
            found.append(f"It takes {mine:,.6g} {what}; of our two kernels, none takes more than {most:,.6g}.")
    return found


def _judged(metrics: Mapping[str, float], name: str) -> float:
    if name == LANES:
        return 32 * metrics[INSTRUCTIONS] - metrics[THREADS]  # lanes that stay idle
    if _LOAD in name:
        return metrics[name] + sum(metrics.get(name.replace(_LOAD, other), 0.0) for other in _ATOMICS)
    return metrics[name]
