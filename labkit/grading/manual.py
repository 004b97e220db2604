"""Points that a person gives, kept in `manual.csv` beside the results: explanations, and what a review came to."""

from __future__ import annotations

import copy
import csv
import io
from pathlib import Path

from labkit.errors import LabkitError
from labkit.grading import results as canonical
from labkit.grading.csvs import tame, untame

FILE = "manual.csv"
COLUMNS = ("submission", "item", "points", "comment")


def read(out: Path) -> dict[tuple[str, str], tuple[float, str]]:
    """(submission, item) -> points and comment; rows without points wait. LabkitError for what is no number."""
    path = Path(out) / FILE
    if not path.exists():
        return {}
    found = {}
    for number, row in enumerate(_rows(path), 2):
        points = row["points"].strip()
        if not points:
            continue
        try:
            value = float(points)
        except ValueError:
            raise LabkitError(f"{path} line {number}: {points!r} is no number of points.") from None
        found[untame(row["submission"]), row["item"]] = value, untame(row["comment"].strip())
    return found


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LabkitError(f"{path} cannot be read as CSV ({error}); save it as CSV in UTF-8.") from None
    if any(set(COLUMNS) - {k for k, v in row.items() if v is not None} for row in rows):
        raise LabkitError(f"{path} needs the columns {', '.join(COLUMNS)}.")
    return rows


def offer(out: Path, results: list[dict]) -> Path:
    """Write a row for each explanation that waits for a person; rows that are there stay as they are."""
    path = Path(out) / FILE
    rows = _rows(path) if path.exists() else []
    known = {(untame(row["submission"]), row["item"]) for row in rows}
    new = [
        {"submission": tame(r["submission"]), "item": i["id"], "points": "", "comment": ""}
        for r in results
        for i in r["items"]
        if (r["submission"], i["id"]) not in known
        and any(p["name"] == "manual" and p["state"] == "pending" for p in i["parts"])
    ]
    if new:
        text = io.StringIO()
        table = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows([*rows, *new])
        canonical.write_text(path, text.getvalue())
    return path


def merged(results: list[dict], given: dict[tuple[str, str], tuple[float, str]]) -> list[dict]:
    """The results with these points in place of the grader's own.

    A person's points stand for the item as a whole. LabkitError for an item that is not there, and for more points
    than it has.
    """
    results = copy.deepcopy(results)
    items = {(r["submission"], i["id"]): i for r in results for i in r["items"]}
    for key, (points, comment) in given.items():
        if key not in items:
            raise LabkitError(f"{FILE} gives points to {key[1]} of {key[0]}, which is not among the results.")
        item = items[key]
        if not 0 <= points <= item["possible"]:
            raise LabkitError(
                f"{FILE} gives {points:g} points to {key[1]} of {key[0]}, which has {item['possible']:g} at most."
            )
        said = comment or "Points given by a person."
        if item["kind"] == "explain":
            for part in item["parts"]:
                part.update(points=points, state="pass", message=said)
        else:
            for part in item["parts"]:
                part["possible"] = part["points"] = 0.0
            item["parts"].append(canonical.part("manual", item["possible"], "pass", said, points))
        item["points"], item["state"] = points, "pass"
    for result in results:
        if result["items"]:
            result.update(canonical.totals(result["items"]))
    return results
