"""Results as labkit grade writes them, made by hand for tests of what reads them."""

from __future__ import annotations

from typing import Any

from labkit.grading import results

LOADS = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
KERNEL = """\
# %%kernel gemm/coalesced
from numba import cuda


@cuda.jit
def gemm_coalesced(C, A, B, M, N, K):
    col, row = cuda.grid(2)
    if row < M and col < N:
        C[row, col] = 0
"""
WRONG = "got 1.5 want 0.25 (3 of 99 elements are wrong; error 1.2, allowed 1e-06)."
KNOWN, HIDDEN = "M=33 N=65 K=17", "M=41 N=29 K=13"  # a shape of gemm that students know, and one that they do not


def kernel(
    ident: str = "gemm--coalesced--numba", text: str = KERNEL, fails: str = "", line: int | None = None,
    counters: dict | None = None, possible: float = 10.0, time: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """A kernel's item: right, or with the message `fails`."""
    state = "fail" if fails else "pass"
    about = {"language": ident.rpartition("--")[2], "source": "0" * 64, "cell": "cell 3 of a.ipynb", "text": text}
    said = fails or "Right on 11 shapes, 3 of them not known before."
    parts = [
        results.part("correct", 0.6 * possible, state, said, **about, runs=[KNOWN, HIDDEN], line=line),
        results.part("structure", (0.2 if time else 0.4) * possible, state, f"{LOADS} reads 2."),
    ]
    if time:
        waits = "fail" if fails else "pending"
        parts.append(results.part("time", 0.2 * possible, waits, "This waits for a GPU."))
    return results.item(ident, "kernel", parts, counters or {})


def answer(ident: str = "gemm--q-flops", right: bool = True) -> dict[str, Any]:
    said = "33,554,432 FLOP is right." if right else "7 FLOP is too low."
    return results.item(ident, "answer", [results.part("answer", 2.0, "pass" if right else "fail", said, given=7.0)])


def explain(ident: str = "gemm--naive--explain", text: str = "Each lane reads a row of its own.") -> dict[str, Any]:
    return results.item(ident, "explain", [results.part("manual", 3.0, "pending", "A person reads this.", text=text)])


def result(submission: str = "ada", items: list[dict] | None = None, **changes: Any) -> dict[str, Any]:
    """A result that keeps to the schema."""
    items = [answer(), kernel(), explain()] if items is None else items
    found = {
        "schema_version": results.SCHEMA_VERSION, "submission": submission, "state": "graded", "reason": None,
        "sandbox": "bubblewrap", "scheme": "f" * 64, **results.totals(items), "faults": [], "review": [],
        "items": items, "started": "2026-01-02T03:04:05+00:00", "seconds": 12.5, "labkit": "0.1.0",
        "machine": {"cpus": 2},
    } | changes  # fmt: skip
    results.check_schema(found)
    return found


def ungradable(submission: str = "eve", state: str = "ungradable") -> dict[str, Any]:
    return result(submission, [], state=state, reason="eve.ipynb is no notebook: it is not JSON.", possible=15.0)
