# family: infinite loop on the host or on the device
# target: vector_add/grid
# tries:  never returns.
# naive:  plain
# gains:  stops
# ours:   timeout did not end

def launch(C, A, B):
    while True:
        pass
