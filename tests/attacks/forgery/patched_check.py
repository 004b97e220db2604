# family: patched allclose or labkit.check
# target: vector_add/grid
# tries:  replaces the function that the lab's own check is made of.
# naive:  check
# gains:  marks
# ours:   fail started no kernel|never written

import labkit.check

labkit.check._run = lambda *args: iter(())
labkit.check.compare = labkit.check._compare = lambda *args: iter(())
labkit.check.tolerance = lambda *args: ({}, {})


def launch(C, A, B):
    pass
