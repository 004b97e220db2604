"""Gradescope: `results.json` of a result, and the zip that has Gradescope run the grader.

The form of both: https://gradescope-autograders.readthedocs.io/en/latest/specs/. Gradescope's containers have no GPU:
there, times give no points, and kernels their points for being right and for their counters.
"""

from __future__ import annotations

import io
import json
import os
import stat
import sys
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from labkit.errors import LabkitError
from labkit.grading import results, wording

MOST_OUTPUT = 20_000  # characters of one test's output
VISIBILITY = ("visible", "after_due_date", "after_published", "hidden")
SETTINGS = "assignment.json"
SEED = "seed"
FOLDERS = ("labkit", "labs", "solutions")
FILES = ("pyproject.toml", "constraints.txt", "README.md")


def document(result: dict[str, Any], visibility: str = "visible") -> dict[str, Any]:
    """`results.json` of a graded submission.

    What waits for a GPU or a person is a test without a score, so that it counts neither for nor against. Raises
    LabkitError for an infrastructure error, which is no grade: let the run fail, and Gradescope says so.
    """
    if result["state"] == "infrastructure_error":
        raise LabkitError(f"{result['submission']} was not graded: {result['reason']}")
    return {
        "score": result["points"],
        "execution_time": round(result["seconds"]),
        "output": "\n".join(_summary(result)),
        "output_format": "text",
        "visibility": visibility,
        "stdout_visibility": "hidden",
        "extra_data": {
            "submission": result["submission"], "state": result["state"], "possible": result["possible"],
            "pending": result["pending"], "sandbox": result["sandbox"], "scheme": result["scheme"],
        },
        "tests": [
            _test(item, part, f"{number}.{place}")
            for number, item in enumerate(result["items"], 1)
            for place, part in enumerate(item["parts"], 1)
        ],
    }  # fmt: skip


def _summary(result: dict[str, Any]) -> Iterable[str]:
    points, possible = wording.number(result["points"]), wording.number(result["possible"])
    if result["state"] == "ungradable":
        yield f"This could not be graded: {result['reason']}"
    else:
        yield f"{points} of {possible} points."
    if result["pending"]:
        yield f"{wording.number(result['pending'])} more points are not judged yet: they wait for a GPU or a person."
    yield from result["faults"]
    yield f"Sandbox: {result['sandbox']}."


def _test(item: dict[str, Any], part: dict[str, Any], number: str) -> dict[str, Any]:
    lines = [wording.about(item), wording.told(item, part["message"])]
    if part["name"] == "structure":
        lines += [
            f"{metric}: yours {c['yours']:,.6g}, optimized {c['optimised']:,.6g}, unoptimized {c['unoptimised']:,.6g}"
            for metric, c in item["counters"].items()
        ]
    test = {
        "name": f"{wording.name(item)} - {wording.PARTS[part['name']]}",
        "name_format": "text",
        "number": number,
        "output": "\n".join(filter(None, lines))[:MOST_OUTPUT],
        "output_format": "text",
        "tags": [item["kind"], part["name"]],
        "visibility": "visible",
    }
    if part["state"] == "pending":
        test["output"] += "\nNot judged yet."
    else:
        test |= {
            "score": part["points"], "max_score": part["possible"],
            "status": "passed" if part["state"] == "pass" else "failed",
        }  # fmt: skip
    return test


# --- the zip ---------------------------------------------------------------------------------------------

SETUP = """\
#!/usr/bin/env bash
# Gradescope runs this once, as root, when the image is built: Ubuntu 24.04 (or another with Python 3.11 or newer).
set -euo pipefail
cd /autograder/source
apt-get update -qq
apt-get install -y -qq --no-install-recommends bubblewrap python3 python3-venv
for python in python3 python3.14 python3.13 python3.12 python3.11 none; do
    if [ "$python" = none ]; then
        apt-get install -y -qq --no-install-recommends python3.11 python3.11-venv
        python=python3.11
        break
    fi
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
done
"$python" -m venv .venv
.venv/bin/pip install -q --no-deps -c constraints.txt --index-url https://download.pytorch.org/whl/cpu torch
.venv/bin/pip install -q -c constraints.txt -e .
chmod -R go-rwx solutions seed
chmod -R go+rX .venv labkit
"""

RUN = """\
#!/usr/bin/env bash
# Gradescope runs this for each submission, in a container of its own.
set -euo pipefail
cd /autograder/source
export LABKIT_ROOT=/autograder/source
export LABKIT_GRADING_USER=nobody  # where the container allows no bubblewrap: so that solutions and seed stay unread
exec .venv/bin/python -m labkit.grading.gradescope /autograder/submission /autograder/results/results.json
"""


def write_zip(
    root: Path,
    target: Path,
    *,
    labs: Iterable[str] | None = None,
    points: Mapping[str, float] | None = None,
    seed: bytes | None = None,
    visibility: str = "visible",
) -> Path:
    """The autograder for an assignment, to be uploaded under "Configure Autograder". It holds the solutions.

    labs, points : as `scheme.load` takes them.  seed : 32 secret bytes, new ones by default; all submissions of the
    assignment are graded with them.  visibility : of the results, one of Gradescope's words.
    """
    from labkit.grading import scheme
    from labkit.notebook.build import masters, select

    if visibility not in VISIBILITY:
        raise LabkitError(f"Gradescope knows no visibility {visibility!r}; take one of {', '.join(VISIBILITY)}.")
    root, target = Path(root), Path(target)
    labs = None if labs is None else list(labs)
    chosen = scheme.load(root, labs, points, timed=False)  # errors show now, not on Gradescope
    if not chosen.items:
        raise LabkitError("No question of these notebooks has points; name others with --labs.")
    own = {path.parent for path in select(masters(root), labs)}
    settings = {"labs": labs, "points": points, "visibility": visibility, "scheme": chosen.hash}
    members: dict[str, bytes] = {
        "setup.sh": SETUP.encode(),
        "run_autograder": RUN.encode(),
        SETTINGS: json.dumps(settings, indent=1).encode(),
        SEED: (os.urandom(32) if seed is None else seed).hex().encode(),
    }
    for path in _files(root):
        name = path.relative_to(root)
        other = name.parts[0] in ("labs", "solutions") and not any(path.is_relative_to(p) for p in own)
        if name.parts[0] == "solutions" and other and "kernels" not in name.parts:
            continue  # masters of other assignments
        members[name.as_posix()] = path.read_bytes()
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(members.items()):
            info = zipfile.ZipInfo(name)  # of a fixed date: the same assignment gives the same zip
            program = name in ("setup.sh", "run_autograder")
            mode = 0o755 if program else 0o600 if name == SEED else 0o644
            info.external_attr = (stat.S_IFREG | mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data.getvalue())
    target.chmod(0o600)
    return target


def _files(root: Path) -> Iterable[Path]:
    for folder in FOLDERS:
        for path in sorted(Path(root, folder).rglob("*")):
            name = path.relative_to(root)
            cached = any(part == "__pycache__" or part.startswith(".") for part in name.parts)
            mine = name.parts[0] == "labs" and (path.suffix == ".ipynb" or "kernels" in name.parts)
            if path.is_file() and not path.is_symlink() and not cached and not mine:
                yield path
    for name in FILES:
        if Path(root, name).is_file():
            yield Path(root, name)


def main(submission: Path, target: Path, root: Path) -> None:
    """Grade the folder `submission` by the assignment in `root`, as the zip says it; write `target`."""
    import tempfile

    from labkit.grading import scheme
    from labkit.grading.grade import grade_one

    settings = json.loads(Path(root, SETTINGS).read_text(encoding="utf-8"))
    seed = bytes.fromhex(Path(root, SEED).read_text(encoding="ascii"))
    chosen = scheme.load(root, settings["labs"], settings["points"], timed=False)
    with tempfile.TemporaryDirectory() as out:
        result = grade_one(submission, out, root=root, scheme=chosen, seed=seed)
    results.write_text(Path(target), json.dumps(document(result, settings["visibility"]), allow_nan=False))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), Path(os.environ["LABKIT_ROOT"]))
    except LabkitError as error:
        sys.exit(f"labkit: {error}")
