# family: network or pip at run time
# target: vector_add/grid
# tries:  installs a package with the kernel in it, from a server of its own.
# naive:  plain
# gains:  network
# ours:   fail .

import subprocess
import sys

index = "http://127.0.0.1:@PORT@/@TOKEN@"
pip = [sys.executable, "-m", "pip", "install", "-q", "--retries", "0", "--timeout", "1", "-t", ".", "-i", index]
subprocess.run([*pip, "kernels"], check=True, timeout=20)
