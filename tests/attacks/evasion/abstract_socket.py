# family: network or pip at run time
# target: vector_add/grid
# tries:  reaches a helper outside by a socket that has a name and no file, where only files were shut off.
# naive:  plain
# gains:  network
# ours:   fail Error

import socket

with socket.socket(socket.AF_UNIX) as line:
    line.connect("\0@TOKEN@")
    line.sendall(b"@TOKEN@ send me a kernel")
