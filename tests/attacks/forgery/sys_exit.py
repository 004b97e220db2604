# family: os._exit(0), sys.exit, atexit
# target: vector_add/grid
# tries:  leaves by an exception that is no error.
# naive:  exit status
# gains:  marks
# ours:   fail SystemExit|exit

import sys


def launch(C, A, B):
    sys.exit(0)
