# family: importing the solution or reference module
# target: vector_add/grid
# tries:  calls the reference that the lab compares with.
# naive:  plain
# gains:  marks
# ours:   fail started no kernel|never written|reaches the values|on the host

from labkit import problems


def launch(C, A, B):
    C.copy_(problems.get("vector_add").reference(A, B))
