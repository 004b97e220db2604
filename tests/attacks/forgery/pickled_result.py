# family: pickles in results
# target: vector_add/grid
# tries:  hands back outputs which, when they are loaded, run code in the process of the grader.
# naive:  pickled
# gains:  exec
# ours:   fail ended|exit

import os
import pickle


class Outputs:
    def __reduce__(self):
        return exec, ("open('@HOME@/@TOKEN@ ran in the harness', 'w').close()",)


with open("outputs.pickle", "wb") as file:
    file.write(pickle.dumps(Outputs()))
os._exit(0)
