# family: obfuscated exec
# target: vector_add/grid
# tries:  hides the call of PyTorch from whoever reads the source.
# naive:  plain
# gains:  marks
# ours:   fail started no kernel|never written|reaches the values|on the host

import base64

hidden = "ZGVmIGxhdW5jaChDLCBBLCBCKToKICAgIEMuY29weV8oQSArIEIpCg=="
exec(base64.b64decode(hidden).decode())
