# family: returning an input or an alias
# target: copy/coalesced
# tries:  makes the output's tensor look at the input's memory.
# naive:  plain
# gains:  time
# shape:  N=4099
# ours:   fail started no kernel|never written

def launch(B, A, offset=0, stride=1):
    B.set_(A[offset::stride][: B.shape[0]])
