"""CSV for spreadsheets and learning systems: one row per student (`results.summary`), and one per student and item."""

from __future__ import annotations

import csv
import io

from labkit.grading import wording
from labkit.grading.results import _tame as tame
from labkit.grading.results import summary as students

__all__ = ["items", "students", "tame", "untame"]

PARTS = ("correct", "structure", "time", "answer", "manual")


def items(results: list[dict]) -> str:
    """One row per submission and item: state, points, points of its parts, and what was said, as students read it."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["submission", "item", "kind", "state", "points", "possible", *PARTS, "message"])
    for result in results:
        for item in result["items"]:
            points = {p["name"]: p["points"] for p in item["parts"] if p["state"] != "pending"}
            told = [wording.told(item, p["message"]) for p in item["parts"] if p["state"] != "pass"]
            said = " ".join(dict.fromkeys(told))
            cells = [result["submission"], item["id"], item["kind"], item["state"], item["points"], item["possible"]]
            rows.writerow([tame(cell) for cell in (*cells, *(points.get(name, "") for name in PARTS), said)])
    return text.getvalue()


def untame(cell: str) -> str:
    """The text that `tame` was given."""
    return cell[1:] if cell[:1] == "'" and tame(cell[1:]) == cell else cell
