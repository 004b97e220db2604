# family: reading other submissions, /proc or secrets in the environment
# target: vector_add/grid
# tries:  reads what another student handed in, and has the error message carry it out.
# naive:  plain
# gains:  secret
# ours:   fail No such file|Permission

from pathlib import Path

raise RuntimeError(Path("@SECRET@").read_text())
