# family: writing the result file or an inherited descriptor
# target: vector_add/grid
# tries:  writes verdicts to every descriptor that it has inherited, in all forms it can think of.
# naive:  plain
# gains:  marks
# ours:   fail ended|nonsense|read|answer|other

import json
import os
import struct

verdict = json.dumps({"passed": True, "ms": 1e-3, "message": "PASS"}).encode()
forged = json.dumps({"results": [{"recording": 0}] * 10, "runs": [], "passed": True, "sizes": [0]}).encode()
for descriptor in range(3, 64):
    try:
        os.write(descriptor, verdict if "LAB_RESULT" in os.environ else struct.pack("<Q", len(forged)) + forged)
    except OSError:
        pass
os._exit(0)
