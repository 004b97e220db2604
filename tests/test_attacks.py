"""No attack scores, harms another's result or leaves anything behind; honest work and broken notebooks get their due.

Each attack is first shown to succeed against `attacks/naive.py`, so that none of them is a man of straw.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import attacks
import pytest
from attacks import Attack

from labkit.grading import grade as grading
from labkit.grading import sandbox
from labkit.grading import scheme as schemes
from labkit.grading.submissions import Source
from labkit.problems import get as problem_of

pytestmark = pytest.mark.slow  # several minutes

ROOT = Path(__file__).resolve().parents[1]
KERNELS = attacks.every(*attacks.KERNELS)
SECRET = "somebody_elses_kernel"


def _ids(found: list[Attack]):
    return [pytest.param(attack, id=attack.name) for attack in found]


# --- what an attack may find, and what it leaves behind -----------------------------------------------------


class World:
    """A folder with a secret and another's result, and a listener; what became of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.token = f"trace-{uuid.uuid4().hex[:12]}"
        self.secret = folder / "secret.txt"
        self.secret.write_text(f"{SECRET} x;")
        self.other = folder / "results" / "other.json"
        self.other.parent.mkdir()
        self.other.write_text('{"points": 10}')
        self.heard = b""
        self._sockets = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)]
        self._sockets[1].bind(f"\0{self.token}")
        self._sockets[1].listen()
        for one in self._sockets:
            threading.Thread(target=self._listen, args=(one,), daemon=True).start()

    def _listen(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = server.accept()
                with line:
                    line.settimeout(0.5)
                    self.heard += line.recv(1000) or b"?"

    @property
    def places(self) -> dict[str, str]:
        return {
            "@TOKEN@": self.token,
            "@SECRET@": str(self.secret),
            "@OTHER@": str(self.other),
            "@PORT@": str(self._sockets[0].getsockname()[1]),
            "@HOME@": str(self.home),
        }

    def marked(self, *folders: Path) -> list[Path]:
        """Files under these folders, their first level or all of @HOME@, that carry the token."""
        found = [f for f in self.home.rglob("*") if f.is_file()]
        for folder in folders:
            found += [f for f in folder.iterdir() if self.token in f.name] if folder.is_dir() else []
        return [f for f in found if self.token in f.name or self.token.encode() in f.read_bytes()]

    def close(self) -> None:
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path / "world")
    yield made
    made.close()


# --- the naive grader ---------------------------------------------------------------------------------------


class Naive:
    """`attacks/naive.py` in a process of its own."""

    def __init__(self, on_gpu: bool = False) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "LABKIT_ROOT": str(ROOT), "LAB_SECRET": SECRET}
        if not on_gpu:
            environment |= {"LABKIT_DEVICE": "emulator", "CUDA_VISIBLE_DEVICES": ""}
        self.process = subprocess.Popen(
            [sys.executable, str(attacks.HERE / "naive.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT,
        )  # fmt: skip
        assert json.loads(self.process.stdout.readline())["ready"]

    def grade(self, attack: Attack, source: str, world: World | None = None, patience: float = 1.0, **more) -> dict:
        job = {
            "problem": attack.problem, "rung": attack.rung, "language": attack.language, "source": source,
            "habits": list(attack.habits), "shapes": list(attack.shape), "patience": patience, "path": "",
            "environment": {"LABKIT_CACHE": str(world.home)} if world else {}, **more,
        }  # fmt: skip
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    @functools.cache  # noqa: B019 - lives as long as the tests
    def honest(self, target: str, habits: tuple[str, ...], shape: tuple) -> dict:
        """What it makes of the solution."""
        problem, rung = target.split("/")
        file = next(ROOT.glob(f"solutions/*/kernels/{problem}/{rung}.py"))
        plain = tuple(h for h in habits if h in ("events", "flushed", "mean", "few samples"))
        shapes = tuple(dict(s) for s in shape)
        attack = Attack(file, "", target, "", plain, "marks", False, "pass", "", shapes, "correct")
        return self.grade(attack, file.read_text(), patience=60)


@pytest.fixture(scope="module")
def naive():
    server = Naive()
    yield server
    server.process.stdin.close()
    server.process.wait(20)


@pytest.fixture(scope="module")
def naive_on_gpu():
    server = Naive(on_gpu=True)
    yield server
    server.process.stdin.close()
    server.process.wait(20)


@pytest.mark.parametrize("attack", _ids([attack for attack in KERNELS if not attack.gpu]))
def test_naive_grader_is_taken_in(attack, naive, world):
    taken_in(attack, naive, world)


@pytest.mark.gpu
@pytest.mark.parametrize("attack", _ids([attack for attack in KERNELS if attack.gpu]))
def test_naive_grader_is_taken_in_on_a_gpu(attack, naive_on_gpu, world):
    """What these gain shows on a GPU only."""
    taken_in(attack, naive_on_gpu, world)


def taken_in(attack: Attack, naive: Naive, world: World) -> None:
    honest = naive.honest(attack.target, attack.habits, tuple(tuple(s.items()) for s in attack.shape))
    assert honest["passed"], honest
    stops = attack.gains == "stops"
    found = naive.grade(attack, attack.text(world.places, ours=False), world, patience=0 if stops else 60)
    if attack.gains == "marks":
        assert found["passed"], found
    elif attack.gains == "time":
        for _ in range(3):  # another process may have had the processor
            if found["ms"] < honest["ms"] / attack.by:
                break
            found = naive.grade(attack, attack.text(world.places, ours=False), world, patience=60)
        assert found["passed"] and found["ms"] < honest["ms"] / attack.by, (found, honest["ms"])
    elif attack.gains == "secret":
        assert SECRET in found["message"] + found["log"], found
    elif attack.gains == "other":
        assert world.token in world.other.read_text()
    elif attack.gains == "stops":
        assert found.get("stopped"), found
    elif attack.gains == "exec":
        ran = any(file.name.startswith(f"{world.token} ran") for file in world.home.iterdir())
        assert ran or f"<script>alert('{world.token}" in found["message"], found
    elif attack.gains == "memory":
        assert found["held"] > honest["held"] + 200e6, (found, honest["held"])
    elif attack.gains == "process":
        assert found["alive"] >= 1, found
    elif attack.gains == "file":
        assert world.marked() or found["left"] > attacks.SIZES["@BYTES@"][0], found
    elif attack.gains == "network":
        assert world.token.encode() in world.heard


@pytest.mark.parametrize("habit", ["plain", "printed", "exit status", "result file", "pickled", "check", "returned"])
def test_naive_grader_tells_right_from_wrong(naive, habit):
    """Without this, its being taken in would mean nothing."""
    solution = next(ROOT.glob("solutions/*/kernels/vector_add/grid.py"))
    attack = Attack(solution, "", "vector_add/grid", "", (habit,), "marks", False, "pass", "", (), "correct")
    assert naive.grade(attack, solution.read_text(), patience=30)["passed"]
    wrong = naive.grade(attack, solution.read_text().replace("A[i] + B[i]", "A[i] - B[i]"), patience=30)
    assert not wrong["passed"] and not wrong.get("stopped"), wrong


# --- whole submissions, by the naive grader ---

MASTER = ROOT / "solutions" / "01_gpu_basics" / "01_threads_and_latency.py"
NOTEBOOKS = attacks.every("notebook")


@functools.cache
def _lab() -> str:
    return json.dumps(attacks.lab(MASTER))


def submission(attack: Attack, world: World) -> Path:
    """What is handed in, in @HOME@; another student's notebook lies beside the secret."""
    solved = world.folder / "solved.ipynb"
    solved.write_text(_lab())
    return attack.function("make")(json.loads(_lab()), world.home, {**world.places, "@SOLVED@": str(solved)})


@pytest.mark.parametrize("attack", _ids(NOTEBOOKS))
def test_naive_grader_is_taken_in_by_notebook(attack, naive, world):
    path = submission(attack, world)
    before = {file for file in world.home.rglob("*") if world.token in file.name}
    patience = 0 if attack.gains == "stops" else 25
    found = naive.grade(attack, "", world, patience=patience, path=str(path))
    if attack.gains == "marks":  # with the wrong kernel there is 1 point to be had, for the answer
        known = 0 if attack.part == "answer" else 1
        assert found["passed"] and (found["points"] > known or found["points"] == found["possible"]), found
    elif attack.gains == "stops":
        assert found.get("stopped"), found
    elif attack.gains == "file":
        assert {file for file in world.home.rglob("*") if world.token in file.name} - before, found
    elif attack.gains == "exec":
        assert f"<script>alert('{world.token}" in found["message"], found


# --- our grader ---------------------------------------------------------------------------------------------

POINTS = 10.0
needs_sandbox = pytest.mark.skipif(
    sandbox.best() != "bubblewrap" and os.environ.get("LABKIT_REQUIRE_SANDBOX") != "1",
    reason="bubblewrap is not here, or may not make namespaces (apt install bubblewrap)",
)
LIMITS = functools.partial(sandbox.Limits, memory=3 << 29, files=1 << 28)
PATIENCE = {"resources": 8.0}  # seconds that a kernel's host code has


def item(attack: Attack) -> schemes.Item:
    """The question that an attack is after, worth 10 points, with time and, where it is about that, gates."""
    step = problem_of(attack.problem).step(attack.rung)
    gates = step.gates if attack.part == "structure" else ()
    cells = (schemes.Cell(attack.name.replace("/", "--"), attack.language, ""),)
    return schemes.Item(
        cells[0].id, "kernel", POINTS, "attacks", attack.problem, attack.rung, attack.language, "", cells,
        gates=gates, timed=True,
    )  # fmt: skip


def notebook(path: Path, found: list[Attack], places: dict[str, str]) -> Path:
    """A notebook with these kernel cells."""
    cells = []
    for attack in found:
        flag = " --cuda" if attack.language == "cuda" else ""
        ident = attack.name.replace("/", "--")
        cells.append(
            {
                "cell_type": "code", "id": ident, "metadata": {"nbgrader": {"grade_id": ident}}, "outputs": [],
                "source": f"%%kernel {attack.target}{flag}\n{attack.text(places, ours=True)}",
            }
        )  # fmt: skip
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


def descendants() -> set[int]:
    """Living processes below this one; those that lost their parent are adopted by it."""
    found = set()
    for pid in sandbox._descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.add(pid)
    return found


def gone(pids: set[int], seconds: float = 5.0) -> set[int]:
    """Those of these processes that are still there after a while; ends take their time."""
    end = time.monotonic() + seconds
    while pids and time.monotonic() < end:
        time.sleep(0.05)
        pids &= descendants()
    return pids


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """folder -> what our grader makes of its attacks, handed in as one notebook; each folder is graded once."""
    shared = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent
    shared = shared / "graded"
    shared.mkdir(exist_ok=True)

    def of(folder: str) -> dict:
        with open(shared / f"{folder}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            kept = shared / f"{folder}.json"
            if not kept.exists():
                kept.write_text(json.dumps(batch(folder, shared / folder)))
            return json.loads(kept.read_text())

    return of


def batch(folder: str, place: Path) -> dict:
    """Grade a folder's attacks as one student's notebook, then an honest one; and what the attacks left behind."""
    import ctypes

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans come here, where they are seen
    found, honest = attacks.every(folder), attacks.load(attacks.HERE / "honest" / "slow.py")
    world = World(place)
    out = place / "out"
    scheme = schemes.Scheme(tuple(item(attack) for attack in found))
    candidates = [Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path.home(), ROOT, Path(grading.__file__).parent]
    candidates += [Path(p) for p in sys.path if Path(p).is_dir()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox, "Limits", LIMITS)
        patch.setattr(grading, "RECORD_S", PATIENCE.get(folder, 60.0))
        patch.setattr(grading, "ENGINE_S", PATIENCE.get(folder, 60.0))
        patch.setenv("LAB_SECRET", SECRET)
        before = descendants()
        with grading.Grader(ROOT, out, scheme=scheme) as grader:
            result = grader.grade(notebook(place / f"{folder}.ipynb", found, world.places))
            grader.scheme = schemes.Scheme((item(honest),))
            after = grader.grade(notebook(place / "honest.ipynb", [honest], world.places))
        left = gone(descendants() - before)
    made = {
        "result": result,
        "honest": after,
        "alive": sorted(left),
        "files": [str(file) for file in world.marked(*candidates)],
        "heard": world.heard.decode(errors="replace"),
        "other": world.other.read_text(),
        "token": world.token,
        "written": sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()),
    }
    world.close()
    return made


@needs_sandbox
@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(a, id=a.name, marks=pytest.mark.xfail(reason=a.known, strict=True) if a.known else ())
        for a in KERNELS
    ],
)
def test_attack_does_not_score(attack, graded):
    result = graded(attack.path.parent.name)["result"]
    assert result["state"] == "graded" and result["sandbox"] == "bubblewrap"
    (found,) = (i for i in result["items"] if i["id"] == attack.name.replace("/", "--"))
    (part,) = (p for p in found["parts"] if p["name"] == attack.part)
    assert part["points"] == 0, part
    assert part["state"] in attack.state.split("|"), part
    assert re.search(attack.says, part["message"]), part["message"]
    if attack.part == "correct":
        assert found["points"] == 0, found


@needs_sandbox
@pytest.mark.parametrize("folder", attacks.KERNELS)
def test_attacks_leave_nothing_behind(folder, graded):
    made = graded(folder)
    assert made["alive"] == []
    assert made["files"] == []
    assert made["heard"] == ""
    assert made["other"] == '{"points": 10}'
    assert SECRET not in json.dumps(made["result"]).replace(f'{SECRET}"', "")
    assert [f for f in made["written"] if not f.startswith(".")] == sorted(
        [f"results/{folder}.json", "results/honest.json"]
    )


@needs_sandbox
@pytest.mark.parametrize("folder", attacks.KERNELS)
def test_attacks_change_nobody_elses_result(folder, graded):
    (found,) = graded(folder)["honest"]["items"]
    correct, time = found["parts"]
    assert correct["points"] == correct["possible"] and time["state"] == "pending"


FASTEST = 1.25  # times the reference's speed: no attack on the clock, which computes what the reference does, has more


@pytest.fixture(scope="module")
def on_the_clock(request, tmp_path_factory):
    """The items of the attacks on the clock: before a GPU filled in their times, and then.

    Those whose tests were chosen are handed in as one notebook, because boxes take seconds to start. To try a few:

        pytest -m gpu tests/test_attacks.py -k "clock and (side_stream or device_state)"
    """
    folder = tmp_path_factory.mktemp("clock")
    tests = [t for t in request.session.items if "on_the_clock" in getattr(t, "fixturenames", ())]
    chosen = [test.callspec.params["attack"] for test in tests]
    world = World(folder / "world")
    source = Source("time", notebook(folder / "time.ipynb", chosen, world.places))
    scheme = schemes.Scheme(tuple(item(attack) for attack in chosen))
    with grading.Grader(ROOT, folder / "out", scheme=scheme, gpu=0) as grader:
        made = [{found["id"]: found for found in do(source)["items"]} for do in (grader.grade, grader.fill)]
    world.close()
    return made


@pytest.mark.gpu
@pytest.mark.parametrize("attack", _ids([attack for attack in KERNELS if attack.part == "time"]))
def test_attack_on_the_clock_gains_no_time_on_a_gpu(attack, on_the_clock):
    """Where a kernel that is right waits for a GPU: what it launches is timed, and no word of its host is heard."""
    waiting, found = (items[attack.name.replace("/", "--")] for items in on_the_clock)
    assert waiting["parts"][-1]["state"] == "pending", waiting["parts"]
    part = found["parts"][-1]
    assert part["state"] != "pending", part
    assert part["state"] == "fail" and "ratio" not in part["details"] or part["details"]["ratio"] < FASTEST, part


HONEST = attacks.every("honest")


@needs_sandbox
@pytest.mark.parametrize("attack", _ids(HONEST))
def test_honest_work_gets_full_marks(attack, graded):
    (found,) = (i for i in graded("honest")["result"]["items"] if i["id"] == attack.name.replace("/", "--"))
    correct, time = found["parts"]
    assert correct["points"] == correct["possible"], correct
    assert time["state"] == "pending"


# --- whole submissions, by our grader ---

FAULTY = attacks.every("faulty")


class SharedRunner(grading.Runner):
    """Outlives a submission: the reading of notebooks is tested with it, and a box takes seconds to start."""

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def lab_grader(tmp_path_factory):
    whole = schemes.load(ROOT, ["01_gpu_basics/01_threads_and_latency"])
    cells = (attacks.KERNEL, attacks.QUESTION, attacks.EXPLAIN)
    scheme = schemes.Scheme(tuple(i for i in whole.items if i.id in cells))
    assert len(scheme.items) == 3
    with pytest.MonkeyPatch.context() as patch, grading.Runner(sandbox.best()) as boxes:
        shared = SharedRunner(sandbox.best())
        shared.worker, shared.engine = boxes.worker, boxes.engine
        with grading.Grader(ROOT, tmp_path_factory.mktemp("out"), scheme=scheme) as grader:
            item = next(i for i in scheme.items if i.kind == "kernel")
            grader.references.of(item, item.language)
            patch.setattr(grading, "Runner", lambda level: shared)
            yield grader


def _part(result: dict, kind: str) -> dict:
    (found,) = (i for i in result["items"] if i["kind"] == kind)
    return found["parts"][0]


@needs_sandbox
@pytest.mark.parametrize("attack", _ids(NOTEBOOKS))
def test_notebook_does_not_score(attack, lab_grader, world, monkeypatch):
    monkeypatch.setattr(sandbox, "Limits", LIMITS)
    path = submission(attack, world)
    before = set(world.marked(world.folder))
    result = lab_grader.grade(path)
    assert result["possible"] == lab_grader.scheme.possible
    assert set(world.marked(world.folder)) == before
    if attack.part == "nothing":
        assert result["state"] == attack.state and result["points"] == 0
        assert re.search(attack.says, result["reason"]), result["reason"]
    elif attack.part == "total":
        answer = _part(result, "answer")
        assert answer["state"] == "pass" and answer["points"] == answer["possible"] <= 2
    else:
        part = _part(result, "answer" if attack.part == "answer" else "kernel")
        assert part["points"] == 0 and part["state"] in attack.state.split("|"), part
        assert re.search(attack.says, part["message"]), part


@needs_sandbox
@pytest.mark.parametrize("attack", _ids(FAULTY))
def test_faulty_notebook_is_graded_as_far_as_possible(attack, lab_grader, world, monkeypatch):
    monkeypatch.setattr(sandbox, "Limits", LIMITS)
    result = lab_grader.grade(submission(attack, world))
    assert result["state"] == attack.state, result["reason"]
    said = " ".join([*result["faults"], result["reason"] or ""])
    assert re.search(attack.says, said), said
    if attack.part == "all":
        for kind in ("kernel", "answer"):
            part = _part(result, kind)
            assert part["state"] == "pass" and part["points"] == part["possible"], part
    else:
        assert result["points"] == 0 and result["reason"].endswith(".")


def test_messages_with_markup_are_shown_as_text(graded, tmp_path):
    """What a student's process says goes into pages that an instructor opens."""
    from labkit.grading import report, results

    if sandbox.best() != "bubblewrap":
        pytest.skip("bubblewrap is not here")
    made = graded("resources")
    assert "<script>alert(" in json.dumps(made["result"])
    results.write(tmp_path, made["result"])
    report.write(tmp_path)
    pages = list(tmp_path.rglob("*.html"))
    assert pages and not any("<script>alert(" in page.read_text() for page in pages)


def test_corpus_covers_the_families():
    families = {attack.family for attack in KERNELS + attacks.every("notebook")}
    assert len(families) >= 45, sorted(families)
