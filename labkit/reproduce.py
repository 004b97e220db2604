"""Published tables beside our own figures: `labkit reproduce int4-gqa`.

What was published is plain data (labkit/published/, with its source); what is ours was recorded by the same command
with --record, on a GPU. For each batch size all kernels, each with every number of pieces a sequence is cut into
(split-K), take turns with an L2 that holds none of the cache; the two best splits of each kernel then go on until
their times are settled. Every kernel is compared with the float64 reference before it is timed. Where FBGEMM's package
`fbgemm-gpu-genai` is installed, the published kernel itself takes part.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import statistics
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from labkit import recorded
from labkit.bench import progress
from labkit.errors import LabkitError
from labkit.problems.int4_gqa import effective_bytes
from labkit.timing import Stopwatch, read_clocks

NAMES = ("int4-gqa",)
PUBLISHED = Path(__file__).parent / "published" / "int4_gqa.json"

ROW_BYTES = {"int4_gqa": 68, "int4_gqa_4group": 80, "gqa_bf16": 256}
PROBLEM_OF = {"row-wise": "int4_gqa", "4 groups": "int4_gqa_4group"}
ORIGINAL, TORCH = "fbgemm", "torch"  # the published kernel; PyTorch's scaled dot product attention
FIRST = "cu_baseline"
LAST = {"int4_gqa": "opt10_pad_dequant", "int4_gqa_4group": "opt10_pad_dequant", "gqa_bf16": "cu_optimized"}
BEYOND = {"int4_gqa": "opt11_direct_mma", "int4_gqa_4group": "opt11_direct_mma", "gqa_bf16": "direct_mma"}
CLEAR = 0.02  # a published change smaller than this says nothing about its sign

COARSE = 3  # samples of every split, before the best go on
BEST = 2  # splits of a kernel that go on
LEAST_SAMPLES, MOST_SAMPLES = 12, 40
SETTLED = 0.01  # standard error over mean at which sampling of a kernel stops
GROUP_SECONDS = 8.0  # of settling, per problem and batch size
SECONDS = 300.0
SEQUENCES = 4  # whose results are compared with the reference
WIDTH = 160  # of a line, at most
ORIGINAL_ATOL, ORIGINAL_RTOL = 2e-2, 6e-3  # what the published kernel's own test allows


# --- what was recorded -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Best:
    """The best split of a kernel at a batch size: median and interquartile range in microseconds."""

    us: float
    spread: float
    split: int | None  # None: the kernel has no such choice


class Ours:
    """Recorded or measured times, as `measure` keeps them."""

    def __init__(self, data: dict[str, Any]):
        self.data = data
        self.label = f"{data['machine']}, {data['date']}"
        self.samples: dict[tuple[str, str, int], dict[int | None, list[float]]] = {}
        for group in data["groups"]:
            for cell in group["cells"]:
                key = group["problem"], cell["kernel"], group["B"]
                self.samples.setdefault(key, {})[cell["split_k"]] = cell["samples_us"]

    def best(self, problem: str, kernel: str, B: int) -> Best | None:
        """None where the kernel was not measured at this batch size."""
        found = [
            Best(statistics.median(times), _spread(times), split)
            for split, times in self.samples.get((problem, kernel, B), {}).items()
            if len(times) >= LEAST_SAMPLES
        ]
        return min(found, key=lambda best: best.us, default=None)

    def change(self, problem: str, before: str, after: str, B: int) -> tuple[float, bool] | None:
        """Relative change of the time from one kernel to the other, and whether it is beyond their spreads."""
        return _change(self.best(problem, before, B), self.best(problem, after, B))

    @property
    def kernels(self) -> set[tuple[str, str]]:
        return {(problem, kernel) for problem, kernel, _ in self.samples}


def _change(old: Best | None, new: Best | None) -> tuple[float, bool] | None:
    if not old or not new:
        return None
    return new.us / old.us - 1, abs(new.us - old.us) > (old.spread + new.spread) / 2


def _spread(times: Sequence[float]) -> float:
    low, _, high = statistics.quantiles(times, n=4)
    return high - low


def find_recorded() -> Ours | None:
    """The newest recorded times; None where nothing was recorded."""
    for path in recorded.files("reproduce", "int4-gqa"):
        return Ours(json.loads(path.read_text()))
    return None


def changed(ours: Ours) -> list[str]:
    """Kernels whose code has changed since they were recorded, where their files are here."""
    names = []
    for name, mark in ours.data["fingerprints"].items():
        problem, _, rung = name.partition("/")
        try:
            now = _rung(problem, rung).fingerprint
        except LabkitError:
            continue
        if now != mark:
            names.append(name)
    return names


def _rung(problem: str, name: str) -> Any:
    from labkit import ladder

    return ladder.problem(problem)[name, "cuda"].solution


# --- measuring -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What is measured; batch sizes in the order in which they are given up last if time runs out."""

    problems: tuple[str, ...] = tuple(ROW_BYTES)
    batches: tuple[int, ...] = (512, 32, 128, 64, 256)
    splits: tuple[int, ...] = (2, 4, 8, 16, 32, 64, 128)
    context: int = 8192
    heads: int = 8
    rungs: tuple[str, ...] = ()  # some only
    device: str = "cuda"


@dataclass(frozen=True)
class Contestant:
    """A kernel: `run(inputs, split)` returns O [B, heads, 128]; `splits` are those it is tried with."""

    name: str
    run: Callable[[dict[str, Any], int | None], Any]
    splits: tuple[int | None, ...]
    fingerprint: str | None = None


def measure(
    save: Callable[[dict[str, Any]], None], plan: Plan | None = None, seconds: float = SECONDS
) -> dict[str, Any]:
    """Measure on this machine's GPU, and call `save` with all there is after each problem at each batch size.

    Nothing is begun after `seconds`; what was not is named in `left_out`. Raises LabkitError without a GPU.
    """
    from labkit.kernels import gpu

    if not gpu.available():
        raise LabkitError("--record keeps what is measured on a GPU, and there is none here; leave it out.")
    plan, started = plan or Plan(), time.monotonic()
    left_out: dict[str, str] = {}
    data: dict[str, Any] = {
        "context": plan.context, "heads": plan.heads, "unit": "microseconds", "cold": True, "seconds": seconds,
        "fbgemm": _version(), "fingerprints": {}, "left_out": left_out, "groups": [],
    }  # fmt: skip
    stopwatch, made = Stopwatch(), {}
    todo = [(B, problem) for B in plan.batches for problem in plan.problems]
    for n, (B, problem) in enumerate(todo):
        progress(n, len(todo), f"{problem} B={B}")
        if time.monotonic() - started > seconds:
            left_out[f"{problem} B={B}"] = "no time was left"
            continue
        try:
            if problem not in made:
                made[problem] = _made(problem, plan, left_out)
            inputs, contestants, right = made[problem]
            group = _group(stopwatch, contestants, {name: x[:B] for name, x in inputs.items()}, right, left_out)
        except RuntimeError as error:  # memory of the GPU
            left_out[f"{problem} B={B}"] = _sentence(error)
            continue
        data["groups"].append({"problem": problem, "B": B, **group})
        data["fingerprints"] |= {f"{problem}/{one.name}": one.fingerprint for one in contestants if one.fingerprint}
        save(data)
    progress(len(todo), len(todo), "done")
    if not data["groups"]:
        raise LabkitError(f"Nothing was measured: {next(iter(left_out.values()), 'no batch sizes')}.")
    save(data)
    return data


def _version() -> str | None:
    try:
        return metadata.version("fbgemm-gpu-genai")
    except metadata.PackageNotFoundError:
        return None


def _made(problem: str, plan: Plan, left_out: dict[str, str]) -> tuple[dict[str, Any], list[Contestant], Any]:
    """Inputs of the largest batch, the kernels, and what `_wrong` compares results with."""
    from labkit import problems
    from labkit.check import tolerance

    about = problems.get(problem)
    shape = {"B": max(plan.batches), "T": plan.context, "HQ": plan.heads}
    inputs = about.make_inputs(about.dims_of(shape), seed=1, device=plan.device)
    want, bound = tolerance(about, {name: x[:SEQUENCES] for name, x in inputs.items()})
    return inputs, list(_contestants(problem, plan, left_out)), (want["O"], bound["O"])


def _contestants(problem: str, plan: Plan, left_out: dict[str, str]) -> Iterator[Contestant]:
    from labkit import problems

    about = problems.get(problem)
    for step in about.ladder:
        if plan.rungs and step.name not in plan.rungs:
            continue
        try:
            rung = _rung(problem, step.name)
            kernel = rung.kernel
        except LabkitError as error:
            left_out[f"{problem}/{step.name}"] = _sentence(error)
            continue
        splits = plan.splits if "split_k" in rung.source else (None,)
        yield Contestant(step.name, _launcher(kernel), splits, rung.fingerprint)
    if problem == "gqa_bf16":
        yield Contestant(TORCH, lambda inputs, split: about.baseline(*inputs.values()), (None,))
    try:
        importlib.import_module("fbgemm_gpu.experimental.gen_ai")
    except (ImportError, OSError, RuntimeError) as error:
        left_out[f"{problem}/{ORIGINAL}"] = _sentence(error)
        return
    yield Contestant(ORIGINAL, _original(1 if problem != "int4_gqa_4group" else 4), plan.splits)


def _launcher(kernel: Any) -> Callable[[dict[str, Any], int | None], Any]:
    def run(inputs: dict[str, Any], split: int | None) -> Any:
        import torch

        out = torch.empty_like(inputs["Q"])
        kernel.launch(out, *inputs.values(), **({} if split is None else {"split_k": split}))
        return out

    return run


def _original(groups: int) -> Callable[[dict[str, Any], int | None], Any]:
    """FBGEMM's operator: Q [B, 1, heads, 128], positions of the last tokens; returns O and what it was made of."""
    positions: dict[int, Any] = {}

    def run(inputs: dict[str, Any], split: int | None) -> Any:
        import torch

        Q, K, V, lengths = inputs.values()
        if len(Q) not in positions:  # outside what is timed: the first run is the one that is checked
            positions[len(Q)] = lengths - 1
        found = torch.ops.fbgemm.gqa_attn_splitk(
            Q.unsqueeze(1), K, V, positions[len(Q)], 128**-0.5, split, groups, True, 0
        )
        return found[0].view(Q.shape)

    return run


def _group(
    stopwatch: Any, contestants: list[Contestant], inputs: dict[str, Any], right: Any, left_out: dict[str, str]
) -> dict[str, Any]:
    """All kernels at one batch size; `cells`, with samples of each kernel and split, and the clocks."""
    runs: dict[tuple[str, int | None], Callable[[], Any]] = {}
    for one in contestants:
        for split in one.splits:
            run = _bound(one.run, inputs, split)
            try:
                wrong = _wrong(run(), right, one.name)  # compiles, loads modules
            except (LabkitError, RuntimeError) as error:  # no room in shared memory for so few pieces
                wrong = _sentence(error)
            if wrong:
                left_out[f"{one.name} B={len(inputs['Q'])} split_k={split}"] = wrong
            else:
                runs[one.name, split] = run
    before, reasons = read_clocks()
    times = _turns(stopwatch, runs, COARSE, COARSE, math.inf)
    ahead = {}
    for one in contestants:
        mine = sorted((key for key in times if key[0] == one.name), key=lambda key: statistics.median(times[key]))
        ahead |= {key: runs[key] for key in mine[:BEST]}
    for key, more in _turns(stopwatch, ahead, LEAST_SAMPLES, MOST_SAMPLES, GROUP_SECONDS).items():
        times[key] = more  # those of the first round were taken among other neighbors
    after, more = read_clocks()
    return {
        "clocks_mhz": [before, after],
        "throttle": ", ".join(sorted(reasons | more)),
        "cells": [{"kernel": k, "split_k": split, "samples_us": found} for (k, split), found in times.items()],
    }


def _bound(run: Callable[..., Any], inputs: dict[str, Any], split: int | None) -> Callable[[], Any]:
    return lambda: run(inputs, split)


def _turns(
    stopwatch: Any, runs: dict[Any, Callable[[], Any]], least: int, most: int, seconds: float
) -> dict[Any, list[float]]:
    """Samples in microseconds, all taking turns: `least` each, then those that are not settled up to `most`."""
    times: dict[Any, list[float]] = {key: [] for key in runs}
    started = time.monotonic()
    for turn in range(most):
        going = [key for key in runs if turn < least or not _settled(times[key])]
        if not going or turn >= least and time.monotonic() - started > seconds:
            break
        for key in going:
            times[key].append(round(1e3 * stopwatch.once(runs[key])[0], 2))
    return times


def _settled(times: Sequence[float]) -> bool:
    return statistics.stdev(times) / len(times) ** 0.5 < SETTLED * statistics.fmean(times)


def _wrong(got: Any, right: tuple[Any, Any], name: str) -> str | None:
    """What is wrong with the results of the first sequences, as a sentence."""
    want, bound = right
    want, bound = want[: len(got)], bound[: len(got)]
    if name == ORIGINAL:
        bound = bound.maximum(ORIGINAL_ATOL + ORIGINAL_RTOL * want.abs())
    error = (got[: len(want)].double() - want).abs()
    if not bool((error <= bound).all()):  # also where it is NaN
        return f"O is off by {float(error.max()):.2g}"
    return None


def _sentence(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__


# --- showing ---------------------------------------------------------------------------------------------


def published() -> dict[str, Any]:
    """The published tables: source, batches, and per table times, bandwidths and speed-ups."""
    return json.loads(PUBLISHED.read_text())


@dataclass(frozen=True)
class Change:
    """A published change of time and ours; `verdict`: "agrees", "differs", or "in the spread"."""

    table: int
    machine: str
    what: str
    B: int
    published: float
    ours: float
    clear: bool

    @property
    def verdict(self) -> str:
        if not self.clear:
            return "in the spread"
        return "agrees" if (self.published < 0) == (self.ours < 0) else "differs"


def changes(ours: Ours, data: dict[str, Any] | None = None) -> list[Change]:
    """All changes of at least 2% that were published, where ours was measured."""
    data = data or published()
    found = []
    for table in data["tables"]:
        for what, old, new, problem, before, after in _steps(data, table):
            for B, x, y in zip(data["batches"], old, new, strict=True):
                ratio, mine = y / x - 1, ours.change(problem, before, after, B)
                if abs(ratio) >= CLEAR and mine:
                    found.append(Change(table["table"], table["machine"], what, B, ratio, *mine))
    return found


def _steps(data: dict[str, Any], table: dict[str, Any]) -> Iterator[tuple[str, list, list, str, str, str]]:
    """(what, published times before, after, our problem, our rung before, after) of a table's changes."""
    us = table["us"]
    if "opt" in table:
        problem, opt = PROBLEM_OF[table["layout"]], table["opt"]
        below = _before(data, table)
        if below:
            yield (f"opt {opt - 1} to {opt}" if opt > 1 else "CU to opt 1", below, us[f"opt {opt}"], problem,
                   _below(table["rung"]), table["rung"])  # fmt: skip
    elif "INT4 CU after" in us:
        for what, problem in (("BF16", "gqa_bf16"), ("INT4", "int4_gqa")):
            before, after = us[f"{what} CU before"], us[f"{what} CU after"]
            yield f"{what} before to after", before, after, problem, FIRST, LAST[problem]


def _before(data: dict[str, Any], table: dict[str, Any]) -> list[int] | None:
    """Published times of the step below, in the same layout; None where they were not published."""
    if table["opt"] == 1:
        return table["us"]["CU"]
    for other in data["tables"]:
        if other["layout"] == table["layout"] and other.get("opt") == table["opt"] - 1:
            return other["us"][f"opt {other['opt']}"]
    return None


def _below(rung: str) -> str:
    from labkit.problems import int4_gqa

    names = [step.name for step in int4_gqa.LADDER]
    return names[names.index(rung) - 1]


Column = tuple[str, list[str]]


def text(ours: Ours | None) -> str:
    """All tables; without ours, the published figures alone."""
    data = published()
    lines = [data["source"], *textwrap.wrap(data["about"], 120), ""]
    if ours is None:
        lines.append(
            "Nothing was recorded on a GPU yet; `labkit reproduce int4-gqa --record` measures it on one and keeps it."
        )
    else:
        version = ours.data["fbgemm"]
        lines += [
            f"Ours, recorded on {ours.label}: median ±interquartile range, with a cold L2, of the best /split (GB/s).",
            "A published change of at least 2% is judged: ours agrees in sign, differs, or is within the spread.",
            *([f"{ORIGINAL}: the published kernel itself, fbgemm-gpu-genai {version}, in the same process."]
              if version else []),
        ]
        if names := changed(ours):
            lines.append(f"Changed since they were recorded: {', '.join(names)}.")
    for table in data["tables"]:
        title = f"Table {table['table']}, {table['machine']}, {table['layout']}: {table['title']}"
        lines += ["", f"{title}; us (GB/s)", *_render(_columns(data, table, ours))]
        if "note" in table:
            lines.append(table["note"])
    if ours is None:
        return "\n".join(lines)
    for problem in ROW_BYTES:
        beyond = _beyond(data["batches"], problem, ours)
        if beyond:
            lines += ["", f"Past the published steps: {problem}, ours", *_render(beyond)]
    verdicts = [change.verdict for change in changes(ours, data)]
    if verdicts:
        counts = {name: verdicts.count(name) for name in ("agrees", "differs", "in the spread")}
        lines += ["", f"Of {len(verdicts)} published changes of at least 2%, ours agrees in sign with "
                  f"{counts['agrees']}, differs from {counts['differs']}, and is within the spread for "
                  f"{counts['in the spread']}."]  # fmt: skip
    left = ours.data["left_out"]
    lines += ["", *(f"{name} left out: {why}." for name, why in left.items())] if left else []
    return "\n".join(lines)


def _columns(data: dict[str, Any], table: dict[str, Any], ours: Ours | None) -> list[Column]:
    batches = data["batches"]
    shown: list[Column] = [("batch", [str(B) for B in batches])]
    for name, times in table["us"].items():
        cells = [f"{us} ({gbps})" for us, gbps in zip(times, table["gbps"][name], strict=True)]
        shown.append((name, cells))
    for name, ratios in table.get("speedup", {}).items():
        shown.append((f"x {name}", [f"{ratio:.2f}" for ratio in ratios]))
    if ours is None:
        return shown
    if "opt" in table:
        problem, rung = PROBLEM_OF[table["layout"]], table["rung"]
        over = FIRST if "over CU" in table["speedup"] else "opt06_group_vector_loads"
        shown += _times(ours, problem, over, f"ours {over}", batches)
        if rung != over:
            shown += _times(ours, problem, rung, f"ours {rung}", batches)
            shown.append(("x over ours", [_ratio(ours, problem, over, rung, B) for B in batches]))
        if table["opt"] == 10:
            shown += _times(ours, problem, ORIGINAL, ORIGINAL, batches)
        if not _before(data, table):
            below = _below(rung)
            shown.append((f"ours from {below[:5]}", [_percent(ours.change(problem, below, rung, B)) for B in batches]))
    else:
        last = "INT4 CU after" in table["us"]
        for what, problem in (("BF16", "gqa_bf16"), ("INT4", "int4_gqa")):
            shown += _times(ours, problem, FIRST, f"ours {what} {FIRST}", batches)
            if last:
                shown += _times(ours, problem, LAST[problem], f"ours {what} {LAST[problem]}", batches)
            if problem == "gqa_bf16":
                shown += _times(ours, problem, TORCH, "torch BF16", batches)
            if last:
                shown += _times(ours, problem, ORIGINAL, f"{ORIGINAL} {what}", batches)
    for what, old, new, problem, before, after in _steps(data, table):
        cells = []
        for B, x, y in zip(batches, old, new, strict=True):
            ratio, mine = y / x - 1, ours.change(problem, before, after, B)
            verdict = ""
            if mine and abs(ratio) >= CLEAR:
                verdict = " " + Change(table["table"], table["machine"], what, B, ratio, *mine).verdict
            cells.append(f"{ratio:+.1%}, ours {_percent(mine)}{verdict}")
        shown.append((what, cells))
    return shown


def _times(ours: Ours, problem: str, kernel: str, name: str, batches: Sequence[int]) -> list[Column]:
    """Times with spread, split and effective bandwidth; no column where nothing was measured."""
    found = {B: ours.best(problem, kernel, B) for B in batches}
    if not any(found.values()):
        return []
    cells = []
    for B, best in found.items():
        if not best:
            cells.append("-")
            continue
        rate = effective_bytes(B, ours.data["context"], ROW_BYTES[problem]) / best.us / 1e3
        split = "" if best.split is None else f" /{best.split}"
        cells.append(f"{best.us:.1f} ±{best.spread:.1f}{split} ({rate:.0f})")
    return [(name, cells)]


def _ratio(ours: Ours, problem: str, before: str, after: str, B: int) -> str:
    change = ours.change(problem, before, after, B)
    return "-" if change is None else f"{1 / (1 + change[0]):.2f}"


def _percent(change: tuple[float, bool] | None) -> str:
    return "-" if change is None else f"{change[0]:+.1%}"


def _beyond(batches: Sequence[int], problem: str, ours: Ours) -> list[Column]:
    rung = BEYOND[problem]
    mine = _times(ours, problem, rung, rung, batches)
    if not mine:
        return []
    shown: list[Column] = [("batch", [str(B) for B in batches]), *mine]
    for other in (LAST[problem], ORIGINAL, TORCH):
        cells = [_ratio(ours, problem, other, rung, B) for B in batches]
        if any(cell != "-" for cell in cells):
            shown.append((f"x over {other}", cells))
    read = recorded.ceilings(ours.data["machine"]).get("read_gbps")
    if read:
        floors = [effective_bytes(B, ours.data["context"], ROW_BYTES[problem]) / read / 1e3 for B in batches]
        shown.append(("at the read ceiling us", [f"{floor:.1f}" for floor in floors]))
    return shown


def _render(columns: list[Column]) -> list[str]:
    """Lines of at most `WIDTH` characters; what does not fit goes below, behind the first column again."""
    first, *others = [[text.rjust(max(map(len, (name, *cells)))) for text in (name, *cells)] for name, cells in columns]
    blocks = [[first]]
    for column in others:
        if sum(len(there[0]) + 2 for there in blocks[-1]) + len(column[0]) > WIDTH:
            blocks.append([first])
        blocks[-1].append(column)
    return ["  ".join(row) for block in blocks for row in zip(*block, strict=True)]


# --- the command -----------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `labkit reproduce`."""
    parser.add_argument("name", metavar="NAME", help=f"what to reproduce: {', '.join(NAMES)}")
    recorded.add_argument(parser)
    parser.add_argument("--seconds", type=float, metavar="N", help=f"begin nothing after so long ({SECONDS:.0f})")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Do what `labkit reproduce` was asked for; returns 0. Raises LabkitError."""
    from labkit.problems.problem import unknown

    if arguments.name not in NAMES:
        raise LabkitError(unknown("published study", arguments.name, list(NAMES)))
    if arguments.seconds is not None:
        if arguments.record is None:
            raise LabkitError("--seconds limits what --record measures; give both, or leave it out.")
        if not 0 < arguments.seconds < math.inf:
            raise LabkitError(f"--seconds is {arguments.seconds:g}; give a number above 0.")
    if arguments.record:
        written: list[Path] = []

        def save(data: dict[str, Any]) -> None:
            written[:] = [recorded.write("reproduce", arguments.name, data, arguments.record)]

        measure(save, seconds=arguments.seconds or SECONDS)
        ours: Ours | None = Ours(json.loads(written[0].read_text()))
    else:
        ours = find_recorded()
    if arguments.json:
        found = [vars(change) | {"verdict": change.verdict} for change in changes(ours)] if ours else []
        print(json.dumps({"published": published(), "ours": ours.data if ours else None, "changes": found}))
    else:
        print(text(ours))
    return 0
