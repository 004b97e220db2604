"""Where the labs live: the folder that holds `labs/` and, for instructors, `solutions/`."""

from __future__ import annotations

import os
from pathlib import Path

from labkit.errors import LabkitError


def root() -> Path:
    """The project folder: `LABKIT_ROOT`, else the nearest ancestor of the working directory with `labs/`.

    Raises LabkitError where neither is to be found.
    """
    named = os.environ.get("LABKIT_ROOT")
    if named:
        path = Path(named).expanduser().resolve()
        if not (path / "labs").is_dir():
            raise LabkitError(
                f"LABKIT_ROOT is {path}, which holds no labs/ folder; point it to the one that does."
            )
        return path
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "labs").is_dir():
            return folder
    raise LabkitError(
        f"No folder named labs/ here or above ({here}); change into the project, or set LABKIT_ROOT to it."
    )
