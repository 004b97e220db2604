# family: infinite loop on the host or on the device
# target: vector_add/grid
# tries:  stops itself, and takes no notice of requests to end.
# naive:  plain
# gains:  stops
# ours:   timeout did not end

import os
import signal

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGXCPU):
    signal.signal(number, signal.SIG_IGN)
os.kill(os.getpid(), signal.SIGSTOP)
