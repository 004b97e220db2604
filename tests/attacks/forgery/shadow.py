# family: shadowing torch, labkit or sitecustomize
# target: vector_add/grid
# tries:  leaves modules where the next Python process will find them first.
# naive:  plain
# gains:  file
# ours:   fail .

import contextlib
import os
import site
import sys
from pathlib import Path

folders = ["@HOME@"]  # a folder from which Python starts
if os.getppid() <= 2:  # in a namespace of its own: everywhere
    folders += [os.getcwd(), *sys.path, site.getusersitepackages(), "/tmp", "/dev/shm", "/var/tmp"]
for folder in folders:
    for name in ("sitecustomize.py", "torch.py", "@TOKEN@.pth"):
        with contextlib.suppress(OSError):
            Path(folder, name).write_text("import os  # @TOKEN@")
