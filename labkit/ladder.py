"""A ladder of kernels for one problem, and the rung: one name over check, timing and profiling of a kernel."""

from __future__ import annotations

import ast
import html
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit import problems
from labkit.errors import LabkitError
from labkit.labels import Label
from labkit.problems import Problem, Step
from labkit.problems.problem import as_argument, unknown
from labkit.root import root

if TYPE_CHECKING:
    from labkit.check import CheckResult
    from labkit.kernels import Kernel
    from labkit.profiling import Profile
    from labkit.timing import Timing

SUFFIX = {"numba": ".py", "cuda": ".cu"}


def problem(name: str) -> Ladder:
    """The ladder of the problem `name`, such as `lk.problem("gemm")`."""
    return Ladder(problems.get(name))


class Ladder:
    """A problem and its rungs: `ladder["smem_tile"]`, `ladder["smem_tile", "cuda"]`.

    The problem's own attributes (formula, flops, bytes, make_inputs ...) are there too.
    """

    def __init__(self, problem: Problem):
        self.problem = problem

    def __getattr__(self, name: str) -> Any:
        return getattr(self.problem, name)

    def __getitem__(self, key: str | tuple[str, str]) -> Rung:
        rung, language = key if isinstance(key, tuple) else (key, "numba")
        if language not in SUFFIX:
            raise LabkitError(unknown("language", language, list(SUFFIX)))
        step = self.problem.step(rung)
        if language not in step.languages:
            why = f": {step.why}" if step.why else ""
            raise LabkitError(f"{self.problem.name}/{rung} exists in {', '.join(step.languages)} only{why}.")
        return Rung(self.problem, step, language)

    def rival(self, name: str, **shape: int) -> Timing:
        """What was recorded of another way to have PyTorch do it, such as "compiled" (see `Problem.rivals`)."""
        from labkit.timing import find_recorded

        if name not in self.problem.rivals:
            raise LabkitError(unknown("rival", name, list(self.problem.rivals), f" of {self.problem.name}"))
        dims = self.problem.dims_of(shape or self.problem.bench_shape)
        return find_recorded(self.problem, f"{self.problem.name}/{name}", dims)

    def __iter__(self):
        """The rungs from the lowest to the highest, each in the first of its languages."""
        return (Rung(self.problem, step, step.languages[0]) for step in self.problem.ladder)

    def __repr__(self) -> str:
        width = max(len(step.name) for step in self.problem.ladder)
        rungs = "\n".join(f"  {s.name:{width}}  {s.change}; watch {s.moves}" for s in self.problem.ladder)
        return f"{self.problem.name}: {self.problem.formula}\n{rungs}"

    def _repr_html_(self) -> str:
        from labkit.models.bound import bound

        p = self.problem
        shape = p.dims_of(p.profile_shape)
        large = ", ".join(f"{name} = {value}" for name, value in p.bench_shape.items())
        dims = ", ".join(f"{name} = {value}" for name, value in shape.items())
        cell = "<td style='text-align:left'>"
        rows = "".join(
            f"<tr>{cell}<code>{s.name}</code></td>{cell}{html.escape(s.change)}</td>{cell}{html.escape(s.moves)}</td></tr>"
            for s in p.ladder
        )
        return (
            f"<p><b>{p.name}</b>: <code>{html.escape(p.formula)}</code>. At {dims}: {p.flops(shape):,} FLOP, "
            f"{p.bytes(shape):,} bytes at least, {p.flops(shape) / p.bytes(shape):.2g} FLOP per byte at most. "
            f"At {large}: {html.escape(repr(bound(p, p.bench_shape)))}.</p>"
            f"<table><thead><tr><th>rung</th><th>what changes</th><th>what to watch</th></tr></thead>{rows}</table>"
        )


class Rung:
    """One kernel of a ladder, found by path: the learner's, or (`.solution`) the one of `solutions/`."""

    def __init__(
        self,
        problem: Problem,
        step: Step,
        language: str,
        folder: str = "labs",
        path: Path | None = None,
    ):
        self.problem = problem.of(step)
        self.step = step
        self.language = language
        self.folder = folder
        self._path = path

    @property
    def name(self) -> str:
        return f"{self.problem.name}/{self.step.name}"

    @property
    def label(self) -> str:
        """The rung in words, for results: with its language and origin where they are not the default."""
        return str(Label(self.problem.name, self.step.name, self.language, self.folder == "solutions"))

    @property
    def bench_shape(self) -> dict[str, int]:
        """The shape at which this rung is timed where none is given."""
        return dict(self.step.bench_shape or self.problem.bench_shape)

    @property
    def path(self) -> Path:
        """The kernel's file, whether it exists or not."""
        if self._path is not None:
            return self._path
        kernels = root() / self.folder / self.problem.lab / "kernels"
        return kernels / (self.problem.kernels or self.problem.name) / (self.step.name + SUFFIX[self.language])

    @property
    def solution(self) -> Rung:
        """The same rung of `solutions/`; LabkitError where this checkout has none."""
        ours = Rung(self.problem, self.step, self.language, "solutions")
        if not ours.path.exists():
            raise LabkitError(
                f"{ours.path} is not here; solutions come with the instructors' copy of the project."
            )
        return ours

    def load(self, path: str | Path) -> Rung:
        """The same rung with the kernel of another file; its suffix (.py, .cu) tells the language."""
        path = Path(path)
        for language, suffix in SUFFIX.items():
            if path.suffix == suffix:
                return Rung(self.problem, self.step, language, "file", path)
        raise LabkitError(f"{path} is no kernel file; they end in {' or '.join(SUFFIX.values())}.")

    @property
    def kernel(self) -> Kernel:
        """The kernel, loaded afresh from its file; KernelError where it is missing or broken."""
        from labkit.kernels import Signature, load

        self._must_exist()
        p = self.problem
        dims = {}
        for name, tensor in {**p.outputs, **p.inputs}.items():
            for axis, dim in enumerate(tensor.dims):
                dims.setdefault(dim, (name, axis))  # expressions of dimensions fall out below
        signature = Signature(
            outputs=tuple(p.outputs),
            inputs=tuple(p.inputs),
            dims={d: dims[d] for d in p.dims},
            options={**p.options, **self.step.options},
        )
        return load(
            self.path,
            language=self.language,
            names=signature,
            defines=self.step.defines,
            arch=self.step.arch,
        )

    def _must_exist(self) -> None:
        if self.path.exists():
            return
        if self.folder != "labs":
            raise LabkitError(f"There is no file {self.path}.")
        flag = " --cuda" if self.language == "cuda" else ""
        raise LabkitError(
            f"You have no kernel for {self.label} yet ({self.path}); write it in a cell that starts with "
            f"%%kernel {self.name}{flag}."
        )

    def check(self, *, seed: int = 0, shapes=None, on: str | None = None) -> CheckResult:
        """Is it right? See `labkit.check.check`; the result has `.passed` and `.failures`."""
        from labkit.check import CheckResult, Failure, check

        try:
            kernel = self.kernel
        except LabkitError as error:
            said = str(error) if not self.path.exists() else str(error).replace(f"{self.path.parent}/", "")
            return CheckResult(self.label, (Failure("error", {}, said),), (), 0.0)
        return check(self.problem, kernel, self.label, seed=seed, shapes=shapes, on=on)

    def profile(
        self, *, metrics: str = "full", keep: bool | str | Path = True, sample: int | None = None, **shape: int
    ) -> Profile:
        """Counters of one run at `shape` (the problem's profile shape if none is given).

        metrics: the set that ncu reads: "full", "quick", "memory", "compute", "tensor", "stalls" or "source" (with
        counts per line). keep: whether ncu's report stays, or a folder or file for it; `.report` is its path.
        By Nsight Compute where it may run, else by the emulator; `.origin` tells which.
        sample: run only so many blocks of each launch on the emulator, and scale the counts up: a labeled estimate.
        """
        from labkit.profiling.emulated import profile_emulated
        from labkit.profiling.measured import profile

        if sample is not None:
            return profile_emulated(**self.launches(shape), sample=sample)
        return profile(**self.launches(shape), metrics=metrics, keep=keep)

    def recorded(self, **shape: int) -> Profile:
        """What Nsight Compute read for the solution at `shape` (the bench shape if none is given) on another machine.

        With stall reasons, which no emulator knows. Raises LabkitError where nothing was recorded.
        """
        from labkit.profiling.recorded import find

        ours = Rung(self.problem, self.step, self.language, "solutions").label
        return find(self.problem.name, ours, self.problem.dims_of(shape or self.bench_shape))

    def launches(self, shape: dict[str, int], inputs: dict[str, Any] | None = None) -> dict[str, Any]:
        """A run at `shape` on fresh CPU tensors, as the functions of `labkit.profiling` take it.

        inputs: CPU tensors by name to run on instead.
        """
        p = self.problem
        dims = p.dims_of(shape or p.profile_shape)
        kernel = self.kernel
        inputs, outputs = inputs or p.make_inputs(dims), p.make_outputs(dims)
        out, options = as_argument(outputs), p.options_of(dims)
        return {
            "fn": lambda: kernel.launch(out, *inputs.values(), **options),
            "label": self.label,
            "shape": dims,
            "names": {**outputs, **inputs},
        }

    def time(self, *, cold: bool = True, recorded: bool = False, **shape: int) -> Timing:
        """How long it takes on this machine's GPU, or, where there is none, what was recorded of the solution.

        cold: whether the L2 holds none of the inputs before each launch. See `labkit.timing`.
        recorded: what was recorded of the solution even where there is a GPU, or no kernel of yours yet.
        Raises LabkitError where there is neither, and when a timed output is wrong.
        """
        from labkit.kernels import gpu
        from labkit.timing import find_recorded, time_kernel

        dims = self.problem.dims_of(shape or self.bench_shape)
        if recorded or not gpu.available():
            ours = Rung(self.problem, self.step, self.language, "solutions").label
            return find_recorded(self.problem, ours, dims, cold=cold)
        return time_kernel(self.problem, self.kernel, self.label, dims, cold=cold)

    @property
    def source(self) -> str:
        """The text of the kernel file."""
        self._must_exist()
        return self.path.read_text()

    @property
    def fingerprint(self) -> str:
        """A hash of the code without comments, layout and docstrings: what recorded figures belong to."""
        import hashlib

        from labkit.kernels.cuda import without_comments

        if self.language == "cuda":
            code = "".join(without_comments(self.source).split())
        else:
            tree = ast.parse(self.source)
            for node in ast.walk(tree):
                if isinstance(node, (ast.Module, ast.FunctionDef)) and ast.get_docstring(node) is not None:
                    node.body = node.body[1:]
            code = ast.unparse(tree)
        return hashlib.sha256(code.encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        state = "" if self.path.exists() else " (not written yet)"
        return f"{self.label}: {self.step.change}; watch {self.step.moves}. {self.path}{state}"
