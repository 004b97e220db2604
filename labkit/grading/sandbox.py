"""A process in a box: its own pids, network, mounts and users, a read-only system, limits, and one wall clock per job.

Three levels, best first. "bubblewrap": all of it. "namespaces" (`unshare`): own pids and network, but it sees the
machine's files. "rlimits": limits and nothing else. Every result names the level it was made at.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.errors import LabkitError
from labkit.grading import wire

LEVELS = ("bubblewrap", "namespaces", "rlimits")
GIB = 1 << 30


@dataclass(frozen=True)
class Limits:
    """memory: bytes of all processes of a box together.  start_s: until it is ready.  answer: bytes of one answer."""

    memory: int = 4 * GIB
    processes: int = 64
    cpu_s: int = 300  # of one process
    files: int = GIB  # bytes in /tmp, and of one file
    start_s: float = 120.0
    answer: int = 256 << 20


class Timeout(Exception):
    """A job took longer than its wall clock."""


class Died(Exception):
    """A box ended, answered nonsense or outgrew its limits; the message is a part of a sentence."""


@functools.cache
def best() -> str:
    """The best level that works on this machine."""
    for level in LEVELS[:2]:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(
                [*_inside(level, False), "/bin/true"], capture_output=True, timeout=30, env=_environment()
            )
            if done.returncode == 0:
                return level
    return LEVELS[2]


def allowed(level: str, submissions: int, force: bool) -> None:
    """LabkitError where a class would be graded on a weak level."""
    if level != LEVELS[0] and submissions > 1 and not force:
        raise LabkitError(
            f"The best sandbox here is {level!r}, which lets a submission see other people's files; install bubblewrap "
            "(apt install bubblewrap) and allow user namespaces, or accept that with --force-weak-sandbox."
        )


def _environment() -> dict[str, str]:
    package = Path(__file__).parents[2]
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(package),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LABKIT_CACHE": "/tmp/cache",
        "OMP_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
    }


def _driver_folders() -> list[str]:
    """Where the environment says that libraries lie, as containers do of the driver's."""
    return [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path.startswith("/")]


def _gpu_environment(number: int) -> dict[str, str]:
    """What a box needs that runs on the GPU of this number, counted among those that this process may see."""
    seen = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    found = {"CUDA_VISIBLE_DEVICES": seen[number] if number < len(seen) else str(number)}
    if _driver_folders():
        found["LD_LIBRARY_PATH"] = ":".join(_driver_folders())
    return found


def _other_user(level: str) -> pwd.struct_passwd | None:
    """Who runs a box that is hardly fenced in, where root is told to, so that files can be kept from it."""
    name = os.environ.get("LABKIT_GRADING_USER")
    if not name or level == "bubblewrap" or os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise LabkitError(f"LABKIT_GRADING_USER is {name}, and there is no such user here.") from None


def _inside(level: str, gpu: bool) -> list[str]:
    """The command before the command."""
    if level == "rlimits":
        return []
    if level == "namespaces":
        return [
            "unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts",
            "--mount", "--mount-proc", "--",
        ]  # fmt: skip
    labkit = str(Path(__file__).parents[1])
    seen = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives"]
    real = str(Path(sys.executable).resolve().parents[1])
    for prefix in dict.fromkeys([sys.prefix, sys.base_prefix, real]):
        if not Path(prefix).is_relative_to("/usr"):
            seen.append(prefix)
    words = ["bwrap", "--unshare-all", "--as-pid-1", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--uid", "1000", "--gid", "1000", "--hostname", "sandbox"]
    # First, for the project itself may lie in /tmp.
    words += ["--size", str(GIB), "--tmpfs", "/tmp"]
    words += [word for path in seen for word in ("--ro-bind-try", path, path)]
    words += ["--ro-bind", labkit, labkit, "--proc", "/proc", "--dev", "/dev"]
    if gpu:
        devices = [str(path) for path in (*sorted(Path("/dev").glob("nvidia*")), Path("/dev/dxg"))]  # dxg: WSL
        words += [word for path in devices for word in ("--dev-bind-try", path, path)]
        words += [word for path in ["/sys", *_driver_folders()] for word in ("--ro-bind-try", path, path)]
    words += ["--size", str(64 << 20), "--tmpfs", "/dev/shm"]
    return [*words, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp", "--"]


class Box:
    """A Python module that serves frames (`wire.serve`), in a sandbox. A context manager; leaving it kills all of it.

    `call` may be used again after it raised: a new process then takes the next job.
    """

    def __init__(self, module: str, level: str, *, limits: Limits | None = None, gpu: int | None = None) -> None:
        self.module, self.level, self.limits, self.gpu = module, level, limits or Limits(), gpu
        self._process: subprocess.Popen | None = None
        self._groups: list[Path] = []
        self._own: str | None = None

    def __enter__(self) -> Box:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def call(
        self, header: dict[str, Any], blobs: Sequence[bytes] = (), *, seconds: float
    ) -> tuple[dict[str, Any], list[bytes]]:
        """The answer to one job. Raises Timeout and Died; LabkitError where no process can be started at all."""
        if self._process is None:
            self._start()
        try:
            answer = self._exchange(wire.pack(header, blobs), seconds)
        except BaseException:
            self.kill()
            raise
        if "died" in answer[0]:
            raise Died(str(answer[0]["died"])[:200])
        return answer

    def _start(self) -> None:
        limits = self.limits
        environment = _environment()
        if self.gpu is None:
            environment["LABKIT_DEVICE"] = "emulator"
        else:
            environment.update(_gpu_environment(self.gpu))
        if self.level != "bubblewrap":
            self._own = tempfile.mkdtemp(prefix="labkit-box-")
            environment.update(HOME=self._own, TMPDIR=self._own, LABKIT_CACHE=f"{self._own}/cache")
        if os.environ.get("LABKIT_GRADING_DEBUG"):
            environment["LABKIT_GRADING_DEBUG"] = "1"
        other = _other_user(self.level)
        if other and self._own:
            os.chown(self._own, other.pw_uid, other.pw_gid)
        self._groups = _control_groups(limits)
        groups = [path / "cgroup.procs" for path in self._groups]

        def limit() -> None:
            for file in groups:
                file.write_text("0")
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s))
            resource.setrlimit(resource.RLIMIT_FSIZE, (limits.files, limits.files))
            resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
            if other:  # last: the limits and groups above may need root
                os.setgroups([])
                os.setgid(other.pw_gid)
                os.setuid(other.pw_uid)

        command = [*_inside(self.level, self.gpu is not None), sys.executable, "-P", "-s", "-m", self.module]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if os.environ.get("LABKIT_GRADING_DEBUG") else subprocess.DEVNULL,
                env=environment,
                preexec_fn=limit,
                start_new_session=True,
                cwd=self._own or "/",
            )
            for pipe in (self._process.stdin, self._process.stdout):
                os.set_blocking(pipe.fileno(), False)
            self._exchange(b"", limits.start_s)
        except (OSError, subprocess.SubprocessError, Timeout, Died) as error:
            self.kill()
            raise LabkitError(f"No sandboxed process could be started ({error}); see labkit doctor.") from error

    def _exchange(self, job: bytes, seconds: float) -> tuple[dict[str, Any], list[bytes]]:
        process = self._process
        deadline = time.monotonic() + seconds
        reader, rest = wire.Reader(self.limits.answer), memoryview(job)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if rest:
                selector.register(process.stdin, selectors.EVENT_WRITE)
            watched = time.monotonic()
            while True:
                now = time.monotonic()
                if now > deadline:
                    raise Timeout
                if now - watched > 0.25:
                    watched = now
                    self._within_limits()
                for key, _ in selector.select(min(deadline - now, 0.25)):
                    try:
                        if key.fileobj is process.stdin:
                            rest = rest[os.write(process.stdin.fileno(), rest[: 1 << 20]) :]
                            if not rest:
                                selector.unregister(process.stdin)
                            continue
                        piece = os.read(process.stdout.fileno(), 1 << 20)
                    except BlockingIOError:
                        continue
                    except BrokenPipeError:
                        raise Died("it ended") from None
                    if not piece:
                        raise Died("it ended")
                    try:
                        answer = reader.feed(piece)
                    except wire.Malformed as error:
                        raise Died(f"it answered nonsense ({error})") from None
                    if answer:
                        return answer

    def _within_limits(self) -> None:
        """What control groups do where they may be used, done by looking where they may not."""
        count, resident = _usage(self._process.pid)
        if count > self.limits.processes:
            raise Died(f"it started more than {self.limits.processes} processes")
        if resident > self.limits.memory:
            raise Died(f"it took more than {self.limits.memory // GIB} GiB of memory")

    def kill(self) -> None:
        """End every process of the box: its init's end is theirs."""
        process, self._process = self._process, None
        if process is not None:
            everyone = _descendants(process.pid)
            for pid in [process.pid, *everyone]:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
            process.stdin.close()
            process.stdout.close()
        for group in self._groups:
            for _ in range(50):
                try:
                    group.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:  # its last process is still on its way out
                    time.sleep(0.02)
        self._groups = []
        if self._own:
            shutil.rmtree(self._own, ignore_errors=True)
            self._own = None


def _descendants(pid: int) -> list[int]:
    """The processes below one, by its own lists: others may be many."""
    found, open_ = [], [pid]
    while open_:
        one = open_.pop()
        try:
            more = [int(child) for thread in os.listdir(f"/proc/{one}/task") for child in _children(one, thread)]
        except FileNotFoundError:
            if one == pid and os.path.exists(f"/proc/{one}/stat"):
                return _descendants_by_parents(pid)  # a kernel without these lists
            continue  # it has ended
        except (OSError, ValueError):
            continue
        found += more
        open_ += more
    return found


def _children(pid: int, thread: str) -> list[bytes]:
    with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
        return file.read().split()


def _descendants_by_parents(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(name))
    found, open_ = [], [pid]
    while open_:
        more = children.get(open_.pop(), [])
        found += more
        open_ += more
    return found


def _usage(pid: int) -> tuple[int, int]:
    """Processes of a tree, and their resident bytes."""
    count, resident = 0, 0
    for one in (pid, *_descendants(pid)):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
            with open(f"/proc/{one}/statm", "rb") as file:
                resident += int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            count += 1
    return count, resident


def _control_groups(limits: Limits) -> list[Path]:
    """New control groups with these limits, version 2 or 1; empty where none may be made."""
    name = f"labkit-{os.getpid()}-{os.urandom(4).hex()}"
    base = Path("/sys/fs/cgroup")
    memory, processes = str(limits.memory), str(limits.processes)
    plans: list[list[tuple[Path, dict[str, str]]]] = []
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = next(line[3:] for line in lines if line.startswith("0::"))
        folder = base / own.strip("/") / name
        plans.append([(folder, {"memory.max": memory, "memory.swap.max": "0", "pids.max": processes})])
    plans.append(
        [
            (base / "memory" / name, {"memory.limit_in_bytes": memory}),
            (base / "pids" / name, {"pids.max": processes}),
        ]
    )
    for plan in plans:
        made: list[Path] = []
        try:
            for folder, values in plan:
                folder.mkdir()
                made.append(folder)
                for file, value in values.items():
                    if (folder / file).exists():
                        (folder / file).write_text(value)
                    elif file != "memory.swap.max":  # no such controller, or no control group at all
                        raise OSError(file)
            return made
        except OSError:
            for folder in made:
                with contextlib.suppress(OSError):
                    folder.rmdir()
    return []


def control_groups() -> bool:
    """Whether memory and processes of a box are bounded by control groups here, and not only by looking."""
    groups = _control_groups(Limits())
    for group in groups:
        group.rmdir()
    return bool(groups)
