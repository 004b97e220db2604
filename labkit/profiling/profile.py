"""The counters of one run: named, explained, compared."""

from __future__ import annotations

import html
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.emulator.trace import Access
from labkit.profiling.metrics import BY_NAME, METRICS, amount, describe, unknown_metric

if TYPE_CHECKING:
    import pandas

    from labkit.emulator.steps import Steps
    from labkit.models.speed import Prediction
    from labkit.profiling.explain import Explanation

_LEFT = "style='text-align:left'"
_RIGHT = "style='text-align:right'"
_GRAY = "style='color:gray;font-size:85%;text-align:left'"
_FIDELITY = {
    "bound": "a bound: the compiler changed this in a way that the emulator cannot follow",
    "modeled": "modeled: near the hardware's figure, not equal to it",
    "sampled": "sampled: only some blocks ran, and the count was scaled up",
}


@dataclass(frozen=True)
class Profile:
    """Counters of a kernel at one shape.

    `profile[metric]` takes Nsight Compute's full names. `origin` is "measured", "emulated" or
    "recorded"; `fidelity` tells for emulated metrics how far they go ("exact", "bound",
    "modeled" or "sampled"); `arrays` has the distinct bytes loaded and stored per array; `accesses` the traced
    memory accesses of one warp; `steps` what one block did step by step (not kept by `to_dict`);
    `machine` where the numbers come from; `notes` what to mind; `report` the path of ncu's report, if it was kept.
    """

    origin: str
    kernel: str
    shape: dict[str, int]
    metrics: dict[str, float]
    fidelity: dict[str, str] = field(default_factory=dict)
    line_counts: tuple[dict[str, Any], ...] = ()
    arrays: dict[str, dict[str, int]] = field(default_factory=dict)
    accesses: tuple[Access, ...] = ()
    machine: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    report: str | None = None
    steps: Steps | None = field(default=None, compare=False, repr=False)

    def __getitem__(self, metric: str) -> float:
        """The value of a metric; LabkitError with the nearest names if there is none."""
        if metric not in self.metrics:
            raise unknown_metric(metric, self.metrics)
        return self.metrics[metric]

    @property
    def lines(self) -> pandas.DataFrame:
        """Counts per source line: file, line, and one column per metric."""
        import pandas

        frame = pandas.DataFrame(list(self.line_counts))
        return frame.fillna(0) if len(frame) else frame

    @property
    def frame(self) -> pandas.DataFrame:
        """All metrics as a table: metric, value, unit and description, one row each."""
        import pandas

        rows = [(n, self.metrics[n], describe(n).unit, describe(n).text) for n in _ordered(self.metrics)]
        return pandas.DataFrame(rows, columns=["metric", "value", "unit", "description"])

    def diff(self, before: Profile) -> Diff:
        """What moved from `before` to this profile, and by how much."""
        return Diff(before, self)

    def explain(self) -> Explanation:
        """What binds this kernel, and which counters show it, in three sentences; see `labkit.profiling.explain`."""
        from labkit.profiling.explain import explain

        return explain(self)

    def predict(self, device: str = "NVIDIA H200") -> Prediction:
        """What these counters take on a device at least, by the speed-of-light model; see `labkit.predict`."""
        from labkit.profiling.predict import of_profile

        return of_profile(self, device)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data = asdict(replace(self, steps=None))
        del data["steps"]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Profile:
        """What `to_dict` gave, also after a way through JSON."""
        accesses = tuple(
            Access(
                **{
                    **a,
                    "addresses": tuple(a["addresses"]),
                    "indices": tuple(None if i is None else tuple(i) for i in a["indices"]),
                }
            )
            for a in data["accesses"]
        )
        lists = {name: tuple(data[name]) for name in ("line_counts", "notes")}
        return cls(**{**data, **lists, "accesses": accesses})

    @property
    def title(self) -> str:
        """`gemm/naive at M=64 N=64 K=64 (emulated)`."""
        return f"{self.kernel}{_at(self.shape)} ({self.origin})"

    def __repr__(self) -> str:
        wanted = (
            "gpu__time_duration.sum",
            "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
            "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
            "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
        )
        facts = [f"{amount(self.metrics[n])} {BY_NAME[n].title}" for n in wanted if self.metrics.get(n)]
        told = f"{self.title}: {', '.join(facts) or f'{len(self.metrics)} metrics'}"
        return f"{told}\n{self._kept}" if self.report else told

    @property
    def _kept(self) -> str:
        return f"Nsight Compute's report: {self.report} (ncu-ui opens it)"

    def _repr_html_(self) -> str:
        rows = []
        for name in _ordered(self.metrics):
            value, metric = self.metrics[name], describe(name)
            if not value:
                continue
            mark = _FIDELITY.get(self.fidelity.get(name, ""))
            sign = f" <span title='{mark}' style='color:#b06000'>({self.fidelity[name]})</span>" if mark else ""
            rows.append(
                f"<tr><td {_LEFT} title='{name}'>{metric.title}</td><td {_RIGHT}>{amount(value)}{sign}</td>"
                f"<td {_LEFT}>{metric.unit}</td><td {_GRAY}>{html.escape(metric.text)}</td></tr>"
            )
        notes = "".join(f"<div {_GRAY}>{html.escape(note)}</div>" for note in self.notes)
        machine = html.escape(", ".join(f"{k} {v}" for k, v in self.machine.items()))
        return (
            f"<div><b>{html.escape(self.title)}</b></div><table><tbody>{''.join(rows)}</tbody></table>"
            f"{self._lines_html()}{notes}<div {_GRAY}>{machine}</div>"
            + (f"<div {_GRAY}>{html.escape(self._kept)}</div>" if self.report else "")
        )

    def _lines_html(self) -> str:
        columns = {
            "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": "load requests",
            "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": "sectors per load",
            "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": "store requests",
            "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio": "sectors per store",
            "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": "shared load wavefronts",
            "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": "shared store wavefronts",
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": "load bank conflicts",
            "smsp__inst_executed.sum": "warp instructions",
            "smsp__pcsamp_sample_count": "stall samples",
        }
        used = [n for n in columns if any(line.get(n) for line in self.line_counts)]
        if not used:
            return ""
        head = "".join(f"<th>{columns[n]}</th>" for n in used)
        body = []
        for line in self.line_counts:
            if not line["line"]:
                continue
            cells = "".join(f"<td {_RIGHT}>{amount(line[n]) if line.get(n) else ''}</td>" for n in used)
            text = html.escape(_source_line(line["file"], line["line"]))
            source = f"<td {_LEFT}><code style='white-space:pre'>{text}</code></td>"
            body.append(f"<tr><td {_RIGHT}>{line['line']}</td>{source}{cells}</tr>")
        return (
            "<details><summary>by source line</summary><table><thead><tr><th>line</th><th></th>"
            f"{head}</tr></thead><tbody>{''.join(body)}</tbody></table></details>"
        )


@dataclass(frozen=True)
class Change:
    """One metric before and after."""

    metric: str
    before: float
    after: float

    @property
    def words(self) -> str:
        """`16x less`, `+12%`, `new` or `gone`."""
        if not self.before:
            return "new"
        if not self.after:
            return "gone"
        ratio = self.after / self.before
        if ratio >= 2:
            return f"{amount(_round(ratio))}x more"
        if ratio <= 0.5:
            return f"{amount(_round(1 / ratio))}x less"
        return f"{ratio - 1:+.0%}" if abs(ratio - 1) >= 0.01 else "same"

    @property
    def size(self) -> float:
        """How far it moved, on a scale where 2x more and 2x less are equal."""
        if not self.before or not self.after:
            return 0.0 if self.before == self.after else math.inf
        return abs(math.log2(self.after / self.before))

    @property
    def good(self) -> bool | None:
        """Whether that is for the better, as far as one metric can tell."""
        better = describe(self.metric).better
        if better is None or not self.before or not self.after or self.after == self.before:
            return None
        return (self.after < self.before) == (better == "less")


class Diff:
    """What moved between two profiles; `changes` lists it, the farthest first, then what is new or gone."""

    def __init__(self, before: Profile, after: Profile) -> None:
        self.before = before
        self.after = after
        moved = [
            Change(name, before.metrics.get(name, 0), after.metrics.get(name, 0))
            for name in _ordered(before.metrics)
            if name in after.metrics
        ]
        order = {change.metric: k for k, change in enumerate(moved)}
        self.changes: tuple[Change, ...] = tuple(
            sorted(
                (c for c in moved if c.size >= 0.01),
                key=lambda c: (math.isinf(c.size), -c.size, order[c.metric]),
            )
        )
        self.same: tuple[str, ...] = tuple(c.metric for c in moved if c.size < 0.01 and c.before)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the two hard to compare."""
        found = []
        if self.before.shape != self.after.shape:
            found.append(f"The shapes differ: {_shape(self.before.shape)} against {_shape(self.after.shape)}.")
        if self.before.origin != self.after.origin:
            found.append(f"One is {self.before.origin}, the other {self.after.origin}.")
        return tuple(found)

    def __getitem__(self, metric: str) -> Change:
        """The change of one metric, moved or not."""
        return Change(metric, self.before[metric], self.after[metric])

    def __repr__(self) -> str:
        lines = [f"from {self.before.title} to {self.after.title}", *self.warnings]
        if not self.changes:
            return "\n".join([*lines, "nothing moved"])
        cells = [("", "before", "after", "")] + [
            (describe(c.metric).title, amount(c.before), amount(c.after), c.words) for c in self.changes
        ]
        widths = [max(len(row[k]) for row in cells) for k in range(4)]
        lines += [
            f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d}".rstrip() for a, b, c, d in cells
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        colors = {True: "#137333", False: "#c5221f", None: "inherit"}
        rows = "".join(
            f"<tr><td {_LEFT} title='{c.metric}'>{describe(c.metric).title}</td>"
            f"<td {_RIGHT}>{amount(c.before)}</td><td {_RIGHT}>{amount(c.after)}</td>"
            f"<td style='text-align:left;white-space:nowrap;color:{colors[c.good]}'><b>{c.words}</b></td>"
            f"<td {_GRAY}>{html.escape(describe(c.metric).text)}</td></tr>"
            for c in self.changes
        )
        table = (
            f"<table><thead><tr><th {_LEFT}>what moved</th><th>{html.escape(self.before.kernel)}</th>"
            f"<th>{html.escape(self.after.kernel)}</th><th></th><th></th></tr></thead><tbody>{rows}</tbody></table>"
        )
        same = ", ".join(describe(name).title for name in self.same)
        warnings = "".join(f"<div style='color:#c5221f'>{html.escape(w)}</div>" for w in self.warnings)
        return (
            f"<div><b>{html.escape(self.before.title)} &rarr; {html.escape(self.after.title)}</b></div>{warnings}"
            f"{table if self.changes else '<div>nothing moved</div>'}"
            + (f"<div {_GRAY}>the same: {html.escape(same)}</div>" if same else "")
        )


def _ordered(metrics: dict[str, float]) -> list[str]:
    """Names in the order of the table, strangers last."""
    place = {metric.name: k for k, metric in enumerate(METRICS)}
    return sorted(metrics, key=lambda name: (place.get(name, len(place)), name))


def _round(ratio: float) -> float:
    return round(ratio, 1) if ratio < 10 else float(round(ratio))


def _at(shape: dict[str, int]) -> str:
    return f" at {_shape(shape)}" if shape else ""


def _shape(shape: dict[str, int]) -> str:
    return " ".join(f"{k}={v}" for k, v in shape.items()) or "none given"


def _source_line(file: str | None, line: int) -> str:
    try:
        return Path(file or "").read_text().splitlines()[line - 1].strip()
    except (OSError, IndexError, UnicodeDecodeError):
        return ""
