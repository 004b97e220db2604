"""Grade a synthetic class and measure what that takes.

    .venv/bin/python docs/grading_load.py --submissions 200 --jobs 2     measure, keep grading_load.json, write the page
    .venv/bin/python docs/grading_load.py --write                        write the page's tables from what was kept

The class: students who are right, wrong, slow, stuck or gone, drawn from a fixed random sequence, so that the class is
the same each time. It is graded by `labkit grade`, in a process of its own, on an otherwise empty folder.

A run that was interrupted goes on where it was, when the same command is given again: its work lies in
.scratch/grading_load-N until all is done, and what was spent before counts.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import nbformat

from labkit.grading import results, sandbox
from labkit.notebook.build import notebook

ROOT = Path(__file__).resolve().parents[1]
LAB = "02_gemm/01_naive_to_tiled"
KEPT, PAGE = Path(__file__).with_suffix(".json"), Path(__file__).parent / "grading.md"
INTERVAL_S = 0.1  # between looks at processes
KEEP_S = 10.0  # between notes of what was spent

# What a student does with a kernel, and how many of a hundred do.
HABITS = {
    "right": 68, "untouched": 8, "no barrier or guard": 10, "does not parse": 4, "the rung below": 8, "never ends": 2,
}  # fmt: skip
BELOW = {"coalesced": "naive", "smem_tile": "coalesced"}


def submission(draw: random.Random) -> tuple[nbformat.NotebookNode, list[str]]:
    """A notebook as a student may hand it in, and what was done with its kernels."""
    master = ROOT / "solutions" / f"{LAB}.py"
    solved = {cell.id: cell.source for cell in notebook(master, solved=True).cells}
    book, habits = notebook(master), []
    for cell in book.cells:
        graded = cell.metadata.get("nbgrader", {})
        if not graded.get("solution"):
            continue
        if cell.source.startswith("%%kernel"):
            if cell.id.endswith("--numba"):
                habits += draw.choices(list(HABITS), HABITS.values())
                cell.source = kernel(cell, solved[cell.id], habits[-1], draw)
        elif draw.random() < 0.85:
            cell.source = solved[cell.id]
    return book, habits


def kernel(cell: nbformat.NotebookNode, solved: str, habit: str, draw: random.Random) -> str:
    if habit == "untouched":
        return cell.source
    name = f"_{draw.randrange(10**6)}"
    source = re.sub(r"\b(acc|row|col)\b", lambda m: m[0] + name, solved)  # each student's own names
    if habit == "no barrier or guard":
        broken = source.replace("cuda.syncthreads()", "pass", 1)
        return broken if broken != source else re.sub(r"if \w+ < M and \w+ < N", "if True", source, count=1)
    if habit == "does not parse":
        return source.replace("def launch(", "def launch((", 1)
    if habit == "the rung below":
        rung = cell.id.split("--")[1]
        below = ROOT / "solutions" / "02_gemm" / "kernels" / "gemm" / f"{BELOW[rung]}.py"
        magic = source.split("\n", 1)[0]
        return f"{magic}\n" + re.sub(r"(?m)^ *### (BEGIN|END) SOLUTION\n", "", below.read_text("utf-8"))
    if habit == "never ends":
        return re.sub(r"(?m)^( +)for k.* in range\(.*:$", r"\1while True:\n\1    k = k0 = 0", source, count=1)
    return source


class Watch(threading.Thread):
    """What a process and all below it use, looked at now and then: boxes are killed, so that nobody else counts them.

    spent : what earlier runs used; `note` writes it with this one's to `file`.
    """

    def __init__(self, pid: int, file: Path, spent: dict) -> None:
        super().__init__(daemon=True)
        self.pid, self.file, self.spent, self.stop = pid, file, spent, threading.Event()
        self.began, self.most = time.perf_counter(), 0
        self.seen: dict[tuple[int, str], float] = {}

    def run(self) -> None:
        looks = 0
        while not self.stop.wait(INTERVAL_S):
            pids = [self.pid, *sandbox._descendants(self.pid)]
            if looks % 10 == 0:
                self.most = max(self.most, sum(map(_pss, pids)))
            for pid in pids:
                try:
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                ticks = int(fields[11]) + int(fields[12])  # its own, not those of children
                self.seen[pid, fields[19]] = ticks / os.sysconf("SC_CLK_TCK")
            looks += 1
            if looks % round(KEEP_S / INTERVAL_S) == 0:
                self.note()
        self.note()

    def note(self) -> dict:
        found = {
            "runs": self.spent["runs"] + 1,
            "seconds": self.spent["seconds"] + time.perf_counter() - self.began,
            "cpu_seconds": self.spent["cpu_seconds"] + sum(self.seen.values()),
            "peak_bytes": max(self.spent["peak_bytes"], self.most),
            "load_before": self.spent["load_before"],
        }
        results.write_text(self.file, json.dumps(found))
        return found


def _pss(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    match = re.search(r"(?m)^Pss: +(\d+) kB", text)
    return int(match[1]) * 1024 if match else 0


def measure(count: int, jobs: int) -> dict:
    """Make the class, grade it, and say what it took; goes on where an interrupted run of the same class was."""
    scratch = ROOT / ".scratch" / f"grading_load-{count}"
    folder, out, kept = scratch / "class", scratch / "out", scratch / "spent.json"
    made, habits = folder.with_name("making"), Counter()
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    draw = random.Random(1)
    for number in range(count):
        book, done = submission(draw)
        habits.update(done)
        nbformat.write(book, made / f"student{number:05}.ipynb")
    if not folder.exists():
        made.rename(folder)
    spent = {"runs": 0, "seconds": 0.0, "cpu_seconds": 0.0, "peak_bytes": 0, "load_before": os.getloadavg()[0]}
    if kept.exists():
        spent = json.loads(kept.read_text())
    command = ["grade", str(folder), "--out", str(out), "--jobs", str(jobs), "--labs", LAB]
    process = subprocess.Popen(
        [sys.executable, "-m", "labkit", *command], cwd=ROOT, stdout=subprocess.DEVNULL,
        preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL),  # PR_SET_PDEATHSIG: it ends with this one
    )  # fmt: skip
    watch = Watch(process.pid, kept, spent)
    watch.start()
    try:
        status = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        watch.stop.set()
        watch.join()
    spent = watch.note()
    found = results.read_all(out)
    if status or len(found) != count:
        sys.exit(f"labkit grade ended with status {status} and {len(found)} results of {count}; run this again.")
    size = sum(results.path(out, r["submission"]).stat().st_size for r in found)
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "labkit", "report", str(out)], cwd=ROOT, check=True, stdout=sys.stderr)
    report_s = time.perf_counter() - began
    made = {
        "lab": LAB, "submissions": count, "jobs": jobs, "status": status, "runs": spent["runs"],
        "seconds": round(spent["seconds"], 1),
        "cpu_seconds": round(spent["cpu_seconds"], 1), "interval_s": INTERVAL_S,
        "peak_bytes": spent["peak_bytes"], "result_bytes": size,
        "report_seconds": round(report_s, 1),
        "each_seconds": [r["seconds"] for r in found], "states": dict(Counter(r["state"] for r in found)),
        "kernels": dict(habits),
        "kernel_states": dict(Counter(i["state"] for r in found for i in r["items"] if i["kind"] == "kernel")),
        "sandbox": sorted({r["sandbox"] for r in found}), "load_before": round(spent["load_before"], 1),
        "machine": f"{_cpu()}, {os.cpu_count()} cores", "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": f"python docs/grading_load.py --submissions {count} --jobs {jobs}",
    }  # fmt: skip
    shutil.rmtree(scratch)
    return made


def _cpu() -> str:
    found = re.search(r"(?m)^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text())
    return found[1].strip() if found else platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--submissions", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="only write the page from what was measured")
    arguments = parser.parse_args()
    if not arguments.write:
        found = measure(arguments.submissions, arguments.jobs)
        KEPT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(json.dumps({k: v for k, v in found.items() if k != "each_seconds"}, indent=1))
    if PAGE.exists():
        PAGE.write_text(page(PAGE.read_text("utf-8"), json.loads(KEPT.read_text("utf-8"))), encoding="utf-8")


def page(text: str, found: dict) -> str:
    """The page with its tables as `found` has them."""
    for name, body in (("load", load_table(found)), ("plan", plan_table(found))):
        text = re.sub(
            rf"(?s)(<!-- {name} -->\n).*?(<!-- end of {name} -->)", lambda m, body=body: m[1] + body + m[2], text
        )
    return text


def load_table(found: dict) -> str:
    each = sorted(found["each_seconds"])
    kernels = ", ".join(f"{n} {habit}" for habit, n in sorted(found["kernels"].items(), key=lambda kv: -kv[1]))
    count = found["submissions"]
    rows = {
        "submissions": f"{count} of `{found['lab']}`; kernels: {kernels}",
        "machine": f"{found['machine']}, {found['jobs']} jobs, sandbox {', '.join(found['sandbox'])}",
        "date": f"{found['date']}; {beside(found)}",
        "time": f"{found['seconds'] / 60:.1f} min: {60 * count / found['seconds']:.1f} submissions per minute"
        + (f", in {found['runs']} runs" if found.get("runs", 1) > 1 else ""),
        "CPU": f"{found['cpu_seconds'] / count:.1f} s per submission, looked at every {found.get('interval_s', 0.5)} s",
        "one submission": f"median {each[len(each) // 2]:.1f} s, 95 of 100 within {each[int(0.95 * (count - 1))]:.1f} s"
        f", longest {each[-1]:.1f} s",
        "peak memory": f"{found['peak_bytes'] / 2**30:.2f} GiB of all processes together",
        "results": f"{found['result_bytes'] / count / 1024:.1f} KiB per submission",
        "reports": f"{1000 * found['report_seconds'] / count:.0f} ms per submission",
    }
    return "| | |\n|---|---|\n" + "".join(f"| {name} | {value} |\n" for name, value in rows.items())


def beside(found: dict) -> str:
    load, cores = found["load_before"], int(re.search(r"(\d+) cores", found["machine"])[1])
    said = "other work ran beside it all the time" if load > cores / 2 else "nothing else ran beside it"
    return f"{said} (load {load} before)"


def plan_table(found: dict, course: int = 10_000) -> str:
    cpu = found["cpu_seconds"] / found["submissions"]
    memory = found["peak_bytes"] / found["jobs"] / 2**30
    rows = []
    for cores in (2, 16, 64, 256):
        hours = course * cpu / cores / 3600
        lasts = f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"
        rows.append(f"| {cores} | {lasts} | {cores * memory:.0f} GiB |\n")
    return "| cores | one assignment | memory |\n|---|---|---|\n" + "".join(rows)


if __name__ == "__main__":
    main()
