"""Side by side with compute-sanitizer: the corpus under its four tools on a real GPU.

    python tests/sanitizer_corpus/record.py export DIR       # here: compile every kernel, write DIR/cases.json
    python3 tests/sanitizer_corpus/record.py run DIR OUT     # on a machine with a GPU, needs nothing but Python there

`run` writes OUT/compute-sanitizer--<machine>.json. Wrong kernels run in processes of their own, since an error ends
a context and a missed barrier may hang it.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
SECONDS = 20  # per process
LAST_START = 120  # seconds after which no process is started


def export(folder: Path) -> None:
    here = Path(__file__).parent
    sys.path[:0] = [str(here.parent), str(here)]
    from cases import all_cases

    from labkit.emulator import Pointer

    sources: list[str] = []
    described = []
    for case in all_cases():
        launch, arrays = case.launch()
        if launch.ptx not in sources:
            sources.append(launch.ptx)
        described.append(
            {
                "id": case.id, "kind": case.kind, "name": case.name, "ptx": sources.index(launch.ptx),
                "entry": launch.entry, "grid": launch.grid, "block": launch.block, "shared": launch.shared,
                "params": [p.buffer if isinstance(p, Pointer) else p.hex() for p in launch.params],
                "buffers": [None if fresh else a.tobytes().hex() for _, a, fresh in arrays],
                "sizes": [a.nbytes for _, a, _ in arrays],
            }
        )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cases.json").write_text(json.dumps({"ptx": sources, "cases": described}))


def launch(folder: Path, wanted: list[str]) -> None:
    """Run some cases in this process."""
    known = json.loads((folder / "cases.json").read_text())
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *args: object) -> None:
        status = getattr(cuda, name)(*args)
        if status:
            print(f"{name} failed with {status}", flush=True)
            os._exit(3)

    context, pointer = ctypes.c_void_p(), ctypes.c_uint64
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    modules: dict[int, ctypes.c_void_p] = {}
    for case in known["cases"]:
        if case["id"] not in wanted:
            continue
        if case["ptx"] not in modules:
            module = modules[case["ptx"]] = ctypes.c_void_p()
            option, value = (ctypes.c_int * 1)(13), (ctypes.c_void_p * 1)(1)  # CU_JIT_GENERATE_LINE_INFO
            text = known["ptx"][case["ptx"]].encode()
            call("cuModuleLoadDataEx", ctypes.byref(module), text, 1, option, value)
        function = ctypes.c_void_p()
        call("cuModuleGetFunction", ctypes.byref(function), modules[case["ptx"]], case["entry"].encode())
        bases = []
        for data, size in zip(case["buffers"], case["sizes"], strict=True):
            base = pointer()
            call("cuMemAlloc_v2", ctypes.byref(base), ctypes.c_size_t(size))
            if data is not None:
                call("cuMemcpyHtoD_v2", base, bytes.fromhex(data), ctypes.c_size_t(size))
            bases.append(base)
        values = [
            bases[p] if isinstance(p, int) else ctypes.create_string_buffer(bytes.fromhex(p), len(p) // 2)
            for p in case["params"]
        ]
        params = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        call("cuLaunchKernel", function, *case["grid"], *case["block"], case["shared"], None, params, None)
        call("cuCtxSynchronize")
    print("done", flush=True)


def examine(folder: Path, tool: str, ids: list[str], seconds: float) -> dict:
    """What a tool says of some cases run in one process."""
    command = [
        "timeout", "-s", "KILL", str(seconds), "compute-sanitizer", "--tool", tool, "--print-limit", "20",
        sys.executable, __file__, "launch", str(folder), *ids,
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    text = done.stdout
    said = [line.removeprefix("=========").strip() for line in text.splitlines() if line.startswith("=========")]
    summary = next((line for line in reversed(said) if "SUMMARY" in line), "")
    count = int(m[1]) if (m := re.search(r"SUMMARY: (\d+)", summary)) else 0
    told = [line for line in said if line and not line.startswith(("COMPUTE-SANITIZER", "Saved host", "Host Frame"))]
    errors = [line for line in told if re.match(r"(Invalid|Error|Warning|Uninit|Barrier|Program hit|\w+ error)", line)]
    return {
        "found": count > 0,
        "timed_out": done.returncode in (-9, 137),
        "first": errors[0] if errors else None,
        "lines": sorted({int(n) for n in re.findall(r"in \w+\.(?:cu|py):(\d+)", text)}),
        "kernels": sorted({m for m in re.findall(r"(?:at|in) ([A-Za-z_]\w+)(?:\(|\+)", text)}),
        "summary": summary,
        "text": text[:3000],
    }


def run(folder: Path, out: Path) -> None:
    known = json.loads((folder / "cases.json").read_text())["cases"]
    started = time.monotonic()
    endless = [c for c in known if c["kind"] == "no_progress"]
    wrong = [c for c in known if c["kind"] and c not in endless]
    right = [c["id"] for c in known if not c["kind"]]
    jobs = [(tool, right[k::4], 2 * SECONDS) for tool in TOOLS for k in range(4)]
    jobs += [(tool, [c["id"]], SECONDS) for c in wrong for tool in TOOLS]
    jobs += [("synccheck", [c["id"]], 6) for c in endless]

    def one(job: tuple) -> dict | None:
        tool, ids, seconds = job
        if time.monotonic() - started > LAST_START:
            return None
        return {"tool": tool, "ids": ids, **examine(folder, tool, ids, seconds)}

    with ThreadPoolExecutor(14) as pool:
        results = list(pool.map(one, jobs))
    machine, driver = (
        subprocess.run(["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader"], capture_output=True, text=True)
        .stdout.splitlines()[0].strip()
        for what in ("name", "driver_version")
    )  # fmt: skip
    version = subprocess.run(["compute-sanitizer", "--version"], capture_output=True, text=True).stdout
    report = {
        "machine": machine,
        "driver": driver,
        "compute_sanitizer": (re.search(r"Version ([\d.]+)", version) or ["", version.strip()])[1],
        "date": time.strftime("%Y-%m-%d"),
        "command": "python3 tests/sanitizer_corpus/record.py run " + " ".join(sys.argv[2:]),
        "seconds": round(time.monotonic() - started, 1),
        "not_run": [list(job[:2]) for job, result in zip(jobs, results, strict=True) if result is None],
    }
    kept = [r for r in results if r]
    (out / "raw.json").write_text(json.dumps(kept))
    keys = ("tool", "ids", "found", "timed_out", "first", "lines", "kernels", "summary")
    report["results"] = [{k: r[k] for k in keys} for r in kept]
    name = re.sub(r"\W+", "-", machine.lower())
    (out / f"compute-sanitizer--{name}.json").write_text(json.dumps(report, indent=1) + "\n")
    print(report["seconds"], "s,", len(report["not_run"]), "not run")
    for tool in TOOLS:
        mine = [r for r in kept if r["tool"] == tool]
        print(tool, sum(r["found"] for r in mine), "of", len(mine), "timed out", sum(r["timed_out"] for r in mine))


if __name__ == "__main__":
    what, folder, *rest = sys.argv[1:]
    if what == "export":
        export(Path(folder))
    elif what == "launch":
        launch(Path(folder), rest)
    else:
        run(Path(folder), Path(rest[0]))
