# family: walking frames or gc for the reference
# target: vector_add/grid
# tries:  goes up the stack to the grader, and takes the expected output from its variables.
# naive:  plain
# gains:  marks
# ours:   fail started no kernel|never written

import sys


def launch(C, A, B):
    frame = sys._getframe()
    while frame:
        if "expected" in frame.f_locals:
            C.copy_(frame.f_locals["expected"])
            return
        frame = frame.f_back
