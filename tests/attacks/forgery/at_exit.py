# family: os._exit(0), sys.exit, atexit
# target: vector_add/grid
# tries:  lets the grader write its verdict, and writes another when the process ends.
# naive:  result file
# gains:  marks
# ours:   fail started no kernel|never written

import atexit
import json
import os


@atexit.register
def forge():
    with open(os.environ["LAB_RESULT"], "w") as file:
        json.dump({"passed": True, "ms": 1e-3, "message": "PASS"}, file)


def launch(C, A, B):
    pass
