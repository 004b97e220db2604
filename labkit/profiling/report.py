"""A profile page by page, as one reads it: how fast, what memory does, what shared memory does, what warps wait for."""

from __future__ import annotations

import html
from dataclasses import dataclass

from labkit.errors import LabkitError
from labkit.profiling.explain import _Counters
from labkit.profiling.metrics import STALL_REASONS, amount, describe
from labkit.profiling.profile import Profile

_L1 = "l1tex__{}_pipe_lsu_mem_global_op_{}"
PAGES = {
    "memory": (
        *(
            _L1.format(what, kind) + end
            for kind in ("ld", "st")
            for what, end in zip(
                ("t_requests", "t_sectors", "average_t_sectors_per_request"), (".sum", ".sum", ".ratio"), strict=True
            )
        ),
        "lts__t_sectors_srcunit_tex.sum",
        "dram__bytes_read.sum",
        "dram__bytes_write.sum",
    ),
    "shared": tuple(
        f"l1tex__data_{what}_mem_shared_op_{kind}.sum"
        for kind in ("ld", "st")
        for what in ("pipe_lsu_wavefronts", "bank_conflicts_pipe_lsu")
    ),
    "launch": (
        "launch__grid_size",
        "launch__block_size",
        "launch__registers_per_thread",
        "launch__shared_mem_per_block_static",
        "launch__shared_mem_per_block_dynamic",
        "launch__waves_per_multiprocessor",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
        "smsp__inst_executed.sum",
        "smsp__thread_inst_executed_per_inst_executed.ratio",
    ),
}
NAMES = ("speed of light", *PAGES, "stalls")


@dataclass(frozen=True)
class Page:
    """One page of a report: rows of (what, value, unit, explanation)."""

    title: str
    rows: tuple[tuple[str, str, str, str], ...]

    def __repr__(self) -> str:
        wide, high = (max((len(row[k]) for row in self.rows), default=0) for k in (0, 1))
        return "\n".join(
            [self.title, *(f"  {what:{wide}}  {value:>{high}} {unit}".rstrip() for what, value, unit, _ in self.rows)]
        )

    def _repr_html_(self) -> str:
        left, gray = "style='text-align:left'", "style='color:gray;font-size:85%;text-align:left'"
        body = "".join(
            f"<tr><td {left}>{html.escape(what)}</td><td style='text-align:right'>{value}</td><td {left}>{unit}</td>"
            f"<td {gray}>{html.escape(text)}</td></tr>"
            for what, value, unit, text in self.rows
        )
        return f"<div><b>{html.escape(self.title)}</b></div><table><tbody>{body}</tbody></table>"


def report(profile: Profile, page: str = "speed of light") -> Page:
    """One page of a profile: "speed of light", "memory", "shared", "launch" or "stalls".

    Raises LabkitError for another name, and where the profile has nothing of what the page shows.
    """
    if page not in NAMES:
        raise LabkitError(f"There is no page {page!r} in a report; there are {', '.join(NAMES)}.")
    rows = _rows(profile, page)
    if not rows:
        there = [name for name in NAMES if _rows(profile, name)]
        mend = f"; there are {', '.join(there)}" if there else ""
        raise LabkitError(f"The {profile.origin} profile of {profile.kernel} has nothing for the page {page!r}{mend}.")
    return Page(f"{profile.title}: {page}", tuple(rows))


def _rows(profile: Profile, page: str) -> list[tuple[str, str, str, str]]:
    make = {"speed of light": _speed_of_light, "stalls": _stalls}.get(page)
    return make(profile) if make else _counts(profile, page)


def _counts(profile: Profile, page: str) -> list[tuple[str, str, str, str]]:
    rows = []
    for name in PAGES[page]:
        if name in profile.metrics:
            metric = describe(name)
            rows.append((metric.title, amount(profile.metrics[name]), metric.unit, metric.text))
    return rows


def _speed_of_light(profile: Profile) -> list[tuple[str, str, str, str]]:
    counters = _Counters(profile)
    rows = []
    if counters.ns:
        rows.append(("time", amount(counters.ns / 1e3), "us", "From the kernel's start to its end."))
    for name, use in sorted(counters.uses().items(), key=lambda use: -use[1]):
        rows.append((name, f"{100 * use:.3g}", "%", f"Of what {counters.name} can do at most ({counters.kind})."))
    return rows


def _stalls(profile: Profile) -> list[tuple[str, str, str, str]]:
    shares = _Counters(profile).stall_shares
    ranking = sorted(shares.items(), key=lambda share: -share[1])
    return [
        (reason, f"{100 * share:.3g}", "%", f"of the stalled warps: waiting for {STALL_REASONS[reason]}.")
        for reason, share in ranking
        if share >= 0.01
    ]
