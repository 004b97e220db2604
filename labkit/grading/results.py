"""Results as JSON, one file per submission, written whole or not at all; and one CSV row per student."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

from labkit.errors import LabkitError

SCHEMA_VERSION = 1
STATES = ("graded", "ungradable", "infrastructure_error")
ITEM_STATES = ("pass", "fail", "timeout", "missing", "pending", "error")


def folder(out: Path) -> Path:
    """Where the results of a batch lie."""
    return Path(out) / "results"


def path(out: Path, submission: str) -> Path:
    """The file of one submission."""
    return folder(out) / f"{submission}.json"


def part(name: str, possible: float, state: str, message: str, points: float | None = None, **details: Any) -> dict:
    """One part of an item; by default all of its points where it passes, else none."""
    points = (possible if state == "pass" else 0.0) if points is None else points
    return {
        "name": name, "points": _points(points), "possible": _points(possible), "state": state, "message": message,
        "details": details,
    }  # fmt: skip


def item(ident: str, kind: str, parts: list[dict], counters: dict | None = None, state: str | None = None) -> dict:
    """An item of its parts; its state is that of its worst part."""
    if state is None:
        states = [p["state"] for p in parts]
        order = ("missing", "timeout", "error", "fail", "pending")
        state = next((s for s in order if s in states), "pass")
    return {
        "id": ident,
        "kind": kind,
        "points": _points(sum(p["points"] for p in parts)),
        "possible": _points(sum(p["possible"] for p in parts)),
        "state": state,
        "parts": parts,
        "counters": counters or {},
    }


def totals(items: list[dict]) -> dict[str, float]:
    """points, possible, and what is pending of the difference."""
    pending = sum(p["possible"] - p["points"] for i in items for p in i["parts"] if p["state"] == "pending")
    return {
        "points": _points(sum(i["points"] for i in items)),
        "possible": _points(sum(i["possible"] for i in items)),
        "pending": _points(pending),
    }


def _points(value: float) -> float:
    return round(float(value), 6)


def write(out: Path, result: dict) -> Path:
    """Write a result so that a reader, or a machine that loses its power, sees all of it or none."""
    target = path(out, result["submission"])
    write_text(target, json.dumps(result, indent=1, allow_nan=False) + "\n")
    return target


def write_text(target: Path, text: str) -> None:
    """`text` to a file at once: a new file, on the disk, takes the old one's name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read(file: Path) -> dict:
    """A result; LabkitError where the file is none."""
    try:
        result = json.loads(Path(file).read_text(encoding="utf-8"))
        if result["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema version {result['schema_version']}")
        return result
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabkitError(f"{file} is no result of labkit grade ({error}); remove it and grade again.") from None


def read_all(out: Path) -> list[dict]:
    """The results in a folder, by submission; LabkitError where there is none."""
    files = sorted(folder(out).glob("*.json"))
    if not files:
        raise LabkitError(f"{out} holds no results; make them with labkit grade SUBMISSIONS --out {out}.")
    return [read(file) for file in files]


def summary(results: list[dict]) -> str:
    """CSV: one row per submission, with the points of each item."""
    idents = list(dict.fromkeys(i["id"] for r in results for i in r["items"]))
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["submission", "state", "points", "possible", "pending", "sandbox", "reason", *idents])
    for r in results:
        points = {i["id"]: i["points"] for i in r["items"]}
        head = (r[name] for name in ("submission", "state", "points", "possible", "pending", "sandbox", "reason"))
        cells = [*head, *(points.get(ident, "") for ident in idents)]
        rows.writerow([_tame(cell) for cell in cells])
    return text.getvalue()


def _tame(cell: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets an apostrophe."""
    if cell is None:
        return ""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(tuple("=+-@\t\r")) else cell


def check_schema(result: dict) -> None:
    """ValueError where a result does not have the published form; for tests and for who reads results."""

    def need(condition: bool, what: str) -> None:
        if not condition:
            raise ValueError(what)

    def number(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)

    need(result.get("schema_version") == SCHEMA_VERSION, "schema_version")
    need(result.get("state") in STATES, "state")
    need(isinstance(result.get("submission"), str) and bool(result["submission"]), "submission")
    need(result.get("reason") is None or isinstance(result["reason"], str), "reason")
    for name in ("points", "possible", "pending", "seconds"):
        need(number(result.get(name)), name)
    for name in ("sandbox", "scheme", "started", "labkit"):
        need(isinstance(result.get(name), str), name)
    need(isinstance(result.get("machine"), dict), "machine")
    need(all(isinstance(f, str) for f in result["faults"]), "faults")
    need(all(set(r) == {"what", "where", "line"} for r in result["review"]), "review")
    for i in result["items"]:
        need(i["kind"] in ("kernel", "answer", "explain"), f"{i['id']} kind")
        need(i["state"] in ITEM_STATES, f"{i['id']} state")
        need(number(i["points"]) and number(i["possible"]) and 0 <= i["points"] <= i["possible"] + 1e-9, i["id"])
        for p in i["parts"]:
            need(p["name"] in ("correct", "structure", "time", "answer", "manual"), f"{i['id']} part")
            need(p["state"] in ITEM_STATES and isinstance(p["message"], str), f"{i['id']} {p['name']}")
            need(0 <= p["points"] <= p["possible"] + 1e-9, f"{i['id']} {p['name']} points")
        for counter in i["counters"].values():
            need(set(counter) == {"yours", "optimised", "unoptimised"}, f"{i['id']} counters")
