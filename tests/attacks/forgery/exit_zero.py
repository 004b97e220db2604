# family: os._exit(0), sys.exit, atexit
# target: vector_add/grid
# tries:  ends the process with the status of success, before anybody looks at the output.
# naive:  exit status
# gains:  marks
# ours:   fail ended|exit

import os


def launch(C, A, B):
    os._exit(0)
