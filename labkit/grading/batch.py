"""A whole class: resumable at any kill, on all cores, and beyond one machine by dask; what is finished stays finished.

A submission is done when its result lies in `out/results`, was made by the same scheme, and is of the same bytes.
Each is graded in a process that may die: that costs a retry, and a submission that kills two is put aside.
"""

from __future__ import annotations

import ctypes
import fcntl
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from labkit.errors import LabkitError
from labkit.grading import results, sandbox, submissions
from labkit.grading import scheme as schemes
from labkit.grading.grade import Grader, digest_of, notebooks_of, seed_of, unfinished
from labkit.grading.scheme import Scheme
from labkit.grading.submissions import Source

MOST_DEATHS = 2  # of grading processes, in one run
MOST_STARTS = 3  # without an end, over all runs


@dataclass(frozen=True)
class Plan:
    """What every process of a batch has to know."""

    root: Path
    out: Path
    scheme: Scheme
    seed: bytes
    level: str


def grade_all(
    path: str | Path,
    out: str | Path,
    *,
    root: Path | None = None,
    jobs: int | None = None,
    seed_file: Path | None = None,
    force_weak: bool = False,
    scheduler: str | None = None,
    labs: Iterable[str] | None = None,
    points: Mapping[str, float] | None = None,
    timed: bool = True,
    progress: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """Grade what lies at `path` (see `submissions.find`) into `out`; returns all results, those of earlier runs too.

    jobs : processes, by default one per core.  scheduler : address of a dask scheduler, whose workers see the same
    `path`, `out` and `root`.  labs, points, timed : see `scheme.load`; by default all notebooks that occur.
    progress : takes a line whenever something is done.
    """
    from labkit.root import root as find_root

    root, out = Path(root).resolve() if root else find_root(), Path(out).resolve()
    sources = submissions.find(Path(path).resolve())
    level = sandbox.best()
    sandbox.allowed(level, len(sources), force_weak)
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out):
        whole = schemes.load(root, labs, points, timed=timed)
        scheme = whole if labs is not None else whole.of(_notebooks(sources, whole))
        if not scheme.items:
            raise LabkitError(f"{path} holds no cell of any question that is graded; is it the right folder?")
        plan = Plan(root, out, scheme, seed_of(out, seed_file), level)
        tell = Progress(len(sources), progress)
        todo = [source for source in sources if not _done(plan, source)]
        tell.skip(len(sources) - len(todo))
        if todo:
            with Grader(root, out, scheme=scheme, seed=plan.seed, level=level) as grader:
                grader.references.prepare(scheme, tell.say)  # once, before anyone waits for it
        run = _local(plan, todo, jobs) if scheduler is None else _dask(plan, todo, scheduler)
        for result in run:
            tell(result)
        _times(plan, sources, tell)
        found = [results.read(results.path(out, source.id)) for source in sources]
        results.write_text(out / "summary.csv", results.summary(found))
        return found


def _notebooks(sources: list[Source], scheme: Scheme) -> set[str]:
    return {name for source in sources for name in notebooks_of(submissions.read(source), scheme)}


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """LabkitError where another `labkit grade` works on the same folder."""
    with open(out / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabkitError(f"Another labkit grade works on {out}; wait for it, or name another --out.") from None
        yield


def _done(plan: Plan, source: Source) -> bool:
    try:
        result = results.read(results.path(plan.out, source.id))
    except LabkitError:
        return False
    same = result["scheme"] == plan.scheme.hash and result.get("digest") == digest_of(source)
    return same and result["state"] != "infrastructure_error"


# --- one submission, with a memory of how often it was tried ----------------------------------------------


def _attempts(plan: Plan, source: Source) -> Path:
    return plan.out / ".attempts" / source.id


def _starts(plan: Plan, source: Source) -> int:
    try:
        return len(_attempts(plan, source).read_bytes())
    except OSError:
        return 0


def _started(plan: Plan, source: Source) -> None:
    file = _attempts(plan, source)
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "ab") as open_file:
        open_file.write(b".")


def _ended(plan: Plan, source: Source) -> None:
    _attempts(plan, source).unlink(missing_ok=True)


def put_aside(plan: Plan, source: Source, why: str) -> dict[str, Any]:
    """The result of a submission that is not tried again by itself."""
    reason = f"{why}, so it was put aside for a person; remove {_attempts(plan, source)} to have it tried again."
    with Grader(plan.root, plan.out, scheme=plan.scheme, seed=plan.seed, level=plan.level) as grader:
        return grader.failed(source, reason)


def grade_job(plan: Plan, source: Source) -> dict[str, Any]:
    """Grade one submission of a plan, here; what a process of a pool or a dask worker calls."""
    if _starts(plan, source) >= MOST_STARTS:
        return put_aside(plan, source, f"Grading it was begun {MOST_STARTS} times and never ended")
    _started(plan, source)
    with Grader(plan.root, plan.out, scheme=plan.scheme, seed=plan.seed, level=plan.level) as grader:
        try:
            result = grader.grade(source)
        except LabkitError as error:
            result = grader.failed(source, str(error))
        except Exception as error:  # a fault of the grader's: the others go on, and a person hears of it
            result = grader.failed(source, f"The grader failed on it: {type(error).__name__}: {error}"[:500])
    _ended(plan, source)
    return result


# --- on this machine --------------------------------------------------------------------------------------


class _Process:
    """A process that grades one submission after the other, or fills in their times on a GPU."""

    def __init__(self, plan: Plan, gpu: int | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self.gpu = gpu
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(plan, theirs, gpu), daemon=True)
        self.process.start()
        theirs.close()
        self.source: Source | None = None

    def give(self, source: Source) -> None:
        self.source = source
        self.pipe.send(source)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(plan: Plan, pipe: Any, gpu: int | None) -> None:
    """The other side of a _Process, which does not outlive the one that started it, not even by a kill."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getppid() == 1:
        return
    while True:
        try:
            source = pipe.recv()
        except EOFError:
            return
        pipe.send(grade_job(plan, source) if gpu is None else time_job(plan, source, gpu))


def _local(plan: Plan, todo: list[Source], jobs: int | None) -> Iterator[dict[str, Any]]:
    count = min(jobs or os.cpu_count() or 1, len(todo))

    def lost(source: Source) -> dict[str, Any]:
        return put_aside(plan, source, f"It ended the grader's process {MOST_DEATHS} times")

    yield from _pool(plan, todo, [None] * count, lost)


def _pool(
    plan: Plan, todo: list[Source], gpus: list[int | None], lost: Callable[[Source], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Results as they come, from a process for each of `gpus`; `lost` says what of one that ended `MOST_DEATHS`."""
    waiting, deaths = list(reversed(todo)), dict.fromkeys((s.id for s in todo), 0)
    processes = [_Process(plan, gpu) for gpu in gpus]
    try:
        while waiting or any(p.source for p in processes):
            for p in processes:
                if waiting and p.source is None:
                    p.give(waiting.pop())
            busy = {p.pipe: p for p in processes if p.source}
            for pipe in wait(list(busy)):
                p = busy[pipe]
                try:
                    result = pipe.recv()
                    p.source = None
                    yield result
                except (EOFError, OSError):
                    source = p.source
                    p.end()
                    processes[processes.index(p)] = _Process(plan, p.gpu)
                    deaths[source.id] += 1
                    if deaths[source.id] < MOST_DEATHS:
                        waiting.insert(0, source)  # last, so that the others come first
                    else:
                        yield lost(source)
    finally:
        for p in processes:
            p.end()


# --- on many machines -------------------------------------------------------------------------------------


def _dask(plan: Plan, todo: list[Source], address: str) -> Iterator[dict[str, Any]]:
    try:
        from distributed import Client, as_completed
        from distributed.scheduler import KilledWorker
    except ImportError:
        raise LabkitError("--scheduler needs dask: pip install 'labkit[grading]'.") from None
    try:
        client = Client(address, timeout=30)
    except (OSError, TimeoutError, ValueError) as error:
        raise LabkitError(f"No dask scheduler answers at {address} ({error}); start one with dask scheduler.") from None
    with client:
        futures = {client.submit(grade_job, plan, source, pure=False, retries=1): source for source in todo}
        for future in as_completed(futures):
            source = futures[future]
            try:
                yield future.result()
            except KilledWorker:
                yield put_aside(plan, source, "It ended dask's workers")
            except Exception as error:  # whatever a worker raised, the others go on
                yield put_aside(plan, source, f"Grading it failed on a dask worker ({type(error).__name__})")


# --- times, where there is a GPU --------------------------------------------------------------------------


def _times(plan: Plan, sources: list[Source], tell: Progress) -> None:
    """Fill in what waits for a GPU, and only that: one submission at a time per GPU, with nothing else running."""
    from labkit.kernels import gpu

    if not gpu.available():
        return
    waiting = [s for s in sources if unfinished(_result(plan, s))]
    tell.more(len(waiting))
    gpus = list(range(min(gpu.count(), len(waiting))))
    for result in _pool(plan, waiting, gpus, lambda source: _result(plan, source)):
        tell(result)


def _result(plan: Plan, source: Source) -> dict[str, Any]:
    return results.read(results.path(plan.out, source.id))


_timers: dict[int, Grader] = {}


def time_job(plan: Plan, source: Source, gpu: int) -> dict[str, Any]:
    """Fill in the times of one submission, here, on one GPU; where that fails they go on waiting."""
    if gpu not in _timers:  # kept, with the references that it has recorded
        _timers[gpu] = Grader(plan.root, plan.out, scheme=plan.scheme, seed=plan.seed, level=plan.level, gpu=gpu)
    try:
        return _timers[gpu].fill(source)
    except Exception as error:  # one submission stops no other
        print(f"{source.id} was not timed: {type(error).__name__}: {error}", file=sys.stderr)
        return _result(plan, source)


class Progress:
    """A bar on a terminal, a line now and then elsewhere."""

    def __init__(self, total: int, write: Callable[[str], None] | None = None) -> None:
        self.total, self.write = total, write
        self.count, self.fresh, self.began = 0, 0, time.monotonic()

    def skip(self, count: int) -> None:
        self.count += count
        if count:
            self.say(f"{count} of {self.total} were graded before")

    def more(self, count: int) -> None:
        self.total += count

    def __call__(self, result: dict[str, Any]) -> None:
        self.count += 1
        self.fresh += 1
        rate = self.fresh / max(time.monotonic() - self.began, 1e-9)
        left = (self.total - self.count) / rate
        filled = 24 * self.count // max(self.total, 1)
        mark = f"{result['points']:g}/{result['possible']:g}" if result["state"] == "graded" else result["state"]
        self.say(
            f"[{'#' * filled}{'.' * (24 - filled)}] {self.count}/{self.total}  {60 * rate:.1f}/min  "
            f"{left / 60:.0f} min left  {result['submission']}: {mark}"
        )

    def say(self, line: str) -> None:
        if self.write:
            self.write(line)


def bar(line: str) -> None:
    """Write a line of progress to stderr: over the last one on a terminal."""
    if sys.stderr.isatty():
        width = os.get_terminal_size(sys.stderr.fileno()).columns
        print(f"\r{line[: width - 1]:{width - 1}}", end="", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)
