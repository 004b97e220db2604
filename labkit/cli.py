"""The command `labkit`."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.errors import LabkitError

if TYPE_CHECKING:
    from labkit.ladder import Rung
    from labkit.profiling import Profile


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 0, or 1 if it failed or found a fault.

    Exits with status 2 where it is called wrongly.
    """
    parser = _parser()
    words = list(sys.argv[1:] if argv is None else argv)
    program: list[str] = []
    if words[:1] in (["profile"], ["trace"]) and "--" in words:  # what follows is the program's own
        at = words.index("--")
        words, program = words[:at], words[at + 1 :]
    arguments, rest = parser.parse_known_args(words)
    arguments.args = program
    if rest and isinstance(getattr(arguments, "target", None), Path):
        parser.error(f"put the program's own arguments behind --: {arguments.target} -- {' '.join(rest)}")
    many = "shape" if arguments.run is _profile else "rungs" if arguments.run is _bench else None
    if rest and (many is None or any(word.startswith("-") for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}; see labkit --help")
    try:
        # argparse leaves over what follows an option where a list may also stand before it.
        for word in rest:
            getattr(arguments, many).append(_dimension(word) if many == "shape" else word)
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    try:
        return arguments.run(arguments)
    except LabkitError as error:
        print(f"labkit: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.filename is None:
            raise
        name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else error.filename
        print(f"labkit: {name} cannot be read or written here: {error.strerror}.", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    from labkit import recorded

    parser = argparse.ArgumentParser(
        prog="labkit", description="Learn to make GPU kernels fast by measuring them."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        return sub

    doctor = command("doctor", _doctor, "Say what works here, and what to do about what does not.")
    doctor.add_argument("--json", action="store_true", help="print JSON")

    text = "Say whether a kernel is right, or which points of a notebook are safe."
    check = command("check", _check, text)
    _add_rung(check, notebook=True)

    text = "Count what a kernel does, or the kernels of a program: profile script.py -- its arguments."
    profile = command("profile", _profile, text)
    _add_rung(profile, program=True)
    profile.add_argument(
        "shape", nargs="*", type=_dimension, metavar="DIM=SIZE", help="such as M=256 N=256 K=256"
    )
    profile.add_argument(
        "--metrics", "--set", metavar="SET",
        help="what ncu reads: full, quick (of whole programs by default), memory, compute, tensor, stalls, or source "
        "(counts per line)",
    )  # fmt: skip
    profile.add_argument("--keep", type=Path, metavar="PATH", help="folder or file for Nsight Compute's report")
    profile.add_argument("--kernel", metavar="NAME", help="of a program: this kernel only, with its lines")
    profile.add_argument("--range", metavar="NAME", help="of a program: launches in this nvtx range (domain@name) only")
    profile.add_argument("--launch-skip", type=int, default=0, metavar="N", help="of those, leave out the first N")
    profile.add_argument("--launch-count", type=int, metavar="N", help="... and profile N at most")
    profile.add_argument("--sample", type=int, metavar="N", help="on the emulator: run N blocks of each launch")

    trace = command("trace", _trace, "Draw a program's kernels over time: trace script.py -- its arguments.")
    trace.add_argument("target", type=Path, metavar="SCRIPT.py", help="a program of yours")
    trace.add_argument("-o", "--output", type=Path, metavar="NAME", help="write NAME.html and NAME.json")
    trace.add_argument("--json", action="store_true", help="print the kernels as JSON")

    bench = command("bench", _bench, "Time a ladder on this machine's GPU, or show what was recorded elsewhere.")
    bench.add_argument("problem", metavar="PROBLEM", help="such as gemm")
    bench.add_argument("rungs", nargs="*", metavar="RUNG", help="some rungs only, such as naive smem_tile")
    bench.add_argument("--shape", action="append", type=_shape, help="such as M=4096,N=4096,K=4096; may be repeated")
    bench.add_argument("--mine", action="store_true", help="your kernels in place of the solutions")
    bench.add_argument("--warm", action="store_true", help="leave the inputs in the L2 cache")
    bench.add_argument("--no-check", action="store_true", help="compare only those outputs that are timed")
    bench.add_argument("--recorded", action="store_true", help="show what was measured on other machines")
    recorded.add_argument(bench)
    bench.add_argument("--plot", type=Path, metavar="FILE.html", help="draw the ladder")
    bench.add_argument("--json", action="store_true", help="print JSON")

    text = "Say what other values of a kernel's constants are worth: time on a GPU, and counters."
    sweeping = command("sweep", _sweep, text)
    _add_rung(sweeping)
    sweeping.add_argument(
        "constants", nargs="+", type=_constant, metavar="NAME=VALUE,VALUE", help="such as STAGES=2,3,4"
    )
    sweeping.add_argument("--shape", action="append", type=_shape, help="such as M=4096,N=4096,K=4096; may be repeated")
    sweeping.add_argument("--no-check", action="store_true", help="compare only the outputs that are timed")
    sweeping.add_argument("--no-profile", action="store_true", help="times only")
    recorded.add_argument(sweeping)

    ceilings = command("ceilings", _ceilings, "Measure the rates that this machine's GPU really reaches.")
    recorded.add_argument(ceilings)
    ceilings.add_argument("--json", action="store_true", help="print JSON")

    command("devices", _devices, "Say what GPUs can do at most: the one here, and those of a table with its sources.")

    record = command("record", _record, "Keep profiles of a ladder's solutions, by Nsight Compute on this GPU.")
    record.add_argument("problem", metavar="PROBLEM", help="such as gemm")
    record.add_argument("folder", type=Path, metavar="DIR", help="where to keep them")
    record.add_argument("--shape", action="append", type=_shape, help="such as M=4096,N=4096,K=4096; may be repeated")

    fidelity = command("fidelity", _fidelity, "Compare the emulator's counters with Nsight Compute's.")
    fidelity.add_argument("problem", metavar="PROBLEM", help="such as gemm, or corpus: kernels made to be hard")
    recorded.add_argument(fidelity)

    text = "Say which recorded figures are of kernels as they are now; on a GPU, take the others."
    recordings = command("recordings", _recordings, text)
    recordings.add_argument("problems", nargs="*", metavar="PROBLEM", help="such as gemm; by default all")
    recordings.add_argument("--kind", choices=["bench", "profiles", "counters"], action="append", help="only these")
    text = "take under DIR what is not current"
    recordings.add_argument("--renew", type=Path, metavar="DIR", help=text)
    recordings.add_argument("--minutes", type=float, metavar="N", help="... and stop after so many")

    speed = command("speed", _speed, "Set modeled times beside those recorded on a GPU.")
    recorded.add_argument(speed)

    from labkit import cliff

    cliff.add_arguments(command("cliff", cliff.run, "Show where matmul throughput falls off, and why."))

    from labkit import reproduce

    text = "Set published tables beside what our kernels took on a GPU."
    reproduce.add_arguments(command("reproduce", reproduce.run, text))

    from labkit.models import latency

    latency.add_arguments(command("latency", latency.run, "Measure what a load takes, and what it takes to hide it."))

    build = command("build", _build, "Write the student notebooks from the masters in solutions/.")
    build.add_argument("--check", action="store_true", help="write nothing; fail if one is stale")

    release = command("release", _release, "Write what students receive, without solutions.")
    release.add_argument("folder", type=Path, metavar="DIR", help="an empty or new folder")
    _add_scheme(release)

    submit = command("submit", _submit, "Pack what you hand in: notebooks, without outputs, in one zip.")
    text = "or folders of them; by default the folder that you are in"
    submit.add_argument("notebooks", nargs="*", type=Path, metavar="NOTEBOOK", help=text)
    submit.add_argument("-o", "--output", type=Path, default=Path("submission.zip"), metavar="FILE.zip")

    text = "Grade submissions: a folder of them, an LMS's zip, or one. What is done is kept; run it again to go on."
    grade = command("grade", _grade, text)
    grade.add_argument("submissions", type=Path, metavar="SUBMISSIONS", help="a folder, a zip or a notebook")
    grade.add_argument("--out", type=Path, required=True, metavar="DIR", help="where results go, and are found again")
    grade.add_argument("--jobs", type=int, metavar="N", help="submissions at a time; by default one per core")
    _add_scheme(grade)
    grade.add_argument("--no-time", action="store_true", help="give no points for times: for where no GPU will ever be")
    grade.add_argument("--seed-file", type=Path, metavar="FILE", help="the secret that hidden shapes are drawn from")
    text = "grade a class though its code is hardly fenced in here"
    grade.add_argument("--force-weak-sandbox", action="store_true", help=text)
    grade.add_argument("--scheduler", metavar="ADDRESS", help="grade on dask's workers, such as tcp://host:8786")

    report = command("report", _report, "Write what labkit grade found: pages for students and the class, and CSV.")
    report.add_argument("folder", type=Path, metavar="DIR", help="the --out of labkit grade")
    report.add_argument("--gradescope", action="store_true", help="also a results.json per submission for Gradescope")
    report.add_argument("--prairielearn", action="store_true", help="... and for PrairieLearn")

    text = "Write the autograder that runs on Gradescope, as a zip to upload. It holds the solutions."
    gradescope = command("gradescope-zip", _gradescope_zip, text)
    gradescope.add_argument("file", type=Path, metavar="FILE.zip", help="where to write it")
    gradescope.add_argument("--labs", nargs="+", metavar="LAB", help="such as 02_gemm or 02_gemm/01_naive_to_tiled")
    gradescope.add_argument("--points", type=Path, metavar="FILE", help="points per question, as of labkit release")
    text = "the secret that hidden shapes and inputs are drawn from"
    gradescope.add_argument("--seed-file", type=Path, metavar="FILE", help=text)
    text = "of the results: visible, after_due_date, after_published or hidden"
    gradescope.add_argument("--visibility", default="visible", help=text)
    return parser


def _add_rung(parser: argparse.ArgumentParser, *, program: bool = False, notebook: bool = False) -> None:
    if notebook:
        words = "such as gemm/naive, or a notebook of yours"
        parser.add_argument("target", type=_notebook_or_rung, metavar="PROBLEM/RUNG | NOTEBOOK.ipynb", help=words)
    elif program:
        words = "such as gemm/naive, or a program of yours"
        parser.add_argument("target", type=_target, metavar="PROBLEM/RUNG | SCRIPT.py", help=words)
    else:
        parser.add_argument("target", type=_rung_name, metavar="PROBLEM/RUNG", help="such as gemm/naive")
    parser.add_argument("--cuda", action="store_true", help="the kernel in CUDA C++")
    parser.add_argument(
        "--solution", action="store_true", help="the kernel in solutions/ in place of yours"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_scheme(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--labs", nargs="+", metavar="LAB", help="such as 02_gemm or 02_gemm/01_naive_to_tiled")
    text = "points per question, in place of the masters': lines such as gemm--coalesced--check,4, or JSON"
    parser.add_argument("--points", type=Path, metavar="FILE", help=text)


def _rung_name(text: str) -> tuple[str, str]:
    problem, _, rung = text.partition("/")
    if not problem or not rung:
        raise argparse.ArgumentTypeError(f"{text!r} should read like gemm/naive")
    return problem, rung


def _target(text: str) -> tuple[str, str] | Path:
    return Path(text) if text.endswith(".py") else _rung_name(text)


def _notebook_or_rung(text: str) -> tuple[str, str] | Path:
    return Path(text) if text.endswith(".ipynb") else _rung_name(text)


def _dimension(text: str) -> tuple[str, int | float]:
    """M=256; or an option, whose name is small and whose value any number, such as causal=0 or scale=0.5."""
    name, _, size = text.partition("=")
    if name.isidentifier() and size.isdecimal() and (int(size) or name.islower()):
        return name, int(size)
    with contextlib.suppress(ValueError):
        if name.isidentifier() and name.islower():
            return name, float(size)
    raise argparse.ArgumentTypeError(f"{text!r} should read like M=256, of at least 1")


def _shape(text: str) -> dict[str, int | float]:
    return dict(_dimension(part) for part in text.split(","))


def _constant(text: str) -> tuple[str, list[str]]:
    """GROUP=1,8 as a name and values."""
    name, _, values = text.partition("=")
    if not name.isidentifier() or not all(values.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} should read like GROUP=1,8")
    return name, values.split(",")


def _rung(arguments: argparse.Namespace) -> Rung:
    from labkit.ladder import problem

    name, rung = arguments.target
    found = problem(name)[rung, "cuda" if arguments.cuda else "numba"]
    return found.solution if arguments.solution else found


@contextlib.contextmanager
def _clean_stdout(arguments: argparse.Namespace) -> Iterator[None]:
    """With --json, what a kernel file prints goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr) if arguments.json else contextlib.nullcontext():
        yield


def _doctor(arguments: argparse.Namespace) -> int:
    from labkit import doctor

    with _clean_stdout(arguments):
        findings = doctor.examine()
    if arguments.json:
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    else:
        print(doctor.report(findings))
    return 0 if doctor.healthy(findings) else 1


def _check(arguments: argparse.Namespace) -> int:
    if isinstance(arguments.target, Path):
        return _check_notebook(arguments)
    with _clean_stdout(arguments):
        result = _rung(arguments).check()
    if arguments.json:
        print(json.dumps(dataclasses.asdict(result) | {"passed": result.passed}, indent=2))
    else:
        print(result)
    return 0 if result.passed else 1


def _check_notebook(arguments: argparse.Namespace) -> int:
    from labkit.grading import visible

    if arguments.cuda or arguments.solution:
        raise LabkitError("--cuda and --solution are for rungs; a notebook is checked as it is.")
    found = visible.score(arguments.target)
    if arguments.json:
        print(json.dumps({**found.totals, "items": found.items, "faults": found.faults}, indent=2))
    else:
        print(found)
    return 0 if all(item["state"] in ("pass", "pending") for item in found.items) else 1


def _profile(arguments: argparse.Namespace) -> int:
    if isinstance(arguments.target, Path):
        return _profile_script(arguments)
    own = ("kernel", "range", "launch_skip", "launch_count", "sample", "args")
    if any(getattr(arguments, name) for name in own):
        raise LabkitError("--kernel, --range, --launch-..., --sample and what follows -- are for programs (SCRIPT.py).")
    with _clean_stdout(arguments):
        keep = arguments.keep or True
        result = _rung(arguments).profile(metrics=arguments.metrics or "full", keep=keep, **dict(arguments.shape))
    if arguments.json:
        print(json.dumps(result.to_dict(), indent=2))
    else:
        _show(result, lines=arguments.metrics == "source")
    return 0


def _show(profile: Profile, *, lines: bool = False) -> None:
    """A profile in full: its metrics, and its source lines where they are asked for and known."""
    print(profile)
    for metric in sorted(profile.metrics):
        fidelity = profile.fidelity.get(metric, "")
        print(f"  {metric:70} {profile.metrics[metric]:>16,.6g}  {fidelity}".rstrip())
    if lines and profile.line_counts:
        from labkit import plots

        print(plots.source(profile))
    for note in profile.notes:
        print(note)


def _profile_script(arguments: argparse.Namespace) -> int:
    from labkit.profiling.script import profile_script

    if arguments.shape or arguments.cuda or arguments.solution:
        raise LabkitError("--cuda, --solution and sizes are for rungs; put the program's own arguments behind --.")
    result = profile_script(
        arguments.target, arguments.args, kernel=arguments.kernel, metrics=arguments.metrics, range=arguments.range,
        launch_skip=arguments.launch_skip, launch_count=arguments.launch_count, sample=arguments.sample,
        keep=arguments.keep or True, stdout=sys.stderr.fileno() if arguments.json else None,
    )  # fmt: skip
    if arguments.json:
        print(json.dumps(result.to_dict(), indent=2))
    else:
        print(result)
        if arguments.kernel:
            for profile in result:
                print()
                _show(profile, lines=True)
                with contextlib.suppress(LabkitError):  # sets of few metrics say too little to tell
                    print(result.first[profile.kernel].explain())
    return 1 if result.status else 0


def _trace(arguments: argparse.Namespace) -> int:
    from labkit.profiling.trace import trace_script

    stdout = sys.stderr.fileno() if arguments.json else None
    result = trace_script(arguments.target, arguments.args, output=arguments.output, stdout=stdout)
    print(json.dumps(result.to_dict(), indent=2) if arguments.json else result)
    return 1 if result.status else 0


def _bench(arguments: argparse.Namespace) -> int:
    from labkit import bench, ladder, recorded
    from labkit.kernels import gpu

    recorded.refuse(arguments)
    found = ladder.problem(arguments.problem)
    if arguments.recorded or not gpu.available():
        result = bench.show_recorded(arguments.problem)
    else:
        steps = [found.problem.step(name) for name in arguments.rungs] or found.problem.ladder
        rungs = [found[step.name, language] for step in steps for language in step.languages]
        if not arguments.mine:
            rungs = [rung.solution for rung in rungs]
        with _clean_stdout(arguments):
            options = {"cold": not arguments.warm, "check": not arguments.no_check}
            result = bench.bench(arguments.problem, arguments.shape or [{}], rungs, **options)
    if arguments.json:
        print(json.dumps(result.to_dict(), indent=2))
    else:
        print(result)
    if arguments.record:
        print(f"Recorded in {bench.record(result, arguments.record)}.", file=sys.stderr)
    if arguments.plot:
        from labkit import plots

        plots.ladder(result.timings).write_html(arguments.plot)
        print(f"Drawn in {arguments.plot}.", file=sys.stderr)
    return 1 if result.skipped else 0


def _sweep(arguments: argparse.Namespace) -> int:
    from labkit import recorded, sweep

    recorded.refuse(arguments)
    options = {"check": not arguments.no_check, "profile": not arguments.no_profile}
    with _clean_stdout(arguments):
        rung = _rung(arguments)
        constants = dict(arguments.constants)
        if len(constants) < len(arguments.constants):
            raise LabkitError("A constant is named twice; give all its values at once: NAME=VALUE,VALUE.")
        sweeps = [sweep.sweep(rung, constants, **options, **shape) for shape in arguments.shape or [{}]]
    if arguments.json:
        print(json.dumps([found.to_dict() for found in sweeps], indent=2))
    else:
        print("\n\n".join(map(repr, sweeps)))
    if arguments.record:
        if not all(row["timing"] for found in sweeps for row in found.rows):
            raise LabkitError("Nothing was recorded: a combination has no time; leave out its values.")
        print(f"Recorded in {sweep.record(rung, sweeps, arguments.record)}.", file=sys.stderr)
    return 1 if any(row["why"] for found in sweeps for row in found.rows) else 0


def _ceilings(arguments: argparse.Namespace) -> int:
    from labkit import recorded
    from labkit.models import ceilings

    rates, samples = ceilings.measure()
    if arguments.json:
        print(json.dumps({"ceilings": rates, "samples_ms": samples}, indent=2))
    else:
        for name, rate in rates.items():
            print(f"{name:12} {rate:10,.1f}  {ceilings.UNITS[name]}")
    if arguments.record:
        path = recorded.write("ceilings", "ceilings", {"ceilings": rates, "samples_ms": samples}, arguments.record)
        print(f"Recorded in {path}.", file=sys.stderr)
    return 0


def _devices(_: argparse.Namespace) -> int:
    from labkit.models import devices

    print(devices.table(devices.present()))
    return 0


def _record(arguments: argparse.Namespace) -> int:
    from labkit import problems

    return _ncu_reads("profiles", problems.get(arguments.problem).name, arguments.folder, arguments.shape)


def _ncu_reads(kind: str, name: str, folder: Path, shapes: list[dict[str, int]] | None = None) -> int:
    from labkit.profiling import runs

    why = runs.record(kind, [name], folder, shapes=shapes)[name]
    print(f"Recorded under {folder}." if not why else f"Not all is recorded. {why}")
    return int(bool(why))


def _recordings(arguments: argparse.Namespace) -> int:
    from labkit import recordings
    from labkit.kernels import gpu

    found = recordings.survey(arguments.problems, arguments.kind or recordings.KINDS)
    if arguments.minutes is not None and not arguments.renew:
        raise LabkitError("--minutes limits what --renew DIR takes; give both, or neither.")
    if not arguments.renew:
        print("\n".join(map(str, found)))
        return 0
    if not gpu.available():
        raise LabkitError("There is no GPU here to record on; without --renew, labkit recordings says what is kept.")
    failed, others = False, [recording for recording in found if recording.state != "current"]
    for recording, how in recordings.renew(others, arguments.renew, arguments.minutes):
        print(f"{recording.kind:9} {recording.problem:24} {how}", flush=True)
        failed |= not how.startswith("taken")
    return int(failed)


def _fidelity(arguments: argparse.Namespace) -> int:
    from labkit.profiling import fidelity

    if arguments.record:
        return _ncu_reads("counters", arguments.problem, arguments.record)
    readings = fidelity.compare(arguments.problem)
    print(fidelity.table(readings).to_string(index=False))
    wrong = [r for r in readings if r.claim == "exact" and not r.equal]
    for r in wrong:
        print(f"{r.case}: {r.metric} reads {', '.join(f'{v:,.6g}' for v in r.ncu)}, counted {r.emulator:,.6g}")
    return 1 if wrong else 0


def _speed(arguments: argparse.Namespace) -> int:
    from labkit.profiling import speed

    if arguments.record:
        print(f"Recorded in {speed.record(arguments.record)}.")
        return 0
    for row in speed.compare_launches():
        print(
            f"{row.name:24} {1e3 * row.measured:9.1f} us measured, {1e3 * row.modelled:9.1f} us modeled "
            f"({row.error:+.0%}), bound by {row.binds}"
        )
    return 0


def _build(arguments: argparse.Namespace) -> int:
    from labkit.grading import rubric
    from labkit.notebook.build import build
    from labkit.root import root

    changed = build(root(), check=arguments.check) + rubric.write(root(), check=arguments.check)
    if arguments.check and changed:
        names = ", ".join(str(path.relative_to(root())) for path in changed)
        raise LabkitError(f"{names}: not what the master gives; run labkit build and commit.")
    for path in changed:
        print(path.relative_to(root()))
    return 0


def _release(arguments: argparse.Namespace) -> int:
    from labkit.grading import rubric, scheme
    from labkit.notebook.release import release
    from labkit.root import root

    points = given = None
    if arguments.points:
        given = scheme.read_points(arguments.points)
        points = scheme.cell_points(scheme.load(root(), arguments.labs, given))
    release(root(), arguments.folder, arguments.labs, points)
    if (arguments.folder / rubric.PAGE).exists():
        rubric.write(arguments.folder, scheme.load(root(), arguments.labs, given))
    print(f"Released to {arguments.folder}.")
    return 0


def _submit(arguments: argparse.Namespace) -> int:
    from labkit.grading import submit

    packed = submit.pack(arguments.notebooks or [Path.cwd()], arguments.output)
    for note in packed.notes:
        print(note)
    print(f"Packed {', '.join(packed.notebooks)} in {packed.file}.")
    return 0


def _grade(arguments: argparse.Namespace) -> int:
    from labkit.grading import batch, scheme

    if arguments.jobs is not None and arguments.jobs < 1:
        raise LabkitError(f"--jobs is {arguments.jobs}; give 1 or more.")
    points = scheme.read_points(arguments.points) if arguments.points else None
    found = batch.grade_all(
        arguments.submissions, arguments.out, jobs=arguments.jobs, seed_file=arguments.seed_file,
        force_weak=arguments.force_weak_sandbox, scheduler=arguments.scheduler, labs=arguments.labs, points=points,
        timed=not arguments.no_time, progress=batch.bar,
    )  # fmt: skip
    states = [result["state"] for result in found]
    print(f"\n{states.count('graded')} of {len(found)} graded (sandbox: {found[0]['sandbox']}); see {arguments.out}.")
    for result in found:
        if result["state"] != "graded":
            print(f"{result['submission']}: {result['state'].replace('_', ' ')}: {result['reason']}")
    return 1 if "infrastructure_error" in states else 0


def _report(arguments: argparse.Namespace) -> int:
    from labkit.grading import formats, report
    from labkit.root import root

    solutions = root() if (root() / "solutions").is_dir() else None
    print(f"Report in {report.write(arguments.folder, solutions)}.")
    for name in ("gradescope", "prairielearn"):
        if getattr(arguments, name):
            folder, left_out = formats.write(arguments.folder, name)
            print(f"Results in {folder}.")
            for submission in left_out:
                print(f"{submission} was not graded: there is no file for it. Grade it again.", file=sys.stderr)
    return 0


def _gradescope_zip(arguments: argparse.Namespace) -> int:
    from labkit.grading import grade, gradescope, scheme
    from labkit.root import root

    points = scheme.read_points(arguments.points) if arguments.points else None
    with tempfile.TemporaryDirectory() as folder:
        seed = grade.seed_of(Path(folder), arguments.seed_file)
    gradescope.write_zip(
        root(), arguments.file, labs=arguments.labs, points=points, seed=seed, visibility=arguments.visibility
    )
    print(f"Written to {arguments.file}. It holds the solutions: keep it to yourself, and to Gradescope.")
    return 0
