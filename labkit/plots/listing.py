"""A kernel's source with what each line costs beside it."""

from __future__ import annotations

import html
import linecache
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit.errors import LabkitError
from labkit.profiling.metrics import amount

if TYPE_CHECKING:
    from labkit.profiling import Profile

COLUMNS = {
    "smsp__inst_executed.sum": "warp instructions",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "sectors loaded",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": "sectors stored",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": "shared load wavefronts",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": "shared store wavefronts",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": "load bank conflicts",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": "store bank conflicts",
    "smsp__sass_branch_targets_threads_divergent.sum": "divergent branches",
    "smsp__pcsamp_sample_count": "samples",  # of warps that stood at this line, by ncu
}


@dataclass(frozen=True)
class Listing:
    """Source lines with counters: `rows` are (line, text, one count per column); `columns` their headings."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[int, str, tuple[float, ...]], ...]

    def __str__(self) -> str:
        cells = [[amount(v) if v else "" for v in counts] for _, _, counts in self.rows]
        widths = [max([len(word) for word in head.split()] + [len(row[k]) for row in cells])
                  for k, head in enumerate(self.columns)]  # fmt: skip
        heads = [head.split() for head in self.columns]
        high = max(map(len, heads))
        lines = [self.title]
        for turn in range(high):
            words = [([""] * (high - len(head)) + head)[turn].rjust(w) for head, w in zip(heads, widths, strict=True)]
            lines.append("  ".join(words))
        for (number, text, _), row in zip(self.rows, cells, strict=True):
            counts = "  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True))
            lines.append(f"{counts}  {number:4}  {text}".rstrip())
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        most = [max((counts[k] for _, _, counts in self.rows), default=0) for k in range(len(self.columns))]
        cell = "style='text-align:right;padding:0 8px;border:0;white-space:nowrap"
        words = ["<br>".join(column.split()) for column in self.columns]
        head = "".join(f"<th {cell};vertical-align:bottom'>{column}</th>" for column in words)
        body = []
        for number, text, counts in self.rows:
            values = []
            for k, value in enumerate(counts):
                part = value / most[k] if most[k] else 0
                bar = f"background:linear-gradient(to left,rgba(245,133,24,0.45) {part:.1%},transparent {part:.1%})"
                values.append(f"<td {cell};{bar}'>{amount(value) if value else ''}</td>")
            body.append(
                f"<tr style='background:none'>{''.join(values)}<td {cell};color:gray'>{number}</td>"
                f"<td style='text-align:left;padding:0 8px;border:0'><code style='white-space:pre;background:none'>"
                f"{html.escape(text)}</code></td></tr>"
            )
        return (
            f"<div><b>{html.escape(self.title)}</b>: what each line costs</div>"
            "<table style='border-collapse:collapse;line-height:1.35;font-size:13px'>"
            f"<thead><tr>{head}<th></th><th></th></tr></thead><tbody>{''.join(body)}</tbody></table>"
        )


def source(profile: Profile) -> Listing:
    """The source of a profiled kernel with its counters beside each line; a bar shows a line's share of the most.

    Raises LabkitError where the profile has no counts per line, or the file is gone.
    """
    counted = [line for line in profile.line_counts if line["file"] and line["line"]]
    if not counted:
        raise LabkitError(
            'There are no counts per source line here; profile on the emulator, or with metrics="source".'
        )
    file = counted[0]["file"]
    here = {line["line"]: line for line in counted if line["file"] == file}
    text = [line.rstrip("\n") for line in linecache.getlines(file)]
    if len(text) < max(here):
        raise LabkitError(f"The source {file} is not there any more, or has become shorter.")
    used = [name for name in COLUMNS if any(line.get(name) for line in here.values())]
    first, last = _extent(text, min(here), max(here))
    indent = min((len(t) - len(t.lstrip()) for t in text[first - 1 : last] if t.strip()), default=0)
    rows = tuple(
        (n, text[n - 1][indent:], tuple(here.get(n, {}).get(name, 0) for name in used)) for n in range(first, last + 1)
    )
    return Listing(profile.title, tuple(COLUMNS[name] for name in used), rows)


def _extent(text: list[str], first: int, last: int) -> tuple[int, int]:
    """From the line of the function's head (and its decorator), if it is found above, to the last one that counts."""
    for n in range(first, 0, -1):
        line = text[n - 1]
        if line.lstrip().startswith("def ") or "__global__" in line:
            while n > 1 and text[n - 2].lstrip().startswith("@"):
                n -= 1
            return n, last
    return first, last
