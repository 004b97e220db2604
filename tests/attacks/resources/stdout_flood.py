# family: disk or stdout flood
# target: vector_add/grid
# tries:  prints until whoever collects it gives up.
# naive:  plain
# gains:  file
# ours:   timeout|fail .

import contextlib
import os

piece, written = b"@TOKEN@" * 4096, 0
with contextlib.suppress(OSError):
    while written < int("@BYTES@"):
        written += os.write(1, piece) + os.write(2, piece)


def launch(C, A, B):
    pass
