# family: importing the solution or reference module
# target: vector_add/grid
# tries:  looks for the instructor's files beside labkit, and runs the one of this rung.
# naive:  plain
# gains:  marks
# ours:   fail StopIteration|No such file|FileNotFound

from pathlib import Path

import labkit

folders = [Path.cwd(), *Path(labkit.__file__).parents]
found = next(f for folder in folders for f in folder.glob("solutions/*/kernels/vector_add/grid.py"))
exec(compile(found.read_text(), str(found), "exec"))
