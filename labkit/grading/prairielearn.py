"""PrairieLearn: `results.json` of a result, as its external graders write it.

The form: https://prairielearn.readthedocs.io/en/latest/externalGrading/. A score is a fraction, and a file of more than
1 MB is refused.
"""

from __future__ import annotations

import json
from typing import Any

from labkit.errors import LabkitError
from labkit.grading import wording

MOST_BYTES = 1_000_000


def document(result: dict[str, Any], most: int = MOST_BYTES) -> dict[str, Any]:
    """`results.json` of a graded submission, in at most `most` bytes of JSON.

    What waits for a GPU or a person has no points yet, and the message says so. An ungradable submission costs the
    student no attempt. Raises LabkitError for an infrastructure error, which is no grade.
    """
    if result["state"] == "infrastructure_error":
        raise LabkitError(f"{result['submission']} was not graded: {result['reason']}")
    if result["state"] == "ungradable":
        return {"gradable": False, "format_errors": [str(result["reason"])[:2000]]}
    share = result["points"] / result["possible"] if result["possible"] else 0.0
    found = {
        "gradable": True,
        "score": round(min(max(share, 0.0), 1.0), 6),
        "message": _message(result),
        "output": "\n".join(result["faults"]),
        "tests": [_test(item, part) for item in result["items"] for part in item["parts"]],
    }
    for longest in (20_000, 2000, 200, 0):
        for test in found["tests"]:
            test["output"], test["message"] = test["output"][:longest], test["message"][: max(longest, 100)]
        found["output"] = found["output"][: 10 * longest]
        if len(json.dumps(found)) <= most:
            return found
    kept = {"name": "All questions", "points": result["points"], "max_points": result["possible"],
            "message": "There are too many questions to be listed here."}  # fmt: skip
    return found | {"tests": [kept], "output": ""}


def _message(result: dict[str, Any]) -> str:
    points, possible = wording.number(result["points"]), wording.number(result["possible"])
    said = f"{points} of {possible} points. Sandbox: {result['sandbox']}."
    if result["pending"]:
        said += f" {wording.number(result['pending'])} points are not judged yet: they wait for a GPU or a person."
    return said


def _test(item: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    counters = [
        f"{metric}: yours {c['yours']:,.6g}, optimized {c['optimised']:,.6g}, unoptimized {c['unoptimised']:,.6g}"
        for metric, c in item["counters"].items()
        if part["name"] == "structure"
    ]
    waits = "Not judged yet. " if part["state"] == "pending" else ""
    return {
        "name": f"{wording.name(item)} - {wording.PARTS[part['name']]}",
        "description": wording.about(item),
        "points": part["points"],
        "max_points": part["possible"],
        "message": waits + wording.told(item, part["message"]),
        "output": "\n".join(counters),
    }
