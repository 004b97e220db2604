"""A grader as many are: it runs the student's code in its own process, and believes what it finds there.

It is here to be broken. An attack that this grader withstands would show nothing about ours. Its habits, each common:

plain           the code is loaded into the grading process; inputs come from a fixed seed, the same ones for every
                call; the output is compared once, loosely, with what PyTorch computes, and a few calls are timed by
                the clock on the wall, until torch.cuda.synchronize() returns
reference after  the reference is computed from the inputs when the kernel has run
reused memory   the output is memory in which the reference stood before, as PyTorch's allocator on a GPU hands it out
returned        what `launch` returns is taken for the output, cast and broadcast as need be
few samples     only the first 8 numbers of the output are compared
events          time is taken by CUDA events (without a GPU, a stand-in for them with the wall clock)
flushed         between timed calls other data goes through the L2 (of a GPU)
one context     one process grades everybody: what breaks it stops the grader
mean            the score is the geometric mean of the times at all shapes
printed         a line PASS among what the process prints is a pass
exit status     a process that ends with status 0 has passed
result file     the process leaves its verdict in a JSON file
pickled         the process leaves its outputs in a pickle, which the harness loads and compares
check           the lab's own check(), called in the same process
notebook        the student's notebook is executed, check cells and all; a check cell that finds "passed" earns the
                points that its metadata names

    python naive.py     serves jobs, a JSON object per line on stdin, and answers each with a line: {"passed", "ms",
                        "message", "alive": processes left, "held": peak memory in bytes, ...}

Each job is a fork of this process with limits, so that nothing here escapes from the tests.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import pickle
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from time import perf_counter

LOOSE = 1e-2
PATIENCE_S = 3.0  # what waits longer has stopped this grader
CALLS = 3


# --- in the student's process ----------------------------------------------------------------------------


def grade(launch, problem, shapes, habits) -> dict:
    """Runs a kernel on the emulator or the GPU; the verdict, and the time in milliseconds."""
    times = []
    for shape in shapes:
        options = problem.options_of(shape)
        inputs, expected, out = prepare(problem, shape, habits)
        launch(out, *inputs, **options)  # warm-up
        got, ms = clocked(lambda call=(out, *inputs), options=options: launch(*call, **options), habits)
        if "returned" not in habits or got is None:
            got = out
        if "reference after" in habits:
            expected = problem.reference(*inputs, **options)
        if not close(got, expected, habits):
            return {"passed": False, "ms": ms, "message": f"wrong at {shape}"}
        times.append(ms)
    ms = statistics.geometric_mean(times) if "mean" in habits and all(times) else min(times)
    return {"passed": True, "ms": ms, "message": "PASS"}


def prepare(problem, shape, habits):
    """Inputs, what they should give, and an output in memory that nobody has written."""
    import torch

    torch.manual_seed(0)
    inputs = [
        torch.rand(t.shape(shape), device=device())
        if t.dtype == "float32"
        else t.sample(shape, torch.Generator().manual_seed(0)).to(device())
        for t in problem.inputs.values()
    ]
    expected = problem.reference(*inputs, **problem.options_of(shape))
    if "reused memory" in habits:
        return inputs, expected, expected.clone()
    (size,) = (t.shape(shape) for t in problem.outputs.values())
    return inputs, expected, torch.empty(size, device=device())


def device() -> str:
    from labkit.kernels import gpu

    return "cuda" if gpu.available() else "cpu"


def clocked(call, habits):
    """What the last of a few calls returned, and the time of the fastest."""
    import torch

    torch.cuda.synchronize()
    if "flushed" in habits:
        other = torch.empty(1 << 28, dtype=torch.uint8, device=device())
        times = []
        for _ in range(CALLS):
            other.random_(0, 255)
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            got = call()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end))
        return got, statistics.median(times)
    if "events" in habits:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(CALLS):
            got = call()
        end.record()
        torch.cuda.synchronize()
        return got, start.elapsed_time(end) / CALLS
    times = []
    for _ in range(CALLS):
        began = perf_counter()
        got = call()
        torch.cuda.synchronize()
        times.append(1e3 * (perf_counter() - began))
    return got, statistics.median(times)


def close(got, expected, habits) -> bool:
    """Within one in a hundred: first by the largest difference, then relative to the size."""
    import torch

    if "few samples" in habits:
        got, expected = got.flatten()[:8], expected.flatten()[:8]
    worst = (got.float() - expected).abs().max()
    return not worst > LOOSE or torch.allclose(got.float(), expected, rtol=LOOSE, atol=LOOSE)


def student(job: dict, folder: Path) -> dict:
    """Everything that happens in the process of grader and student."""
    from labkit import problems
    from labkit.ladder import problem as ladder

    if "notebook" in job["habits"]:
        return execute(Path(job["path"]), folder)
    problem = problems.get(job["problem"])
    shapes = [problem.dims_of(shape) for shape in job["shapes"] or problem.shapes]
    rung = ladder(job["problem"])[job["rung"], job["language"]]
    file = folder / f"{job['rung']}{'.cu' if job['language'] == 'cuda' else '.py'}"
    file.write_text(job["source"], encoding="utf-8")
    if "check" in job["habits"]:
        result = rung.load(file).check()
        return {"passed": bool(result.passed), "ms": 0.0, "message": str(result)}
    if job["language"] == "cuda":
        launch = rung.load(file).kernel.launch
    else:
        names = {"__name__": "student", "__file__": str(file)}
        exec(compile(job["source"], str(file), "exec"), names)
        launch = names["launch"]
    if "pickled" in job["habits"]:
        outputs = []
        for shape in shapes:
            inputs, _, out = prepare(problem, shape, job["habits"])
            launch(out, *inputs)
            outputs.append(out)
        Path("outputs.pickle").write_bytes(pickle.dumps(outputs))
        return {}
    verdict = grade(launch, problem, shapes, job["habits"])
    if "result file" in job["habits"]:
        Path("result.json").write_text(json.dumps(verdict))
    print("PASS" if verdict["passed"] else "FAIL", flush=True)
    return verdict


def execute(path: Path, folder: Path) -> dict:
    """Run a student's notebook from top to bottom, and add up the points of its check cells."""
    import ast

    import labkit as lk

    os.environ["LABKIT_ROOT"] = str(folder)
    Path(folder, "labs").mkdir()
    book = json.loads(_notebook_at(path).read_text(encoding="utf-8"))
    command = book["metadata"].get("kernelspec", {}).get("argv")
    if command:
        subprocess.run(command, check=False)  # as the notebook says: this starts its kernel
    names: dict = {"lk": lk}
    points = possible = 0
    page = ""
    for cell in book["cells"]:
        source = "".join(cell["source"])
        worth = cell["metadata"].get("nbgrader", {}).get("points", 0)
        page += "".join(o["data"].get("text/html", "") for o in cell.get("outputs", []) if "data" in o)
        if cell["cell_type"] != "code":
            continue
        possible += worth
        if source.startswith("%%kernel"):
            from labkit.notebook.magics import kernel as write_kernel

            line, _, body = source.partition("\n")
            write_kernel(line.removeprefix("%%kernel "), body)
            continue
        if source.startswith("%%bash"):
            subprocess.run(source.partition("\n")[2], shell=True, check=False)
            continue
        lines = (f"import os; os.system({t[1:]!r})" if t.startswith("!") else t for t in source.split("\n"))
        tree = ast.parse("\n".join(lines))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
        if worth and (value is True or getattr(value, "passed", False) or getattr(value, "right", False)):
            points += worth
    said = f"{points} of {possible} {page}"
    return {"passed": points > 0, "ms": 0.0, "message": said, "points": points, "possible": possible}


def _notebook_at(path: Path) -> Path:
    """The notebook of a submission; a zip is unpacked beside it, as its names say."""
    if path.suffix == ".zip":
        folder = path.parent / "unpacked"
        folder.mkdir()
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.external_attr >> 16 & 0o170000 == 0o120000:
                    (folder / info.filename).symlink_to(archive.read(info).decode())
                else:
                    (folder / info.filename).write_bytes(archive.read(info))
        path = folder
    return next(path.rglob("*.ipynb")) if path.is_dir() else path


class StandIn:
    """A CUDA event where there is no GPU: the emulator is done when a launch returns, and the wall clock goes on."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.at = 0.0

    def record(self, stream=None) -> None:
        self.at = perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end) -> float:
        return 1e3 * (end.at - self.at)


# --- the harness around it -------------------------------------------------------------------------------


def harness(job: dict, answer_to: int) -> None:
    """Start the student's process, wait for it, and believe what the habits say."""
    folder = Path(tempfile.mkdtemp(prefix="naive-"))
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):  # what is said to the tests is not said here
        os.dup2(nothing, descriptor)
    libc = ctypes.CDLL(None)
    libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: what a student leaves behind is found here
    ours, theirs = os.pipe()
    os.set_inheritable(theirs, True)
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(ours)
        os.close(answer_to)
        os.setsid()
        os.chdir(folder)
        log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))
        if device() == "cpu":  # CUDA reserves more addresses than there is memory
            resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))
        os.environ.update(job["environment"], LAB_RESULT=str(folder / "result.json"))
        os._exit(_process(job, folder, theirs))
    os.close(theirs)
    status, verdict, text = None, {}, b""
    os.set_blocking(ours, False)
    while status is None and time.monotonic() - began < PATIENCE_S + job["patience"]:
        with contextlib.suppress(BlockingIOError):
            text += os.read(ours, 1 << 16)
        done, found, used = os.wait4(child, os.WNOHANG)
        status = found if done else None
        time.sleep(0.005)
    with contextlib.suppress(BlockingIOError):
        text += os.read(ours, 1 << 16)
    alive = _below(os.getpid()) - {child}
    for pid in (alive | {child}) if status is None else alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
        verdict = {"passed": False, "ms": None, "message": "the grader waits", "stopped": True}
    else:
        with contextlib.suppress(ValueError):
            verdict = json.loads(text)
        verdict["held"] = used.ru_maxrss << 10
        verdict = _believed(job, verdict, os.waitstatus_to_exitcode(status), folder)
    verdict["alive"] = len(alive)
    verdict["left"] = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    shutil.rmtree(folder, ignore_errors=True)
    os.write(answer_to, json.dumps(verdict).encode() + b"\n")
    os._exit(0)


def _process(job: dict, folder: Path, answer_to: int) -> int:
    """What a process of grader and student does from its start to its end; its exit status."""
    verdict = {"passed": False, "ms": None, "message": ""}
    try:
        try:
            verdict = student(job, folder)
        except Exception as error:
            verdict["message"] = f"{type(error).__name__}: {error}"
            if "one context" in job["habits"]:
                verdict["stopped"] = not works()
        os.write(answer_to, json.dumps(verdict).encode())
        status = 0 if verdict.get("passed", True) else 1
    except SystemExit as leaving:
        status = leaving.code or 0
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return status


def works() -> bool:
    """Whether this process could still grade the next one."""
    import torch

    try:
        torch.zeros(1, device=device()).add_(1).item()
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def _believed(job: dict, verdict: dict, status: int, folder: Path) -> dict:
    habits = job["habits"]
    if "printed" in habits:
        verdict["passed"] = "PASS" in (folder / "log.txt").read_text(errors="replace").split("\n")
    elif "exit status" in habits:
        verdict["passed"] = status == 0
    elif "result file" in habits:
        file = folder / "result.json"
        verdict = {**verdict, **json.loads(file.read_text())} if file.exists() else {**verdict, "passed": False}
    elif "pickled" in habits:
        from labkit import problems

        problem = problems.get(job["problem"])
        try:
            outputs = pickle.loads((folder / "outputs.pickle").read_bytes())
            shapes = [problem.dims_of(shape) for shape in job["shapes"] or problem.shapes]
            wanted = [prepare(problem, shape, habits)[1] for shape in shapes]
            verdict["passed"] = all(close(o, w, habits) for o, w in zip(outputs, wanted, strict=True))
        except Exception as error:
            verdict.update(passed=False, message=str(error))
    verdict.setdefault("passed", False)
    verdict["log"] = (folder / "log.txt").read_text(errors="replace")[-2000:] if (folder / "log.txt").exists() else ""
    return verdict


def _below(pid: int) -> set[int]:
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents[int(name)] = int(fields[1])
    found, more = set(), {pid}
    while more:
        more = {child for child, parent in parents.items() if parent in more} - found
        found |= more
    return found


def main() -> None:
    import torch

    import labkit  # noqa: F401
    from labkit.kernels import gpu, numba_host, recorder

    there = os.environ.get("LABKIT_DEVICE") != "emulator" and Path("/dev/nvidiactl").exists()
    gpu.available = lambda: there  # the real one would start the driver, which does not survive a fork
    from numba import cuda  # noqa: F401

    numba_host.install()
    import labkit.check
    import labkit.kernels.numba_launch  # noqa: F401

    torch.set_num_threads(1)
    if not gpu.available():
        from labkit.emulator import Emulation

        # As a GPU would: without anybody who looks for races and unwritten memory.
        recorder.watch(recorder.Emulating(Emulation(sanitize=False)))
        torch.cuda.Event, torch.cuda.synchronize = StandIn, lambda: None
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ours)
            try:
                harness(json.loads(line), theirs)
            finally:
                os._exit(1)
        os.close(theirs)
        with os.fdopen(ours) as answers:
            text = answers.read()
        os.waitpid(child, 0)
        answer = {"passed": False, "message": "the harness died", "stopped": True}
        if text:
            answer, _ = json.JSONDecoder().raw_decode(text)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
