"""Profiles of someone's own program: under Nsight Compute where it may run, on the emulator elsewhere."""

from __future__ import annotations

import html
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.errors import LabkitError
from labkit.profiling import host, ncu, source
from labkit.profiling.metrics import metric_set
from labkit.profiling.profile import Profile

if TYPE_CHECKING:
    import pandas

TIME = "gpu__time_duration.sum"
# What the table of kernels shows where it was counted, with its heading.
COLUMNS = {
    TIME: "time (us)",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": "sectors per load",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio": "sectors per store",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": "load conflicts",
    "dram__bytes_read.sum": "DRAM read",
    "smsp__inst_executed.sum": "warp instructions",
    "smsp__thread_inst_executed_per_inst_executed.ratio": "lanes",
}


class ScriptProfiles(Sequence[Profile]):
    """One profile per kernel of a program, all its launches together, in the order of their first launch.

    `profiles["saxpy"]` or `profiles[0]`; `.first["saxpy"]` is its first launch alone; `.launches` has one dict per
    launch (kernel, grid, block, ranges: the nvtx ranges around it); `.frame` the table; `.status` the program's exit
    status; `.report` the path of Nsight Compute's report; `.notes` what to mind.
    """

    def __init__(
        self,
        script: str,
        profiles: dict[str, Profile],
        first: dict[str, Profile],
        launches: list[dict[str, Any]],
        *,
        status: int = 0,
        report: str | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.script, self.first, self.launches = script, first, launches
        self.status, self.report, self.notes = status, report, tuple(notes)
        self._profiles = profiles

    def __len__(self) -> int:
        return len(self._profiles)

    def __iter__(self) -> Iterator[Profile]:
        return iter(self._profiles.values())

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return list(self._profiles.values())[key]
        if key not in self._profiles:
            raise LabkitError(f"{self.script} launched no kernel {key!r}; it launched {', '.join(self._profiles)}.")
        return self._profiles[key]

    @property
    def origin(self) -> str:
        """ "measured" or "emulated"."""
        return self[0].origin

    @property
    def frame(self) -> pandas.DataFrame:
        """One row per kernel: name, launches, grid and block of the first, time, and every metric under its name."""
        import pandas

        rows = []
        for name, profile in self._profiles.items():
            own = [launch for launch in self.launches if launch["kernel"] == name]
            size = {"grid": tuple(own[0]["grid"]), "block": tuple(own[0]["block"])}
            rows.append({"kernel": name, "launches": len(own), **size, **profile.metrics})
        return pandas.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "script": self.script, "origin": self.origin, "status": self.status, "report": self.report,
            "notes": list(self.notes), "launches": self.launches,
            "kernels": {name: profile.to_dict() for name, profile in self._profiles.items()},
            "first": {name: profile.to_dict() for name, profile in self.first.items()},
        }  # fmt: skip

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Headings and cells as people read them."""
        from labkit.profiling.metrics import amount

        used = [n for n in COLUMNS if any(p.metrics.get(n) for p in self)]
        heads = ["kernel", "launches", "grid", "block", *([] if TIME in used else ["time (us)"])]
        rows = []
        for name, profile in self._profiles.items():
            own = [launch for launch in self.launches if launch["kernel"] == name]
            cells = [name, f"{len(own)}", *(size([launch[what] for launch in own]) for what in ("grid", "block"))]
            if TIME not in used:
                cells.append("n/a")
            for metric in used:
                value = profile.metrics.get(metric)
                scaled = value / 1000 if metric == TIME and value is not None else value
                cells.append("" if scaled is None else amount(scaled))
            rows.append(cells)
        return [*heads, *(COLUMNS[n] for n in used)], rows

    def __repr__(self) -> str:
        heads, rows = self.table()
        widths = [max(len(row[k]) for row in [heads, *rows]) for k in range(len(heads))]
        lines = [self._title]
        for row in [heads, *rows]:
            cells = [c.ljust(w) if k == 0 else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))]
            lines.append("  ".join(cells).rstrip())
        return "\n".join([*lines, *self._remarks])

    def _repr_html_(self) -> str:
        heads, rows = self.table()
        left = "style='text-align:left'"
        head = "".join(f"<th {left if k == 0 else ''}>{h}</th>" for k, h in enumerate(heads))
        body = "".join(
            "<tr>" + "".join(f"<td {left if k == 0 else ''}>{html.escape(c)}</td>" for k, c in enumerate(row)) + "</tr>"
            for row in rows
        )
        remarks = "".join(f"<div style='color:gray;font-size:85%'>{html.escape(r)}</div>" for r in self._remarks)
        return (
            f"<div><b>{html.escape(self._title)}</b></div><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>{remarks}"
        )

    @property
    def _title(self) -> str:
        count = len(self.launches)
        return f"{self.script}: {count} launch{'es' * (count != 1)} of {len(self)} kernel{'s' * (len(self) != 1)} " + (
            f"({self.origin})"
        )

    @property
    def _remarks(self) -> list[str]:
        found = list(self.notes)
        if self.report:
            found.append(f"Nsight Compute's report: {self.report} (ncu-ui opens it)")
        return found


def profile_script(
    path: str | Path,
    args: Sequence[str] = (),
    *,
    kernel: str | None = None,
    metrics: str | None = None,
    range: str | None = None,  # noqa: A002
    launch_skip: int = 0,
    launch_count: int | None = None,
    sample: int | None = None,
    keep: bool | str | Path = True,
    stdout: int | None = None,
) -> ScriptProfiles:
    """Run `python path *args`, unchanged, in a process of its own, and profile the kernels that it launches.

    With a GPU under Nsight Compute: kernels of numba, CUDA C++, torch and cupy alike. Without one on the emulator:
    numba's and labkit's kernels; tensors for "cuda" stay on the CPU.
    kernel, range : only launches of the kernel of that name, in the nvtx range of that name (`domain@name`).
    launch_skip, launch_count : of those, leave out so many first, and profile so many at most.
    metrics : a set of `labkit.profiling.metrics.SETS`, for ncu, which runs each launch again for every few counters:
    by default "full" where a kernel is named, else "quick". sample : on the emulator, run only so many
    blocks of each launch and scale the counts up, for large grids; what the program computes is incomplete then.
    keep : as for `Rung.profile`. stdout : the file descriptor that takes what the program prints.
    Raises LabkitError where there is no such file, where no kernel was launched, or none that fits.
    """
    from labkit.kernels import gpu

    script = str(path)
    if not Path(script).is_file():
        raise LabkitError(f"There is no file {script}; name the program to profile.")
    metrics = metrics or ("full" if kernel else "quick")
    wanted = metric_set(metrics)
    if launch_skip < 0 or (launch_count is not None and launch_count < 1):
        raise LabkitError("launch_skip is 0 or more, and launch_count 1 or more.")
    if sample is not None and sample < 1:
        raise LabkitError("sample is the number of blocks to run, 1 or more.")
    order = host.Order(
        script, [str(a) for a in args], "count", "", kernel, range, launch_skip, launch_count, sample
    )
    if not gpu.available():
        return _emulated(order, stdout)
    try:
        return _measured(order, wanted, metrics == "source", keep, stdout)
    except LabkitError as error:
        if str(error).startswith(("The program ", "No launch fits ")):  # the emulator would find no other
            raise
        print(f"labkit: {error} The emulator stands in.", file=sys.stderr)
        found = _emulated(order, stdout)
        found.notes = (*found.notes, str(error))
        return found


def _measured(
    order: host.Order, metrics: Sequence[str], lines: bool, keep: bool | str | Path, stdout: int | None
) -> ScriptProfiles:
    options: list[str] = []
    if order.kernel is not None:  # numba's names end in tags, and ncu leaves template arguments off
        options += ["--kernel-name", rf"regex:^({_escaped(order.kernel.split('<')[0])})(\[.*)?$"]
    if order.range is not None:
        options += ["--nvtx-include", f"{order.range}/"]
    if order.skip:
        options += ["--launch-skip", str(order.skip)]
    if order.count is not None:
        options += ["--launch-count", str(order.count)]
    target, where = [sys.executable, order.script, *order.args], ncu.report_path(Path(order.script).stem, keep)
    with tempfile.TemporaryDirectory() as folder:
        if lines:
            order = replace(order, what="lines")
            target = _command(host.save(order, Path(folder) / "order.json"))
        report = ncu.read(target, metrics, options=options, lines=lines, keep=where, stdout=stdout)
    where_from = ncu.machine()
    notes = ncu.notes(report)
    by_name: dict[str, list[ncu.Reading]] = {}
    seen = [r for r in report.launches if order.kernel in (None, (name := source.plain(r.kernel)), name.split("<")[0])]
    if not seen:
        names = ", ".join(dict.fromkeys(source.plain(r.kernel) for r in report.launches))
        raise LabkitError(f"No launch fits --kernel {order.kernel}; the program's kernels are {names}.")
    for launch in seen:
        by_name.setdefault(source.plain(launch.kernel), []).append(launch)
    profiles, first = {}, {}
    for name, own in by_name.items():
        about = {"machine": where_from, "notes": notes, "report": str(where) if where else None}
        counted = tuple(report.lines.get(name, ()))
        profiles[name] = Profile(
            "measured", name, {}, ncu.combine([launch.metrics for launch in own]), line_counts=counted, **about
        )
        alone = counted if len(own) == 1 else ()
        first[name] = Profile("measured", name, {}, own[0].metrics, line_counts=alone, **about)
    launches = [
        {"kernel": source.plain(r.kernel), "name": r.kernel, "grid": r.grid, "block": r.block, "ranges": r.ranges,
         "time_ns": r.metrics.get(TIME)}
        for r in seen
    ]  # fmt: skip
    remarks = [*notes, *ended(order.script, report.status, None)]
    kept = str(where) if where else None
    return ScriptProfiles(
        order.script, profiles, first, launches, status=report.status, report=kept, notes=remarks
    )


def _emulated(order: host.Order, stdout: int | None) -> ScriptProfiles:
    results = run_host(order, stdout)
    launches = results["launches"]
    if not launches:
        raise LabkitError(without_launches(results))
    counted = [(launch, Profile.from_dict(p)) for launch in launches if (p := launch.pop("profile"))]
    if not counted:
        names = ", ".join(dict.fromkeys(launch["kernel"] for launch in launches))
        raise LabkitError(f"No launch fits what was asked for; the program launched {names}, {len(launches)} in all.")
    by_name: dict[str, list[Profile]] = {}
    for launch, profile in counted:
        by_name.setdefault(launch["kernel"], []).append(profile)
    first = {name: own[0] for name, own in by_name.items()}
    profiles = {name: together(own) for name, own in by_name.items()}
    notes = ["Times are not available: the emulator counts, and has no clock."]
    if order.sample is not None:
        notes.append(f"At most {order.sample} blocks of each launch ran: counts are scaled up, outputs incomplete.")
    notes += ended(order.script, results["status"], results["error"])
    return ScriptProfiles(
        order.script, profiles, first, [launch for launch, _ in counted], status=results["status"], notes=notes
    )


def together(profiles: Sequence[Profile]) -> Profile:
    """Several launches of one kernel as one: counts added up, ratios anew."""
    if len(profiles) == 1:
        return profiles[0]
    metrics = ncu.combine([profile.metrics for profile in profiles])
    worst = {"exact": 0, "modeled": 1, "sampled": 2, "bound": 3}
    fidelity: dict[str, str] = {}
    arrays: dict[str, dict[str, int]] = {}
    for profile in profiles:
        for name, claim in profile.fidelity.items():
            if worst[claim] >= worst[fidelity.get(name, "exact")]:
                fidelity[name] = claim
        for name, used in profile.arrays.items():
            sums = arrays.setdefault(name, {})
            for way, count in used.items():
                sums[way] = sums.get(way, 0) + count
    return replace(
        profiles[0],
        metrics=metrics,
        fidelity={name: claim for name, claim in fidelity.items() if name in metrics},
        line_counts=source.together(profile.line_counts for profile in profiles),
        arrays=arrays,
        notes=tuple(dict.fromkeys(note for profile in profiles for note in profile.notes)),
    )


def run_host(order: host.Order, stdout: int | None = None, *, emulator: bool = True) -> dict[str, Any]:
    """Run the order in a process of its own; what it wrote. LabkitError where the process died before it could."""
    with tempfile.TemporaryDirectory() as folder:
        order = replace(order, results=order.results or str(Path(folder) / "results.json"))
        command = _command(host.save(order, Path(folder) / "order.json"))
        environment = os.environ | ({"LABKIT_DEVICE": "emulator"} if emulator else {})
        status = subprocess.run(command, stdout=stdout, env=environment).returncode
        if not Path(order.results).exists():
            ended = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
            raise LabkitError(f"The program {ended} before its launches could be written down.")
        return json.loads(Path(order.results).read_text())


def _command(order: Path) -> list[str]:
    return [sys.executable, "-m", "labkit.profiling.host", str(order)]


def ended(script: str, status: int, error: str | None) -> list[str]:
    """A note on a program that failed; none where it ended well."""
    if not status:
        return []
    why = f" ({error.rstrip('.')})" if error else ""
    return [f"{script} ended with exit status {status}{why}; what it did until then is counted."]


def without_launches(results: dict[str, Any]) -> str:
    """Why there is nothing to show, in a sentence."""
    if results["status"]:
        why = f" ({results['error'].rstrip('.')})" if results["error"] else ""
        return f"The program ended with exit status {results['status']}{why} before a kernel had run to its end."
    return (
        "The program launched no kernel of numba or CUDA C++ that the emulator could count; torch's own kernels "
        "take a GPU."
    )


def _escaped(name: str) -> str:
    return "".join(c if c.isalnum() or c == "_" else f"\\{c}" for c in name)


def size(sizes: list[Sequence[int]]) -> str:
    """`(40, 1, 1)` as 40; sizes that differ from launch to launch as the first and a sign."""
    sizes = [tuple(size) for size in sizes]
    x, y, z = sizes[0]
    text = f"{x}x{y}x{z}" if z > 1 else f"{x}x{y}" if y > 1 else f"{x}"
    return text + (", ..." if len(set(sizes)) > 1 else "")
