"""Measurements from other machines, as the commands that made them wrote them: plain JSON with raw samples.

`<kind>/<name>--<machine>.json`, each with machine, driver, versions, date and command.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from labkit.errors import LabkitError

FOLDER = Path(__file__).parent


def files(kind: str, name: str = "*") -> list[Path]:
    """Recorded files of a kind ("bench", "ceilings", "counters" ...), the newest first by their own date."""
    found = (FOLDER / kind).glob(f"{name}--*.json")
    return sorted(found, key=lambda path: json.loads(path.read_text())["date"], reverse=True)


def add_argument(parser: argparse.ArgumentParser) -> None:
    """The option --record of commands that measure."""
    parser.add_argument(
        "--record", nargs="?", type=Path, const=FOLDER, metavar="DIR",
        help="measure on this GPU, and keep the raw readings where labkit finds them (or under DIR)",
    )  # fmt: skip


def refuse(arguments: argparse.Namespace) -> None:
    """Raises LabkitError for --record where nothing would be measured: beside --recorded or --model, without a GPU."""
    from labkit.kernels import gpu

    shown = getattr(arguments, "recorded", False) or getattr(arguments, "model", False)
    if arguments.record and (shown or not gpu.available()):
        raise LabkitError("--record keeps what is measured on a GPU here; leave it out.")


def today() -> str:
    """The date in UTC, such as 2026-01-31."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def provenance() -> dict[str, Any]:
    """Where and with what a measurement is made: GPU, driver, versions, date, command."""
    import pynvml
    import torch

    pynvml.nvmlInit()
    driver = pynvml.nvmlSystemGetDriverVersion()
    return {
        "machine": torch.cuda.get_device_name(),
        "sms": torch.cuda.get_device_properties().multi_processor_count,
        "driver": driver if isinstance(driver, str) else driver.decode(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "date": today(),
        "command": " ".join(["labkit", *sys.argv[1:]]),
    }


def write(kind: str, name: str, data: dict[str, Any], folder: Path | None = None) -> Path:
    """Write a recorded file with its provenance; `folder` in place of the package's own."""
    about = provenance()
    machine = about["machine"].lower().replace(" ", "-")
    path = (folder or FOLDER) / kind / f"{name}--{machine}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")  # a run that is killed leaves the last whole file
    beside.write_text(text({**about, **data}))
    beside.replace(path)
    return path


def text(data: dict[str, Any]) -> str:
    """JSON that reads and compares well: indented, but a list of numbers on one line."""
    indented = json.dumps(data, indent=1)
    return re.sub(r"\[([-+.\d\sEe,]+)\]", lambda m: f"[{' '.join(m[1].split())}]", indented) + "\n"


def ceilings(machine: str) -> dict[str, float]:
    """Measured ceilings of a machine by its name, medians; {} where none were recorded."""
    return _ceilings(machine, FOLDER)


@cache
def _ceilings(machine: str, _folder: Path) -> dict[str, float]:
    for path in files("ceilings"):
        data = json.loads(path.read_text())
        if data["machine"] == machine:
            return data["ceilings"]
    return {}
