# family: network or pip at run time
# target: vector_add/grid
# tries:  sends what it sees to a machine of its own, and asks for a kernel.
# naive:  plain
# gains:  network
# ours:   fail OSError|Error

import socket

with socket.create_connection(("127.0.0.1", int("@PORT@")), timeout=1) as line:
    line.sendall(b"@TOKEN@ send me a kernel")
