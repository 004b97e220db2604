# family: returning an input or an alias
# target: copy/coalesced
# tries:  returns the input, which equals its copy.
# naive:  returned
# gains:  time
# shape:  N=4099
# ours:   fail started no kernel|never written

def launch(B, A, offset=0, stride=1):
    return A[offset::stride]
