"""The trusted side: takes the cells that count, has them recorded and run in sandboxes, compares bytes, and decides.

Seeds, real inputs, references and tolerances exist only here. The worker sees shapes and zeros; the engine sees inputs
and PTX, and no Python of the student's.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import hmac
import math
import os
import platform
import random
import re
import stat
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit import problems
from labkit.errors import LabkitError
from labkit.grading import gates, results, sandbox, submissions
from labkit.grading import scheme as schemes
from labkit.grading.answers import Unreadable, assigned, given
from labkit.grading.review import findings
from labkit.grading.scheme import Item, Scheme
from labkit.grading.submissions import Cell, Source, Submission
from labkit.problems.problem import Problem

if TYPE_CHECKING:
    import torch

HIDDEN_SHAPES = 3  # per kernel, beside the problem's own
RECORD_S = 120.0  # wall clock of one kernel's host code, all shapes
ENGINE_S = 300.0  # wall clock of one kernel on the emulator, all shapes
TIME_S = 300.0  # wall clock of one kernel on a GPU, all samples
TIMER_LIMITS = sandbox.Limits(memory=16 * sandbox.GIB, processes=256)  # what CUDA takes on the host
LONGEST_EXPLANATION = 20_000
LONGEST_SOURCE = 100_000  # characters of a kernel that its result keeps, for reports
SEED_FILE = ".seed"


def grade_one(
    path: str | Path | Source,
    out: str | Path,
    *,
    root: Path | None = None,
    scheme: Scheme | None = None,
    seed: bytes | None = None,
    level: str | None = None,
) -> dict[str, Any]:
    """Grade one submission, write `out/results/<id>.json`, and return what it holds (see `results`).

    path : a notebook, a folder or a zip of one student.  root : the project with `solutions/`, by default found.
    scheme : what is graded; by default all questions of the notebooks that the submission has cells of.
    seed : by default the one kept in `out`.  level : of the sandbox, by default the best there is.
    """
    from labkit.root import root as find_root

    root = Path(root) if root else find_root()
    with Grader(root, Path(out), scheme=scheme, seed=seed, level=level) as grader:
        return grader.grade(path)


def seed_of(out: Path, file: Path | None = None) -> bytes:
    """The secret of a class: kept in `out` from the first run on, from `file` if one is given.

    LabkitError where `file` holds another than the one that results in `out` were made with.
    """
    kept = Path(out) / SEED_FILE
    given = None
    if file is not None:
        try:
            given = hashlib.sha256(Path(file).read_bytes().strip()).digest()
        except OSError as error:
            raise LabkitError(f"{file} cannot be read ({error.strerror}); name a file with a secret text.") from None
    if kept.exists():
        seed = kept.read_bytes()
        if len(seed) != 32:
            raise LabkitError(f"{kept} is damaged; remove {out} and grade again.")
        if given not in (None, seed):
            raise LabkitError(f"{out} was graded with another seed than {file}; name another --out.")
        return seed
    seed = given or os.urandom(32)
    kept.parent.mkdir(parents=True, exist_ok=True)
    new = kept.with_name(f"{SEED_FILE}.{os.getpid()}")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, stat.S_IRUSR | stat.S_IWUSR)
    with os.fdopen(handle, "wb") as open_file:
        open_file.write(seed)
        open_file.flush()
        os.fsync(open_file.fileno())
    try:
        os.link(new, kept)  # of several that begin at once, one wins
    except FileExistsError:
        return seed_of(out, file)
    finally:
        new.unlink()
    return seed


class Grader:
    """Grades submissions one after the other, each in sandboxes of its own. A context manager."""

    def __init__(
        self,
        root: Path,
        out: Path,
        *,
        scheme: Scheme | None = None,
        seed: bytes | None = None,
        level: str | None = None,
        gpu: int | None = None,
    ) -> None:
        self.root, self.out = root, out
        self.scheme = scheme
        self.seed = seed_of(out) if seed is None else seed
        self.level = level or sandbox.best()
        self.gpu = gpu
        self.references = References(self)

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *_: object) -> None:
        self.references.close()

    @functools.cached_property
    def _all(self) -> Scheme:
        return schemes.load(self.root)

    def grade(self, source: str | Path | Source) -> dict[str, Any]:
        """The result of one submission, written as well."""
        started, clock = datetime.datetime.now(datetime.UTC), time.perf_counter()
        source = submissions.source_of(source)
        submission = submissions.read(source)
        scheme = self.scheme or self._all.of(notebooks_of(submission, self._all))
        items: list[dict] = []
        state, reason = "graded", None
        grading = Grading(submission, scheme, seed=self.seed, references=self.references)
        if submission.ungradable:
            state, reason = "ungradable", submission.ungradable
        elif not scheme.items:
            state, reason = "ungradable", "It has no cell of any question that is graded."
        else:
            try:
                with Runner(self.level) as runner:
                    items = grading.items(runner)
            except LabkitError as error:
                state, reason = "infrastructure_error", str(error)
        result = {
            "schema_version": results.SCHEMA_VERSION,
            "submission": submission.id,
            "state": state,
            "reason": reason,
            "sandbox": self.level,
            "scheme": scheme.hash,
            "digest": digest_of(source),
            **results.totals(items),
            "faults": grading.faults,
            "review": grading.review,
            "items": items,
            "started": started.isoformat(timespec="seconds"),
            "seconds": round(time.perf_counter() - clock, 3),
            "labkit": version(),
            "machine": machine(),
        }
        if state != "graded":
            result["possible"] = round(scheme.possible, 6)
        results.write(self.out, result)
        return result

    def fill(self, source: Source) -> dict[str, Any]:
        """The result of a graded submission with its times filled in, and nothing else changed; written as well."""
        result = results.read(results.path(self.out, source.id))
        submission = submissions.read(source)
        items = {item.id: item for item in self.scheme.items}
        with Runner(self.level, self.gpu) as runner:
            for found in result["items"]:
                if found["id"] not in unfinished(result):
                    continue
                item = items[found["id"]]
                parts = {part["name"]: part for part in found["parts"]}
                trial = self._trial(item, submission, parts["correct"]["details"])
                if trial is not None:
                    try:
                        reference = self.references.recording(item, trial.language)
                        part = timed(runner, trial, reference, self.seed, parts["time"])
                    except LabkitError as error:  # no fault of the student's
                        part = waits(parts["time"], error)
                    found["parts"][found["parts"].index(parts["time"])] = part
                    found.update(results.item(item.id, found["kind"], found["parts"], found["counters"]))
        result.update(results.totals(result["items"]))
        results.write(self.out, result)
        return result

    def _trial(self, item: Item, submission: Submission, details: dict[str, Any]) -> Trial | None:
        """The kernel that was found correct; None where the submission has changed since."""
        for spec in item.cells:
            for cell in candidates(item, spec, submission)[0]:
                source = source_of(cell, spec.language)
                if hashlib.sha256(source.encode()).hexdigest() == details.get("source"):
                    return Trial(item.problem, item.rung, spec.language, source)
        return None

    def failed(self, source: Source, reason: str) -> dict[str, Any]:
        """The result, written, of a submission that is not graded for a reason that is not its own fault alone."""
        result = {
            "schema_version": results.SCHEMA_VERSION, "submission": source.id, "state": "infrastructure_error",
            "reason": reason, "sandbox": self.level, "scheme": self.scheme.hash, "digest": digest_of(source),
            "points": 0.0, "possible": round(self.scheme.possible, 6), "pending": 0.0, "faults": [], "review": [],
            "items": [], "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "seconds": 0.0, "labkit": version(), "machine": machine(),
        }  # fmt: skip
        results.write(self.out, result)
        return result


def digest_of(source: Source) -> str:
    """A hash of what was handed in, "" where it cannot be read."""
    try:
        return submissions.digest(source)
    except (OSError, ValueError):  # it cannot be read, and the result says so
        return ""


def unfinished(result: dict[str, Any]) -> list[str]:
    """The items of a result whose time waits for a GPU."""
    return [
        item["id"]
        for item in result["items"]
        if any(part["name"] == "time" and part["state"] == "pending" for part in item["parts"])
    ]


def version() -> str:
    """labkit's own."""
    from importlib import metadata

    return metadata.version("labkit")


@functools.cache
def machine() -> dict[str, Any]:
    """What a result says of the machine that it was graded on."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "control_groups": sandbox.control_groups(),
    }


def notebooks_of(submission: Submission, scheme: Scheme) -> list[str]:
    """The notebooks of a scheme that a submission has cells of."""
    idents = {ident for cell in submission.cells for ident in cell.idents}
    magics = {found for cell in submission.cells if (found := _magic(cell.source))}
    names = []
    for item in scheme.items:
        here = any(cell.id in idents for cell in item.cells)
        here = here or any((item.problem, item.rung, cell.language) in magics for cell in item.cells)
        if here or item.kind == "answer" and any(_mentions(cell, item.key) for cell in submission.cells):
            names.append(item.notebook)
    return list(dict.fromkeys(names))


# --- which cell counts -----------------------------------------------------------------------------------

_KERNEL = re.compile(r"\s*%%kernel[ \t]+([\w/]+)[ \t]*(--cuda)?[ \t]*(?:\n|$)")


def _magic(source: str) -> tuple[str, str, str] | None:
    found = _KERNEL.match(source)
    if not found:
        return None
    problem, _, rung = found[1].partition("/")
    return problem, rung, "cuda" if found[2] else "numba"


def _mentions(cell: Cell, key: str) -> bool:
    return "answer" in cell.source and (f'"{key}"' in cell.source or f"'{key}'" in cell.source)


def source_of(cell: Cell, language: str) -> str:
    """The kernel file that a cell stands for, with the cell's line numbers."""
    comment = "// " if language == "cuda" else "# "
    return _KERNEL.sub(lambda m: comment + m[0].lstrip(), cell.source, count=1)


def _plain_source(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.strip().split("\n"))


def candidates(item: Item, spec: schemes.Cell, submission: Submission) -> tuple[list[Cell], bool]:
    """The cells that may hold the answer, best first: by id, then by what they say; and whether any is there at all.

    Locked cells and untouched stubs are left out.
    """
    named = [c for c in submission.cells if spec.id in c.idents]
    if item.kind == "kernel":
        wanted = (item.problem, item.rung, spec.language)
        named = [c for c in named if _magic(c.source) in (None, wanted)]
        told = [c for c in submission.cells if _magic(c.source) == wanted]
    elif item.kind == "answer":
        named = [c for c in named if _mentions(c, item.key)]
        told = [c for c in submission.cells if _mentions(c, item.key)]
    else:
        told = []
    both = list(dict.fromkeys([*named, *told]))
    stub = _plain_source(spec.stub)
    return [c for c in both if not c.locked and _plain_source(c.source) not in (stub, "")], bool(both)


# --- one submission --------------------------------------------------------------------------------------


class Grading:
    """Grades the items of one submission, and gathers faults of its notebooks and findings for review.

    seed : None tries known shapes only.  references : None leaves the gates open.
    """

    def __init__(
        self, submission: Submission, scheme: Scheme, *, seed: bytes | None, references: References | None
    ) -> None:
        self.submission, self.scheme = submission, scheme
        self.seed, self.references = seed, references
        self.faults = list(submission.faults)
        self.review: list[dict[str, Any]] = []
        self._absent: set[str] = set()

    def items(self, runner: Runner) -> list[dict]:
        self.runner = runner
        graded = []
        for item in self.scheme.items:
            cell, spec = self._cell(item)
            if cell is None:
                graded.append(self._missing(item))
            else:
                graded.append(getattr(self, f"_{item.kind}")(item, cell, spec))
        for notebook in self.scheme.notebooks:
            own = [item.id for item in self.scheme.items if item.notebook == notebook]
            gone = [ident for ident in own if ident in self._absent]
            if gone == own and len(own) > 1:
                self.faults.append(f"Nothing of the notebook {notebook} is there.")
            else:
                self.faults += [f"There is no cell for {ident}." for ident in gone]
        return graded

    def _cell(self, item: Item) -> tuple[Cell | None, schemes.Cell | None]:
        there = False
        for spec in item.cells:
            found, any_ = candidates(item, spec, self.submission)
            there = there or any_
            if not found:
                continue
            cell = found[0]
            if len({_plain_source(c.source) for c in found}) > 1:
                self.faults.append(f"{item.id} stands in {len(found)} cells; the first, {_place(cell)}, counts.")
            if spec.id not in cell.idents:
                self.faults.append(f"{item.id} was found by what {_place(cell)} says; its id is gone.")
            if (cell.kind == "code") != (item.kind != "explain"):
                self.faults.append(f"{item.id}: {_place(cell)} is of the type {cell.kind}; it counts all the same.")
            return cell, spec
        if not there:
            self._absent.add(item.id)
        return None, None

    def _missing(self, item: Item) -> dict:
        said = "Nothing was handed in here: the cell is missing, or as it was given out."
        names = list(item.shares) if item.kind == "kernel" else ["answer" if item.kind == "answer" else "manual"]
        shares = item.shares if item.kind == "kernel" else {names[0]: item.points}
        parts = [results.part(name, shares[name], "missing", said) for name in names]
        return results.item(item.id, item.kind, parts, state="missing")

    def _answer(self, item: Item, cell: Cell, _: Any) -> dict:
        from labkit import answers as questions

        try:
            value = given(cell.source, item.key, self._names(cell), questions.names(item.key))
            if value is None:
                return self._missing(item)
            found = questions.answer(item.key, value)
        except (Unreadable, LabkitError) as error:
            part = results.part("answer", item.points, "fail", plain(str(error)))
        else:
            state = "pass" if found.right else "fail"
            part = results.part("answer", item.points, state, plain(found.verdict), given=found.value)
        return results.item(item.id, "answer", [part])

    def _names(self, cell: Cell) -> dict[str, Any]:
        """What names stand for where a cell begins, as far as the cells above it say it in arithmetic."""
        above = (c for c in self.submission.cells if c.notebook == cell.notebook and c.number < cell.number)
        return {n: v for c in above if c.kind == "code" and " = " in c.source for n, v in assigned(c.source).items()}

    def _explain(self, item: Item, cell: Cell, _: Any) -> dict:
        said = "A person reads this."
        text = cell.source[:LONGEST_EXPLANATION]
        part = results.part("manual", item.points, "pending", said, text=text)
        return results.item(item.id, "explain", [part])

    def _kernel(self, item: Item, cell: Cell, spec: schemes.Cell) -> dict:
        source = source_of(cell, spec.language)
        self.review += [
            {"what": what, "where": item.id, "line": line} for what, line in findings(source, spec.language)
        ]
        about = {
            "language": spec.language, "source": hashlib.sha256(source.encode()).hexdigest(), "cell": _place(cell),
            "text": source[:LONGEST_SOURCE],
        }  # fmt: skip
        trial = Trial(item.problem, item.rung, spec.language, source)
        shares = item.shares
        needed = gates.needed(item.gates) if "structure" in shares and self.references is not None else ()
        verdict, counted = judge(self.runner, trial, self.seed, needed)
        if verdict.died:
            self.review.append({"what": verdict.died, "where": item.id, "line": None})
        correct = results.part(
            "correct", shares["correct"], verdict.state, verdict.message, **about, runs=list(verdict.runs),
            line=verdict.line,
        )  # fmt: skip
        parts, counters = [correct], {}
        if verdict.state != "pass":
            state = verdict.state if verdict.state in ("timeout", "error") else "fail"
            later = "This is judged once the kernel is correct."
            parts += [results.part(name, shares[name], state, later) for name in shares if name != "correct"]
            return results.item(item.id, "kernel", parts)
        if "structure" in shares:
            part, counters = self._structure(item, trial, shares["structure"], counted)
            if part["details"].get("wrong"):  # right on small shapes, wrong on the one that is counted
                parts = [results.part("correct", shares["correct"], "fail", part["message"], **about)]
            parts.append(part)
        if "time" in shares:
            state = "pending" if parts[0]["state"] == "pass" else "fail"
            said = "This waits for a GPU." if state == "pending" else "This is judged once the kernel is correct."
            parts.append(results.part("time", shares["time"], state, said))
        return results.item(item.id, "kernel", parts, counters)

    def _structure(
        self, item: Item, trial: Trial, points: float, counted: Verdict | None
    ) -> tuple[dict, dict]:
        if self.references is None or counted is None:
            return results.part("structure", points, "pending", "This is judged by your instructor's grader."), {}
        optimised, unoptimised = self.references.of(item, trial.language)
        if counted.state != "pass":
            wrong = counted.state == "fail" and counted.value
            part = results.part("structure", points, counted.state, counted.message, wrong=wrong)
            return part, {}
        counters, missed = {}, []
        for name in item.gates:
            if not {name, *gates.COSTS, gates.THREADS} <= set(counted.metrics):
                missed.append(f"{name} could not be counted.")
                continue
            of = {"yours": counted.metrics, "optimised": optimised, "unoptimised": unoptimised}
            three = {which: gates.shown(metrics, name) for which, metrics in of.items()}
            counters[name] = three
            if not gates.passes(name, counted.metrics, optimised, unoptimised):
                note = gates.note(name)
                missed.append(
                    f"{name} reads {three['yours']:,.6g}; with what this rung is about it reads "
                    f"{three['optimised']:,.6g}, without it {three['unoptimised']:,.6g}{note and f' ({note})'}."
                )
        if not missed:
            missed = gates.excesses(counted.metrics, optimised, unoptimised)
        state = "fail" if missed else "pass"
        message = " ".join(missed) if missed else _read(counters)
        return results.part("structure", points, state, message, shape=counted.shape), counters


def _read(counters: dict[str, dict[str, float]]) -> str:
    return " ".join(
        f"{name} reads {c['yours']:,.6g} (with what this rung is about {c['optimised']:,.6g}, without it "
        f"{c['unoptimised']:,.6g})."
        for name, c in counters.items()
    )


def _place(cell: Cell) -> str:
    return f"cell {cell.number} of {ascii(cell.notebook)[1:-1]}"


def plain(text: str, longest: int = 600) -> str:
    """A text from an untrusted process as one line of printable characters."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= longest else text[: longest - 3] + "..."


# --- running a kernel ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """A kernel to be tried: the source of a file, for a rung and a language."""

    problem: str
    rung: str
    language: str
    source: str


@dataclass
class Verdict:
    """What came of some runs. `value`: an output was wrong.  died: for a person to look at."""

    state: str
    message: str
    runs: tuple[str, ...] = ()
    line: int | None = None
    value: bool = False
    died: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    shape: dict[str, Any] = field(default_factory=dict)


class Runner:
    """The sandboxes of one submission: one that records, one that runs. A context manager."""

    def __init__(self, level: str, gpu: int | None = None) -> None:
        self.worker = sandbox.Box("labkit.grading.worker", level)
        self.engine = sandbox.Box("labkit.grading.engine", level)
        self.timer = sandbox.Box("labkit.grading.timer", level, limits=TIMER_LIMITS, gpu=gpu)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.kill()
        self.engine.kill()
        self.timer.kill()

    def record(self, trial: Trial, shapes: list[dict[str, Any]]) -> list[bytes | tuple[str, int | None]]:
        """For each shape a recording, or what went wrong and at which line."""
        job = {"problem": trial.problem, "rung": trial.rung, "language": trial.language, "shapes": shapes}
        answer, blobs = self.worker.call(job, [trial.source.encode()], seconds=RECORD_S)
        found: list[Any] = []
        try:
            if len(answer["results"]) != len(shapes):
                raise ValueError("results")
            for one in answer["results"]:
                if "error" in one:
                    line = one["line"] if type(one.get("line")) is int else None
                    found.append((plain(str(one["error"])), line))
                else:
                    number = one["recording"]
                    if type(number) is not int or not 0 <= number < len(blobs):
                        raise ValueError("recording")
                    found.append(blobs[number])
        except (KeyError, TypeError, ValueError) as error:
            raise sandbox.Died("it answered nonsense") from error
        return found


@dataclass(frozen=True)
class _Case:
    """A run: its shape, real inputs and outputs' sizes, and what is right. Shared by all submissions of a process."""

    problem: Problem
    shape: dict[str, Any]
    inputs: dict[str, torch.Tensor]

    @property
    def label(self) -> str:
        return " ".join(f"{d}={v}" for d, v in self.shape.items())

    @functools.cached_property
    def wanted(self) -> Any:
        from labkit.check import tolerance

        return tolerance(self.problem, self.inputs, self.problem.options_of(self.shape))

    @functools.cached_property
    def tensors(self) -> list[dict[str, Any]]:
        import torch

        return [
            {
                "name": name, "dtype": spec.dtype, "shape": list(spec.shape(self.shape)),
                "output": name in self.problem.outputs,
                "nbytes": math.prod(spec.shape(self.shape)) * getattr(torch, spec.dtype).itemsize,
            }
            for name, spec in {**self.problem.outputs, **self.problem.inputs}.items()
        ]  # fmt: skip

    @functools.cached_property
    def blobs(self) -> dict[str, bytes]:
        return {name: _raw(tensor) for name, tensor in self.inputs.items()}


def _raw(tensor: torch.Tensor) -> bytes:
    import torch

    flat = tensor.reshape(-1).clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8).numpy().tobytes()


def _case(trial: Trial, shape: dict[str, Any], seed: bytes, what: str) -> _Case:
    return _kept_case(trial.problem, trial.rung, tuple(shape.items()), seed, what)


@functools.lru_cache(maxsize=256)
def _kept_case(name: str, rung: str, sizes: tuple, seed: bytes, what: str) -> _Case:
    problem, shape = _problem_of(name, rung), dict(sizes)
    text = f"{what} {name}/{rung} {sorted(shape.items())}"
    number = int.from_bytes(hmac.digest(seed, text.encode(), "sha256")[:7], "big")
    return _Case(problem, shape, problem.make_inputs(shape, number))


def hidden_shapes(problem: Problem, seed: bytes, rung: str, number: int = HIDDEN_SHAPES) -> list[dict[str, Any]]:
    """Shapes drawn from the seed, within what the problem's own shapes span and as divisible as these are.

    Shapes that the problem's own reference refuses are none.
    """
    draw = random.Random(hmac.digest(seed, f"shapes {problem.name}/{rung}".encode(), "sha256"))
    own = [problem.dims_of(shape) for shape in problem.shapes]
    most = max(problem.flops(shape) + problem.bytes(shape) for shape in own)
    ranges = {
        name: (math.gcd(*(s[name] for s in own)), min(s[name] for s in own), max(s[name] for s in own))
        for name in problem.dims
    }
    found: list[dict[str, Any]] = []
    for _ in range(1000):
        shape = dict(draw.choice(own))  # with its options
        for name, (step, low, high) in ranges.items():
            if draw.random() < 0.25:
                continue  # as it is, for problems in which few sizes go together
            size = math.exp(draw.uniform(math.log(low), math.log(high + 1)))
            shape[name] = max(low, int(size) // step * step)
        known = shape in own or shape in found or problem.flops(shape) + problem.bytes(shape) > most
        if not known and _legal(problem, shape):
            found.append(shape)
        if len(found) == number:
            break
    return found


def _legal(problem: Problem, shape: dict[str, Any]) -> bool:
    try:
        inputs = problem.make_inputs(shape, 0).values()
        exact = [t.double() if t.is_floating_point() else t for t in inputs]
        problem.reference(*exact, **problem.options_of(shape))
    except (LabkitError, RuntimeError, ValueError, IndexError):
        return False
    return True


@functools.lru_cache(maxsize=256)
def _shapes_of(name: str, rung: str, seed: bytes | None) -> tuple[list[dict[str, Any]], int]:
    """The shapes that a rung is judged at, and how many of them are hidden: with a seed, some."""
    problem = _problem_of(name, rung)
    hidden = hidden_shapes(problem, seed, rung) if seed is not None else []
    return [problem.dims_of(shape) for shape in problem.shapes] + hidden, len(hidden)


def judge(
    runner: Runner, trial: Trial, seed: bytes | None, metrics: tuple[str, ...] = ()
) -> tuple[Verdict, Verdict | None]:
    """Is it right, on the problem's shapes and, with a seed, on hidden ones? And, if so, its counters.

    The counters are of a run at the shape of the rung's gates, whose result has to be right as well.
    """
    shapes, hidden = _shapes_of(trial.problem, trial.rung, seed)
    cases = [_case(trial, shape, seed or b"visible", "check") for shape in shapes]
    counted = None
    if metrics:  # in one go with the rest, as long as all goes well
        last = _gate_case(trial, seed, trial.rung)
        verdict, at = _try(runner, trial, [*cases, last], metrics)
        if at is not None and at >= len(cases):
            verdict.shape = last.shape
            counted, verdict = verdict, Verdict("pass", "", verdict.runs)
        elif at is None:
            verdict, _ = _try(runner, trial, cases, ())
            counted = count(runner, trial, metrics, seed, trial.rung) if verdict.state == "pass" else None
    else:
        verdict, _ = _try(runner, trial, cases, ())
    verdict.runs = verdict.runs[: len(cases)]
    if verdict.state == "pass":
        more = f", {hidden} of them not known before" if hidden else ""
        verdict.message = f"Right on {len(cases)} shapes{more}."
    return verdict, counted


def count(runner: Runner, trial: Trial, metrics: tuple[str, ...], seed: bytes, rung: str) -> Verdict:
    """The counters of a run at the shape of the gates of `rung`, whose result has to be right as well."""
    case = _gate_case(trial, seed, rung)
    verdict, _ = _try(runner, trial, [case], metrics)
    verdict.shape = case.shape
    return verdict


def _gate_case(trial: Trial, seed: bytes, rung: str) -> _Case:
    problem = _problem(trial)
    return _case(trial, problem.dims_of(problem.step(rung).gate_shape or problem.profile_shape), seed, "count")


def _problem(trial: Trial) -> Problem:
    return _problem_of(trial.problem, trial.rung)


def _problem_of(name: str, rung: str) -> Problem:
    problem = problems.get(name)
    return problem.of(problem.step(rung))


def _try(runner: Runner, trial: Trial, cases: list[_Case], metrics: tuple[str, ...]) -> tuple[Verdict, int | None]:
    """What comes of these runs, the last of them counted; and at which of them it was decided, None if that is unknown.

    All went well where that is the number of runs.
    """
    labels = tuple(case.label for case in cases)
    try:
        recorded = runner.record(trial, [case.shape for case in cases])
    except sandbox.Timeout:
        return Verdict("timeout", f"Its Python code did not end within {RECORD_S:.0f} s.", labels), None
    except sandbox.Died as death:
        said = f"The process that runs its Python code ended without an answer: {plain(str(death))}."
        return Verdict("fail", said, labels, died=said), None
    usable = []
    for case, found in zip(cases, recorded, strict=True):
        if isinstance(found, tuple):
            break
        usable.append((case, found))
    if usable:
        verdict, at = _engine(runner, usable, metrics if len(usable) == len(cases) else ())
        if verdict.state != "pass" or len(usable) == len(cases):
            verdict.runs = labels
            return verdict, at
    at = len(usable)
    message, line = recorded[at]
    return Verdict("fail", plain(f"{cases[at].label}: {message}"), labels, line), at


def _engine(
    runner: Runner, runs: list[tuple[_Case, bytes]], metrics: tuple[str, ...]
) -> tuple[Verdict, int | None]:
    last = len(runs) - 1
    wanted = [list(metrics) if i == last else [] for i in range(len(runs))]
    job = {"runs": [{"tensors": case.tensors, "metrics": m} for (case, _), m in zip(runs, wanted, strict=True)]}
    blobs = [blob for case, recording in runs for blob in (recording, *case.blobs.values())]
    for again in (True, False):
        try:
            answer, data = runner.engine.call(job, blobs, seconds=ENGINE_S)
            break
        except sandbox.Timeout:
            return Verdict("timeout", f"It did not end within {ENGINE_S:.0f} s on the emulator."), None
        except sandbox.Died as death:
            if not again:
                said = f"The emulator ended without an answer: {plain(str(death))}."
                return Verdict("error", said, died=said), None
    return _compared(answer, data, runs)


def _compared(
    answer: dict[str, Any], data: list[bytes], runs: list[tuple[_Case, bytes]]
) -> tuple[Verdict, int | None]:
    rest = iter(data)
    metrics: dict[str, float] = {}
    try:
        if not answer["runs"] or len(answer["runs"]) > len(runs):
            raise ValueError("runs")
        for at, ((case, _), run) in enumerate(zip(runs, answer["runs"], strict=False)):
            if "fault" in run:
                fault = run["fault"]
                line = fault["line"] if type(fault["line"]) is int else None
                return Verdict("fail", plain(f"{case.label}: {fault['message']}"), line=line), at
            wrong = _wrong(case, [next(rest) for _ in case.tensors], run["launches"])
            if wrong:
                return Verdict("fail", plain(f"{case.label}: {wrong}"), value=True), at
            metrics = {n: float(v) for n, v in run["metrics"].items() if type(v) in (int, float) and math.isfinite(v)}
        if len(answer["runs"]) != len(runs):
            raise ValueError("runs")
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        said = f"The emulator's answer could not be read ({type(error).__name__})."
        return Verdict("error", said, died=said), None
    return Verdict("pass", "", metrics=metrics), len(runs)


def _wrong(case: _Case, after: list[bytes], launches: int) -> str | None:
    """What is wrong with the bytes of the tensors after a run, as a sentence; None where they are right."""
    import torch

    from labkit.check import compare

    problem, outputs = case.problem, {}
    if not launches:
        return "launch started no kernel, so nothing was computed."
    for tensor, raw in zip(case.tensors, after, strict=True):
        if len(raw) != tensor["nbytes"]:
            raise ValueError("bytes")
        name = tensor["name"]
        if not tensor["output"]:
            if raw != case.blobs[name]:
                return f"{name} is an input, and the kernel changed it; write to the output only."
            continue
        dtype = getattr(torch, tensor["dtype"])
        outputs[name] = torch.frombuffer(bytearray(raw), dtype=dtype).reshape(tensor["shape"])
    options = problem.options_of(case.shape)
    found = compare(problem, case.inputs, outputs, options, lambda kind, message, **_: message, case.wanted)
    return next(found, None)


# --- time ------------------------------------------------------------------------------------------------


def timed(runner: Runner, trial: Trial, reference: bytes, seed: bytes, part: dict[str, Any]) -> dict[str, Any]:
    """The part "time" of a kernel, measured on a GPU in turn with the reference; still pending where that fails.

    reference : the recording of the solution at `bench_shape`.
    """
    problem, shape = _problem(trial), bench_shape(trial)
    number = int.from_bytes(hmac.digest(seed, f"time {trial.problem}/{trial.rung}".encode(), "sha256")[:7], "big")
    job = {"problem": trial.problem, "rung": trial.rung, "shape": shape, "seed": number}

    def lost(message: str, state: str = "fail") -> dict[str, Any]:
        return results.part("time", part["possible"], state, plain(message), shape=shape)

    try:
        (yours,) = runner.record(trial, [shape])
    except sandbox.Timeout:
        return lost(f"At the shape that is timed its Python code did not end within {RECORD_S:.0f} s.", "timeout")
    except sandbox.Died as death:
        return lost(f"At the shape that is timed the process that runs its Python code ended: {death}.")
    if isinstance(yours, tuple):
        return lost(f"At the shape that is timed: {yours[0]}")
    try:
        job["floor_ms"] = _floor(problem, shape, runner.timer.gpu or 0)
        answer, _ = runner.timer.call(job, [yours, reference], seconds=TIME_S)
        if "fault" in answer:
            if answer["whose"] == "yours":
                return lost(str(answer["fault"]))
            raise sandbox.Died(str(answer["fault"]).rstrip("."))
        samples = [[float(ms) for ms in answer[name]] for name in ("yours_ms", "reference_ms")]
        if not all(len(s) and all(math.isfinite(ms) and ms > 0 for ms in s) for s in samples):
            raise sandbox.Died("it answered nonsense")
    except sandbox.Timeout:
        return lost(f"It did not end within {TIME_S:.0f} s on the GPU.", "timeout")
    except (sandbox.Died, LabkitError, KeyError, TypeError, ValueError) as error:
        return waits(part, error)
    device = plain(str(answer.get("device", "")), 100)
    return banded(part["possible"], *samples, shape=shape, device=device)


def waits(part: dict[str, Any], why: Exception) -> dict[str, Any]:
    """The part "time", still pending, with why it could not be judged."""
    said = str(why).rstrip(".") or type(why).__name__
    return {**part, "message": plain(f"It could not be timed ({said}); this still waits for a GPU.")}


def bench_shape(trial: Trial) -> dict[str, Any]:
    """The shape at which a rung is timed: one that fills a large GPU."""
    problem = _problem(trial)
    return problem.dims_of(problem.step(trial.rung).bench_shape or problem.bench_shape)


def banded(possible: float, yours: list[float], reference: list[float], **details: Any) -> dict[str, Any]:
    """The part "time" for samples in ms: a share of its points by speed relative to the reference."""
    mine, theirs = statistics.median(yours), statistics.median(reference)
    ratio = theirs / mine
    share = next((share for least, share in schemes.BANDS if ratio >= least), 0.0)
    message = f"{mine:.4g} ms, and the reference {theirs:.4g} ms in turn with it: {ratio:.0%} of its speed."
    state = "pass" if share == 1.0 else "fail"
    numbers = {"median_ms": mine, "reference_ms": theirs, "ratio": ratio}
    return results.part("time", possible, state, message, points=share * possible, **numbers, **details)


def _floor(problem: Problem, shape: dict[str, Any], number: int) -> float:
    """The least time at `shape` by the measured ceilings of the GPU of this number, in ms; 0 where there are none."""
    import torch

    from labkit import recorded
    from labkit.models.bound import least

    machine = torch.cuda.get_device_name(number) if torch.cuda.is_available() else ""
    ceilings = recorded.ceilings(machine) if machine else {}
    if not ceilings:
        return 0.0
    flops, size = problem.flops(shape), problem.bytes(shape)
    return least(flops, size, ceilings, machine, problem.math, read_only=problem.read_only(shape)).ms


# --- the instructor's own kernels ------------------------------------------------------------------------


class References:
    """What the gates are judged against: counts of this rung's solution and of the rung below, kept in `out`."""

    def __init__(self, grader: Grader) -> None:
        self.grader = grader
        self._known: dict[tuple, tuple[dict[str, float], dict[str, float]]] = {}
        self._recorded: dict[Trial, bytes] = {}
        self._runner: Runner | None = None

    def close(self) -> None:
        """End the sandboxes; a later call makes new ones."""
        if self._runner is not None:
            self._runner.__exit__()
            self._runner = None

    def prepare(self, scheme: Scheme, say: Callable[[str], None] = lambda line: None) -> None:
        """Have all counts of a scheme, in each language that is offered."""
        needed = [(item, cell.language) for item in scheme.items if item.gates for cell in item.cells]
        for number, (item, language) in enumerate(needed, 1):
            say(f"Counting our own kernels, once: {item.problem}/{item.rung} in {language} ({number}/{len(needed)})")
            self.of(item, language)
        self.close()

    def of(self, item: Item, language: str) -> tuple[dict[str, float], dict[str, float]]:
        """Counts of the optimized and the unoptimized kernel; LabkitError where a gate tells them apart by nothing."""
        key = (item.problem, item.rung, language, item.gates)
        if key not in self._known:
            above, below = self._rungs(item, language)
            here, there = (self._counts(rung, gates.needed(item.gates), item.rung) for rung in (above, below))
            for name in item.gates:
                if here[name] == there[name]:
                    raise LabkitError(
                        f"{name} is a gate of {item.problem}/{item.rung} and reads the same ({here[name]:g}) on the "
                        "rung below; choose another in its ladder."
                    )
            self._known[key] = here, there
        return self._known[key]

    def recording(self, item: Item, language: str) -> bytes:
        """What the solution of an item's rung launches at the shape that is timed; LabkitError where that fails."""
        trial = Trial(item.problem, item.rung, language, self._rung(item.problem, item.rung, language).source)
        if trial not in self._recorded:
            self._runner = self._runner or Runner(self.grader.level)
            try:
                (found,) = self._runner.record(trial, [bench_shape(trial)])
            except (sandbox.Timeout, sandbox.Died) as error:
                found = (str(error) or "it took too long", None)
            if isinstance(found, tuple):
                raise LabkitError(f"The solution of {item.problem}/{item.rung} could not be recorded: {found[0]}")
            self._recorded[trial] = found
        return self._recorded[trial]

    def _rungs(self, item: Item, language: str) -> Iterator[Any]:
        under = schemes.below(item.problem, item.rung, language)
        if under is None:
            raise LabkitError(f"{item.problem}/{item.rung} has gates and no rung below it to judge them by.")
        for name in (item.rung, under):
            yield self._rung(item.problem, name, language)

    def _rung(self, problem: str, rung: str, language: str) -> Any:
        from labkit.ladder import SUFFIX, Rung

        found = problems.get(problem)
        kernels = self.grader.root / "solutions" / found.lab / "kernels" / (found.kernels or found.name)
        return Rung(found, found.step(rung), language, "solutions", kernels / (rung + SUFFIX[language]))

    def _counts(self, rung: Any, names: tuple[str, ...], of: str) -> dict[str, float]:
        """What a solution reads at the shape of the gates of the rung called `of`."""
        import json

        parts = version(), rung.name, rung.language, rung.fingerprint, names, of
        made = hashlib.sha256(repr(parts).encode()).hexdigest()
        kept = self.grader.out / ".references" / f"{made[:32]}.json"
        try:
            found = json.loads(kept.read_text())
            if set(found) == set(names):
                return found
        except (OSError, ValueError):
            pass
        # In boxes of its own: what a student's boxes have seen must not meet a solution.
        trial = Trial(rung.problem.name, rung.step.name, rung.language, rung.source)
        self._runner = self._runner or Runner(self.grader.level)
        verdict = count(self._runner, trial, names, self.grader.seed, of)
        if verdict.state != "pass" or set(verdict.metrics) != set(names):
            why = verdict.message or "there is no such metric."
            raise LabkitError(f"The solution of {rung.name} could not be counted: {why}")
        results.write_text(kept, json.dumps(verdict.metrics))
        return verdict.metrics


