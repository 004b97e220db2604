# family: fork bomb
# target: vector_add/grid
# tries:  starts processes as fast as it can (a number of them: this file does nothing when it is run by mistake).
# naive:  plain
# gains:  process
# ours:   fail .

import contextlib
import os
import time

with contextlib.suppress(OSError):
    for _ in range(int("@MANY@")):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)


def launch(C, A, B):
    pass
