"""The results of a folder in the form of another system, one file per submission."""

from __future__ import annotations

import json
from pathlib import Path

from labkit.grading import gradescope, manual, prairielearn, results

FORMATS = {"gradescope": gradescope.document, "prairielearn": prairielearn.document}


def write(out: Path, name: str) -> tuple[Path, list[str]]:
    """Write `out/report/<name>/<submission>.json`; returns the folder, and the submissions that the grader failed on.

    name : one of `FORMATS`. Points of `out/manual.csv` are in. Raises LabkitError where there are no results.
    """
    folder = Path(out, "report", name)
    left_out = []
    for result in manual.merged(results.read_all(out), manual.read(out)):
        if result["state"] == "infrastructure_error":
            left_out.append(result["submission"])
            continue
        text = json.dumps(FORMATS[name](result), allow_nan=False)  # no spaces: sizes are limited
        results.write_text(folder / f"{result['submission']}.json", text)
    return folder, left_out
