# family: host or device memory exhaustion
# target: vector_add/grid
# tries:  takes memory until there is none, and touches all of it.
# naive:  plain
# gains:  memory
# ours:   fail .

import contextlib

held = []
with contextlib.suppress(MemoryError):
    while len(held) << 24 < int("@MEMORY@"):
        held.append(bytearray(b"x") * (1 << 24))


def launch(C, A, B):
    pass
