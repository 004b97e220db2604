# family: poisoned compile caches
# target: vector_add/grid
# tries:  overwrites what is kept of compiled kernels, so that the next student's kernel is another one.
# naive:  plain
# gains:  file
# ours:   fail .

import contextlib
import os
from pathlib import Path

folders = [Path(os.environ["LABKIT_CACHE"]), Path("@HOME@")]
for folder in folders:
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("@TOKEN@.ptx", "@TOKEN@.o"):
            (folder / name).write_bytes(b"@TOKEN@")
        for file in folder.rglob("*.ptx"):
            file.write_bytes(b"@TOKEN@")


def launch(C, A, B):
    pass
